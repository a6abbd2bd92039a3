"""How long a report takes, and how often what it says of a difference is wrong."""
