"""From events to figures: of our trainings, of programs, of kernels; and what limited a run.

Four rooms: `programs`, `kernels`, `training` and `bottleneck`.
"""
