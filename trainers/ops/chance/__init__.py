"""Random numbers that follow from what they are for: any of them can be drawn anywhere, without those before it.

They are the same on every device and in every process, and nobody waits for the device to draw them.
"""
