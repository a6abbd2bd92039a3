"""A run on several machines: how their launchers find and follow each other, and what those but the first do."""
