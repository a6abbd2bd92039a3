"""What the mirror and a team's server take: rows a second, and many runs at once."""
