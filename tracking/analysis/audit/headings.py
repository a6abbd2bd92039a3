"""The headings of a report's figures: of which metric each is, and in what unit."""

from __future__ import annotations

from tracking.analysis.audit.journals import PREFIX

# The metric under each heading of the table of settings, and the factor to the heading's unit.
QUANTITIES = {
    "minutes an epoch": ("time/epoch_sec", 1 / 60),
    "epochs": ("epochs/to_accuracy", 1.0),
    "epochs trained": ("epochs/trained", 1.0),
    "time to accuracy (s)": ("time/to_accuracy_sec", 1.0),
    "without evaluation (s)": ("time/to_accuracy_train_sec", 1.0),
    "evaluations": ("evaluations/to_accuracy", 1.0),
    "s an evaluation": ("time/evaluation_interval_sec", 1.0),
    "samples/s": ("throughput/samples_per_sec", 1.0),
    "FLOPs utilisation (%)": ("throughput/model_flops_utilization", 100.0),
    "cost to accuracy (USD)": ("cost/to_accuracy_usd", 1.0),
    "cost of a run (USD)": ("cost/usd", 1.0),
}
# Further ones, which stand beside published figures.
BESIDE = QUANTITIES | {
    "time to accuracy (min)": ("time/to_accuracy_sec", 1 / 60),
    "samples/s a device": ("throughput/samples_per_sec_per_device", 1.0),
    "tokens/s": ("throughput/tokens_per_sec", 1.0),
    "target tokens/s": ("throughput/target_tokens_per_sec", 1.0),
}
# The metric under each heading of a ratio, and whether the ratio is divided by the growth of the devices.
RATIOS = {
    "speed-up": ("time/to_accuracy_sec", False),
    "efficiency": ("time/to_accuracy_sec", True),
    "speed-up of the rate": ("throughput/samples_per_sec", False),
    "efficiency of the rate": ("throughput/samples_per_sec", True),
}
OVER_FP32 = {
    "speed-up of the rate over fp32": "throughput/samples_per_sec",
    "speed-up over fp32": "time/to_accuracy_sec",
}
# The param under each heading of a fact; and where own rows stand beside published ones.
FACTS = {"global batch": "global_batch_size", "precision": "precision"}
OWN_FACTS = {"GPUs": "gpus", "batch": "global_batch_size", "precision": "precision"}
# The cause under each heading of what limited the runs.
CAUSES = {
    "waiting for data": "data",
    "the GPU without work from the host": "host",
    "exchange of gradients": "exchange",
    "evaluation": "evaluation",
    "checkpoints": "checkpoint",
    "traffic of the GPU's memory": "dram",
    "tensor cores": "tensor",
    "cores for fp32": "fp32",
    "a clock that power or heat kept down": "power",
    "the cores of the CPU": "processor",
    "not known": "unknown",
}
LIMITS = {f"{words} (%)": f"{PREFIX}{cause}_fraction" for words, cause in CAUSES.items()}
LEAST_SHARE = 0.005  # of a cause that has a column
# The metric under each heading of how busy the hardware was.
BUSY = {
    "GPU utilisation (%)": "utilization/gpu_utilization_percentage",
    "SM activity (%)": "utilization/gpu_sm_activity_percentage",
    "tensor cores active (%)": "utilization/gpu_tensor_activity_percentage",
    "DRAM bandwidth (%)": "utilization/gpu_dram_bandwidth_percentage",
    "NVLink, out of a GPU (MB/s)": "utilization/gpu_nvlink_transmit_megabytes_per_sec",
    "PCIe, out of a GPU (MB/s)": "utilization/gpu_pcie_transmit_megabytes_per_sec",
    "copy between the slowest pair (MB/s)": "ceilings/slowest_pair_megabytes_per_sec",
    "CPU cores busy (%)": "utilization/run_cpu_percentage",
    "CPU memory traffic (MB/s)": "utilization/cpu_memory_megabytes_per_sec",
}
SPEEDS = ("samples/s", "time to accuracy (s)")  # beside that
