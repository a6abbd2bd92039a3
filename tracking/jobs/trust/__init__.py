"""Whether a folder is this user's own, and what it would have executed where it is not."""
