"""The training loop that each process of a run executes.

Start with `train.train`: it reads from top to bottom, and the other modules are its steps. This package imports none
of them, because the worker decides what is imported when.
"""
