"""The models: one module or package each, with its `WORKLOAD`.

Schedules and pretrained weights, which several models use, are here too.
"""
