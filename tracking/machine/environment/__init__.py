"""The environment of a run: GPUs, driver, libraries, topology, CPU and kernel.

Every worker takes the fingerprint once, and it becomes the run's tags. Unknown values are absent.
"""

from tracking.machine.environment import fingerprint, gpm, libraries, nvidia_smi, nvml, processes, repository, topology
from tracking.machine.environment.available_memory import available_bytes
from tracking.machine.environment.bytecode import BYTECODE, Sources, bytecode_variables, own_sources
from tracking.machine.environment.cache_folder import (
    cache,
    check_cache,
    compiler_folders,
    compiler_variables,
    distrust,
    inductor_folder,
    is_trusted,
    private_folder,
    remove_scratch,
)
from tracking.machine.environment.fingerprint import Collector
from tracking.machine.environment.fingerprint_table import format_table
from tracking.machine.environment.gpm import gpu_counters
from tracking.machine.environment.host import COMPUTING_VARIABLES, cpu_model
from tracking.machine.environment.mlflow_import import importing_mlflow
from tracking.machine.environment.written_by_others import OthersWriteError, check_tree, check_way, link_of_others

__all__ = [
    "BYTECODE", "COMPUTING_VARIABLES", "Collector", "OthersWriteError", "Sources", "available_bytes",
    "bytecode_variables", "cache", "check_cache", "check_tree", "check_way", "compiler_folders", "compiler_variables",
    "cpu_model", "distrust", "fingerprint", "format_table", "gpm", "gpu_counters", "importing_mlflow",
    "inductor_folder", "is_trusted", "libraries", "link_of_others", "nvidia_smi", "nvml", "own_sources",
    "private_folder", "processes", "remove_scratch", "repository", "topology",
]  # fmt: skip
