"""A run on several machines: how their launchers find and follow each other, and what the non-head ones do."""
