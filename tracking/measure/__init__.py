"""Turn events into figures, for our trainings, programs and kernels, and find what limited a run.

Five rooms: `programs`, `kernels`, `steps`, `training` and `bottleneck`.
"""
