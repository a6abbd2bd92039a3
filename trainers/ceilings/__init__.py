"""Measures this hardware's ceilings: matrix products, memory, links between GPUs, the bus and the disk.

`python -m trainers.ceilings` takes seconds, outside of any run. It measures each ceiling several times and reads NVML's
counters meanwhile. The amount of work is known, so it calibrates the counters. tracking.measure.bottleneck stores the
results. The doctor runs only `nccl_check`, which needs nothing but torch.
"""

from __future__ import annotations

__all__: list[str] = []
