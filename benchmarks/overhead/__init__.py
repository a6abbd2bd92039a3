"""Cost of tracking for a training, the launcher and the machine, with a working and with a failing server."""
