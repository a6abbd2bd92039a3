"""What this hardware can do at most: matrix products, memory, links between GPUs, the bus and the disk.

`python -m trainers.ceilings` measures in a process of its own, in seconds and in no run. Each ceiling is measured
several times, and beside it what NVML's counters say of work whose size is known: that calibrates them. The ceilings
are kept by tracking.measure.bottleneck. `nccl_check` is the part of it that the doctor asks for, and needs torch alone.
"""

from __future__ import annotations

__all__: list[str] = []
