"""Random numbers computed from their purpose: each can be drawn anywhere, without drawing the ones before it.

They are equal on all devices and in all processes, and drawing them does not wait for the device.
"""
