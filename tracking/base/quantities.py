"""The catalogue of quantities: key, unit, heading, digits and direction of each metric.

It has facts and no arithmetic, so that the audit may share it. Only this module spells out timetrial's own keys. Others
use its constants, so that a typo is an error: the constant of `time/epoch_sec` is `TIME_EPOCH_SEC`.

Evaluation metrics belong to users. Their direction is declared (see `better`) and never guessed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from conf.metric import HIGHER, LOWER, NO_DIRECTIONS, declaration_advice
from tracking.base import number_text, sensor_headings
from tracking.base.time_parts import CAUSES, COMPILE_PARTS, GOODPUT_PARTS, INIT_PARTS


@dataclass(frozen=True)
class Quantity:
    """Facts about one metric.

    `unit` follows a value. `better` is LOWER or HIGHER; None if neither is better, or if users declare it. `heading`
    names a column. `scale` is the factor from the metric's unit to the heading's. `digits` is the format of one scaled
    value; a mean is rounded by its standard error.
    """

    key: str
    unit: str = ""
    better: str | None = None
    heading: str = ""
    scale: float = 1.0
    digits: str = ".4g"

    def text(self, value: float) -> str:
        """A scaled value by `digits`."""
        return number_text.formatted(value, self.digits)


CATALOGUE: dict[str, Quantity] = {}


def _key(
    key: str, unit: str = "", better: str | None = None, heading: str = "", digits: str = ".4g", scale: float = 1.0
) -> str:
    CATALOGUE[key] = Quantity(key, unit, better, heading, scale, digits)
    return key


# Prefixes of families. The rest of a key is a name from a user, a model, a machine or a cause.
EVAL, TEST, BEST = "eval/", "test/", "eval/best_"
SYSTEM, BOTTLENECK, UTILIZATION = "system/", "bottleneck/", "utilization/"
CEILINGS, ROOFLINE, TRAFFIC = "ceilings/", "roofline/", "traffic/"
TIME, EPOCHS, EVALUATIONS, THROUGHPUT = "time/", "epochs/", "evaluations/", "throughput/"
GOODPUT = "goodput/"
COST, ENERGY, MEMORY, RESUME, CHECKPOINT = "cost/", "energy/", "memory/", "resume/", "checkpoint/"
# Metrics of scripts, programs and logs may not have these prefixes.
RESERVED = (
    BOTTLENECK, CHECKPOINT, COST, ENERGY, EPOCHS, EVALUATIONS, GOODPUT, MEMORY, RESUME, SYSTEM, TEST, THROUGHPUT, TIME,
)  # fmt: skip
FAMILIES = (*RESERVED, UTILIZATION, CEILINGS, ROOFLINE, TRAFFIC)

EPOCH = _key("epoch")
TRAIN_LOSS = _key("train/loss", "", LOWER, "loss", ".3g")
TARGET_REACHED = _key("target_reached", "", HIGHER)
WORLD_SIZE = _key("world_size", "", None, "world size", ".0f")

TIME_TO_ACCURACY_SEC = _key("time/to_accuracy_sec", "s", LOWER, "time to accuracy (s)", ".2f")
TIME_TO_ACCURACY_TRAIN_SEC = _key("time/to_accuracy_train_sec", "s", LOWER, "without evaluation (s)", ".2f")
TIME_RESUMED_TO_ACCURACY_SEC = _key("time/resumed_to_accuracy_sec", "s", LOWER, digits=".2f")
TIME_RESUMED_TO_ACCURACY_TRAIN_SEC = _key("time/resumed_to_accuracy_train_sec", "s", LOWER, digits=".2f")
TIME_CENSORED_SEC = _key("time/censored_sec", "s")  # A budget: neither longer nor shorter is better.
TIME_INIT_SEC = _key("time/init_sec", "s", LOWER, digits=".2f")
TIME_INDEX_SEC = _key("time/index_sec", "s", LOWER)
TIME_COMPILE_SEC = _key("time/compile_sec", "s", LOWER)
TIME_TRAIN_SEC = _key("time/train_sec", "s", LOWER)
TIME_EVAL_SEC = _key("time/eval_sec", "s", LOWER)
TIME_CHECKPOINT_SEC = _key("time/checkpoint_sec", "s", LOWER)
TIME_EPOCH_SEC = _key("time/epoch_sec", "s", LOWER, "minutes an epoch", scale=1 / 60)
TIME_EVALUATION_INTERVAL_SEC = _key("time/evaluation_interval_sec", "s", LOWER, "s between evaluations", ".2f")

EPOCHS_TO_ACCURACY = _key("epochs/to_accuracy", "epochs", LOWER, "epochs", ".3g")
EPOCHS_TRAINED = _key("epochs/trained", "epochs", LOWER, "epochs trained", ".3g")
EVALUATIONS_TO_ACCURACY = _key("evaluations/to_accuracy", "evaluations", LOWER, "evaluations", ".3g")
EVALUATIONS_CENSORED = _key("evaluations/censored", "evaluations")

RESUME_COUNT = _key("resume/count", "", LOWER)
RESUME_LOST_SEC = _key("resume/lost_sec", "s", LOWER, digits=".2f")
RESUME_DOWN_SEC = _key("resume/down_sec", "s", LOWER, digits=".2f")
CHECKPOINT_NUM_FAILED = _key("checkpoint/num_failed", "", LOWER)

THROUGHPUT_SAMPLES_PER_SEC = _key("throughput/samples_per_sec", "samples/s", HIGHER, "samples/s", ",.0f")
THROUGHPUT_SAMPLES_PER_SEC_PER_DEVICE = _key(
    "throughput/samples_per_sec_per_device", "samples/s a device", HIGHER, "samples/s a device"
)
THROUGHPUT_TOKENS_PER_SEC = _key("throughput/tokens_per_sec", "tokens/s", HIGHER, "tokens/s")
THROUGHPUT_TOKENS_PER_SEC_PER_DEVICE = _key(  # for comparison with published figures
    "throughput/tokens_per_sec_per_device", "tokens/s a device", HIGHER, "tokens/s a device"
)
THROUGHPUT_SOURCE_TOKENS_PER_SEC = _key("throughput/source_tokens_per_sec", "tokens/s", HIGHER, "source tokens/s")
THROUGHPUT_TARGET_TOKENS_PER_SEC = _key("throughput/target_tokens_per_sec", "tokens/s", HIGHER, "target tokens/s")
THROUGHPUT_MODEL_FLOPS_UTILIZATION = _key(
    "throughput/model_flops_utilization", "", HIGHER, "FLOPs utilisation (%)", ".1f", 100.0
)
THROUGHPUT_DATA_WAIT_FRACTION = _key("throughput/data_wait_fraction", "", LOWER)
THROUGHPUT_STEP_MS_P50 = _key("throughput/step_ms_p50", "ms", LOWER)
THROUGHPUT_STEP_MS_P90 = _key("throughput/step_ms_p90", "ms", LOWER)
THROUGHPUT_STEP_MS_P99 = _key("throughput/step_ms_p99", "ms", LOWER)
THROUGHPUT_STEP_MS_AFTER_EVALUATION = _key("throughput/step_ms_after_evaluation", "ms", LOWER)

MEMORY_PEAK_ALLOCATED_BYTES = _key("memory/peak_allocated_bytes", "bytes", LOWER)
ENERGY_JOULES = _key("energy/joules", "J", LOWER)
ENERGY_JOULES_PER_SAMPLE = _key("energy/joules_per_sample", "J a sample", LOWER)
ENERGY_TO_ACCURACY_JOULES = _key("energy/to_accuracy_joules", "J", LOWER)
ENERGY_HOST_JOULES = _key("energy/host_joules", "J", LOWER)
ENERGY_KWH = _key("energy/kwh", "kWh", LOWER, "energy of a run (kWh)")
ENERGY_TO_ACCURACY_KWH = _key("energy/to_accuracy_kwh", "kWh", LOWER, "energy to accuracy (kWh)")
ENERGY_CO2_GRAMS = _key("energy/co2_grams", "g", LOWER, "CO2 of a run (g)")
ENERGY_TO_ACCURACY_CO2_GRAMS = _key("energy/to_accuracy_co2_grams", "g", LOWER, "CO2 to accuracy (g)")
COST_USD = _key("cost/usd", "USD", LOWER, "cost of a run (USD)")
COST_TO_ACCURACY_USD = _key("cost/to_accuracy_usd", "USD", LOWER, "cost to accuracy (USD)", ".4f")
COST_SWEEP_USD = _key("cost/sweep_usd", "USD", LOWER)

# Utilisation has no direction: it explains what limited a run, but does not rank runs.
UTILIZATION_GPU_UTILIZATION_PERCENTAGE = _key(
    "utilization/gpu_utilization_percentage", "%", None, "GPU utilisation (%)"
)
UTILIZATION_GPU_SM_ACTIVITY_PERCENTAGE = _key("utilization/gpu_sm_activity_percentage", "%", None, "SM activity (%)")
UTILIZATION_GPU_TENSOR_ACTIVITY_PERCENTAGE = _key(
    "utilization/gpu_tensor_activity_percentage", "%", None, "tensor cores active (%)"
)
UTILIZATION_GPU_DRAM_BANDWIDTH_PERCENTAGE = _key(
    "utilization/gpu_dram_bandwidth_percentage", "%", None, "DRAM bandwidth (%)"
)
UTILIZATION_GPU_NVLINK_TRANSMIT_MEGABYTES_PER_SEC = _key(
    "utilization/gpu_nvlink_transmit_megabytes_per_sec", "MB/s", None, "NVLink, out of a GPU (MB/s)"
)
UTILIZATION_GPU_PCIE_TRANSMIT_MEGABYTES_PER_SEC = _key(
    "utilization/gpu_pcie_transmit_megabytes_per_sec", "MB/s", None, "PCIe, out of a GPU (MB/s)"
)
UTILIZATION_RUN_CPU_PERCENTAGE = _key("utilization/run_cpu_percentage", "%", None, "CPU cores that the run used (%)")
UTILIZATION_CPU_MEMORY_MEGABYTES_PER_SEC = _key(
    "utilization/cpu_memory_megabytes_per_sec", "MB/s", None, "CPU memory traffic (MB/s)"
)
CEILINGS_SLOWEST_PAIR_MEGABYTES_PER_SEC = _key(
    "ceilings/slowest_pair_megabytes_per_sec", "MB/s", None, "copy between the slowest pair (MB/s)"
)
CEILINGS_FLOPS_UTILIZATION = _key("ceilings/flops_utilization", "", HIGHER, "FLOPs of measured ceiling (%)", ".1f", 100)
ROOFLINE_FLOPS_PER_SEC_PER_DEVICE = _key("roofline/flops_per_sec_per_device", "FLOP/s a device")
ROOFLINE_DRAM_BYTES_PER_SEC_PER_DEVICE = _key("roofline/dram_bytes_per_sec_per_device", "bytes/s a device")
ROOFLINE_FLOPS_PER_BYTE = _key("roofline/flops_per_byte", "FLOPs a byte")
SYSTEM_CPU_UTILIZATION_PERCENTAGE = _key("system/cpu_utilization_percentage", "%", None, sensor_headings.CPU)

# Figures that exist only if a run reached its target.
TO_ACCURACY = (
    TIME_TO_ACCURACY_SEC, TIME_TO_ACCURACY_TRAIN_SEC, EPOCHS_TO_ACCURACY, EVALUATIONS_TO_ACCURACY,
    COST_TO_ACCURACY_USD, ENERGY_TO_ACCURACY_JOULES, ENERGY_TO_ACCURACY_KWH, ENERGY_TO_ACCURACY_CO2_GRAMS,
)  # fmt: skip
# The figures of a report's table of settings, in its order.
OF_A_SETTING = (
    TIME_EPOCH_SEC, EPOCHS_TO_ACCURACY, EPOCHS_TRAINED, EVALUATIONS_TO_ACCURACY, TIME_EVALUATION_INTERVAL_SEC,
    TIME_TO_ACCURACY_SEC, TIME_TO_ACCURACY_TRAIN_SEC, THROUGHPUT_SAMPLES_PER_SEC, THROUGHPUT_MODEL_FLOPS_UTILIZATION,
    CEILINGS_FLOPS_UTILIZATION, COST_TO_ACCURACY_USD, COST_USD,
)  # fmt: skip
# The columns of the hardware table, in its order.
OF_HARDWARE = (
    UTILIZATION_GPU_UTILIZATION_PERCENTAGE, UTILIZATION_GPU_SM_ACTIVITY_PERCENTAGE,
    UTILIZATION_GPU_TENSOR_ACTIVITY_PERCENTAGE, UTILIZATION_GPU_DRAM_BANDWIDTH_PERCENTAGE,
    UTILIZATION_GPU_NVLINK_TRANSMIT_MEGABYTES_PER_SEC, UTILIZATION_GPU_PCIE_TRANSMIT_MEGABYTES_PER_SEC,
    CEILINGS_SLOWEST_PAIR_MEGABYTES_PER_SEC, UTILIZATION_RUN_CPU_PERCENTAGE, UTILIZATION_CPU_MEMORY_MEGABYTES_PER_SEC,
)  # fmt: skip
# Headings of a metric's speed-up, its efficiency, and its speed-up over fp32.
RATIOS = {
    TIME_TO_ACCURACY_SEC: ("speed-up", "efficiency", "speed-up over fp32"),
    THROUGHPUT_SAMPLES_PER_SEC: ("speed-up of the rate", "efficiency of the rate", "speed-up of the rate over fp32"),
}
# Units of keys without a row above, by suffix.
UNITS = {"_megabytes_per_sec": "MB/s", "_megabytes": "MB", "_percentage": "%", "_watts": "W", "_cores": "cores"}
UNITS |= {"_joules": "J"}


def bottleneck(cause: str) -> str:
    """The key of a cause's share of a run's time."""
    return f"{BOTTLENECK}{cause}_fraction"


def goodput(part: str) -> str:
    """The key of a part's share of the time from submission to the end."""
    return f"{GOODPUT}{part}_fraction"


