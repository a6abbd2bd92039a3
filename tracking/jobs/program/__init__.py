"""The worker of a program that is not ours: it starts it, listens to it, and never leaves it behind.

It needs no PyTorch, since the program's stack may hold another framework. What the program says becomes our journal by
tracking.measure.programs, and the figures by the arithmetic that all runs have.
"""
