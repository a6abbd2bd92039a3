"""What a run is computed on: GPUs, driver, libraries, topology, CPU, kernel, and their use over time.

The fingerprint is taken once in every worker and becomes the run's tags. System metrics are sampled beside the
worker, never in it. What a machine does not tell is absent from both.
"""

from __future__ import annotations

from tracking.environment import fingerprint, libraries, nvml, processes
from tracking.environment.cache_folder import cache
from tracking.environment.fingerprint import GIT_FILE, Collector, git_state
from tracking.environment.fingerprint_table import format_table
from tracking.environment.gpm import gpu_counters
from tracking.environment.host import COMPUTING_VARIABLES
from tracking.environment.mlflow_import import importing_mlflow
from tracking.environment.neighbours import Neighbours, compute_processes_of
from tracking.environment.system_metrics import SystemMetrics, SystemMetricsThread

__all__ = [
    "COMPUTING_VARIABLES",
    "GIT_FILE",
    "Collector",
    "Neighbours",
    "SystemMetrics",
    "SystemMetricsThread",
    "cache",
    "compute_processes_of",
    "fingerprint",
    "format_table",
    "git_state",
    "gpu_counters",
    "importing_mlflow",
    "libraries",
    "nvml",
    "processes",
]
