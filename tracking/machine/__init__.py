"""The machine of a run, in four rooms: `environment`, `usage`, `stacks` and `compiled`."""