def init_part(part: str) -> str:
    """The key of the seconds that a part of the start took."""
    return f"{TIME}init_{part}_sec"


def compile_part(part: str) -> str:
    """The key of the seconds that a part of compiling and warming up took."""
    return f"{TIME}compile_{part}_sec"


for _start_key in (*map(init_part, INIT_PARTS), *map(compile_part, COMPILE_PARTS)):
    _key(_start_key, "s", LOWER)
for _part, _words in GOODPUT_PARTS.items():
    _key(goodput(_part), "", HIGHER if _part == "train" else LOWER, f"{_words} (% of all)", scale=100.0)
for _cause, _words in CAUSES.items():
    _key(bottleneck(_cause), heading=f"{_words} (%)", scale=100.0)


def quantity(key: str) -> Quantity:
    """The facts of a metric: its row in the catalogue, else those of its family."""
    if key in CATALOGUE:
        return CATALOGUE[key]
    if is_declared(key):
        which = "best " if key.startswith(BEST) else "last " if key.startswith(EVAL) else ""
        return Quantity(key, heading=which and which + metric_name(key))
    unit = next((unit for ending, unit in UNITS.items() if key.endswith(ending)), "")
    heading = sensor_headings.heading(key.removeprefix(SYSTEM)) if key.startswith(SYSTEM) else ""
    return Quantity(key, unit, heading=heading)


