"""Jobs of a sweep side by side on one machine: what each may use, and how they are started there."""
