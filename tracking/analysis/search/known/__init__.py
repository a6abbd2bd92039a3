"""The rules of a search, its runs, and what is known from them. Nothing is proposed or decided here."""
