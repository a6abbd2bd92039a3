"""How fast images get from files to the device, by our loader and by others, and files to measure that with."""
