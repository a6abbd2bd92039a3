"""The headings of the `system/*` metrics, with patterns of their keys after `system/`.

A key may name a node and a GPU (`system/NODE/gpu_3_...`), and ends with its unit. Sensors have no direction: a busy
machine explains a run but does not rank it.
"""

from __future__ import annotations

import re

NODE = r"(?:[^/]+/)?"  # any node of a run
GPU = rf"{NODE}gpu_\d+_"
CPU = "CPU of the machine, all programs (%)"
HEADINGS = {
    "GPU utilisation (%)": rf"{GPU}utilization_percentage",
    "SM activity (%)": rf"{GPU}sm_activity_percentage",
    "tensor cores active (%)": rf"{GPU}tensor_activity_percentage",
    "DRAM bandwidth (%)": rf"{GPU}dram_bandwidth_percentage",
    CPU: rf"{NODE}cpu_utilization_percentage",
    "busiest core (%)": rf"{NODE}cpu_busiest_core_percentage",
    "busiest process (cores)": rf"{NODE}run_busiest_process_cores",
    "CPU memory traffic (MB/s)": rf"{NODE}cpu_memory_megabytes_per_sec",
    "page cache (MB)": rf"{NODE}page_cache_megabytes",
    "disk, read and written (MB/s)": rf"{NODE}disk_(read|write)_megabytes_per_sec",
    "network files, read and written (MB/s)": rf"{NODE}network_files_(read|write)_megabytes_per_sec",
    "network, in and out (MB/s)": rf"{NODE}network_(receive|transmit)_megabytes_per_sec",
    "InfiniBand, in and out (MB/s)": rf"{NODE}infiniband_(receive|transmit)_megabytes_per_sec",
    "NVLink, in and out (MB/s)": rf"{GPU}nvlink_(receive|transmit)_megabytes_per_sec",
    "PCIe, in and out (MB/s)": rf"{GPU}pcie_(receive|transmit)_megabytes_per_sec",
}


def heading(sensor: str) -> str:
    """The heading of a sensor, from its key after `system/`; empty if no table shows it."""
    return next((words for words, pattern in HEADINGS.items() if re.fullmatch(pattern, sensor)), "")
