"""Which setting is explored next, and when enough is known. It makes no claims."""