def unit(key: str) -> str:
    """The unit of a metric after a space; empty for a metric without a unit, such as accuracy."""
    name = quantity(key).unit
    return f" {name}" if name else ""


def text(key: str, value: float) -> str:
    """One value with its unit: `12.34 s`. Four significant digits if the catalogue's are for a scaled heading."""
    facts = quantity(key)
    return f"{facts.text(value) if facts.scale == 1 else number_text.significant(value, 4)}{unit(key)}"


def metric_name(key: str) -> str:
    """The user's name of a metric: `accuracy` for `eval/best_accuracy`, `eval/accuracy` and `test/accuracy`."""
    return next((key.removeprefix(prefix) for prefix in (BEST, EVAL, TEST) if key.startswith(prefix)), key)


def is_declared(key: str) -> bool:
    """Whether users declare the direction of this metric, rather than the catalogue."""
    return key not in CATALOGUE and (key.startswith(TEST) or not key.startswith(FAMILIES))


def better(key: str, declared: Mapping[str, str] = NO_DIRECTIONS) -> str | None:
    """LOWER or HIGHER; None if neither is better or none is declared. `declared`: directions by users' metric names."""
    return declared.get(metric_name(key)) if is_declared(key) else CATALOGUE[key].better if key in CATALOGUE else None


def why_unknown(key: str) -> str:
    """Why the direction of a metric is not known."""
    if not is_declared(key):
        return f"neither a lower nor a higher {key} is better"
    return f"whether a lower or a higher {metric_name(key)} is better is not declared"


def how_to_declare(key: str) -> str:
    """The ways to declare the direction of a user's metric; empty for timetrial's own."""
    return declaration_advice(metric_name(key)) if is_declared(key) else ""
