"""The training loop, as `python -m trainers.loop.worker RUN_DIR` runs it in each process of a run.

`train` reads from top to bottom; the modules beside it are its steps. This face imports none of them: the worker
decides what is imported when.
"""
