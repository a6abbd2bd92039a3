"""The worker of a user's program: it starts the program, listens to it, and never leaves it running.

It needs no PyTorch, since the program's stack may hold another framework. What the program says becomes our journal by
tracking.measure.programs, and the figures by the arithmetic that all runs have.
"""
