"""What a search is asked, the runs that were made of it, and what they say. Nothing is proposed or decided here."""
