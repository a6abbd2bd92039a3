"""The worker of a user's program: it starts the program, listens to it, and never leaves it running.

It needs no PyTorch, since the program's stack may hold another framework. tracking.measure.programs converts the output
into our journal; the figures come from the arithmetic of all runs.
"""
