"""Load on the mirror and on a team's server: rows a second, and many runs at once."""
