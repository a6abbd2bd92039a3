"""The training loop, as each process of a run goes through it.

`train` reads from top to bottom; the modules beside it are its steps. This face imports none of them: the worker
decides what is imported when.
"""
