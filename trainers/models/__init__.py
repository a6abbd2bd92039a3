"""The models: a module or a package each, with its `WORKLOAD`.

What several of them use beside their layers is here too: schedules and pretrained weights.
"""
