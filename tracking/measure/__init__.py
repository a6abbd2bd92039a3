"""From events to figures: of our trainings, of programs, of kernels; and what limited a run.

Five rooms: `programs`, `kernels`, `steps`, `training` and `bottleneck`.
"""
