"""Counter-based random numbers: each can be drawn anywhere, without drawing earlier ones.

They are equal on all devices and in all processes, and drawing them does not wait for the device.
"""
