"""A run's time divided by cause: what it waited for, or what kept it busy. Pure arithmetic; the shares add up to 1.

Timed parts come first: evaluations, checkpoints, waiting for data, the exchange of gradients, garbage collection, and
the extra time of the slowest rank. The GPU's counters divide the rest of the training, in this order, while time
remains:

    host     the GPU had no work: 1 - engine activity, less the waits above, in which it had none either
    dram     the time that the traffic of the GPU's memory takes at the rate of a copy
    tensor   the time that the tensor cores' work takes at the rate of a matrix product
    fp32     for runs in fp32, the same for the fp32 cores; a user's script counts as fp32 if no tensor core works
    power    clock cycles lost while power or heat kept the clock down
    kernels  kernels ran, but not on all multiprocessors: engine activity - SM activity
    latency  multiprocessors had work, beyond the time of dram, tensor and fp32: SM activity less these
    unknown  the rest

The largest of `dram`, `tensor` and `fp32` goes first, since they overlap. In other precisions, the fp32 cores work
beside the memory or the tensor cores, so their share means nothing. On CPUs, `update` is the update of the weights,
whose time does not depend on the batch size; `processor` is the run's share of the cores, `neighbours` the co-tenants'.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tracking.base import time_parts

MIN_NAMED_SHARE = 0.05  # causes with a smaller share are not named
NAMES = time_parts.CAUSES
TIMED_PARTS = ("data", "exchange", "gc", "imbalance")  # within the training, in order of deduction
OWN = "own"  # the param `precision` of a script that does not state it
IDLE_PERCENT = 1.0  # cores that work in a smaller share of the cycles count as idle
COUNTERS = {
    "dram": "gpu_dram_bandwidth_percentage",
    "tensor": "gpu_tensor_activity_percentage",
    "fp32": "gpu_fp32_activity_percentage",
}


@dataclass(frozen=True)
class Clock:
    """Seconds of the timed window and of its parts; None if not measured."""

    total: float
    evaluation: float
    checkpoint: float
    training: float  # epochs without their evaluations and checkpoints
    data: float | None
    exchange: float | None
    gc: float | None = None
    imbalance: float | None = None  # the others' wait for the slow rank, without its extra data and gc
    update: float | None = None
    phases: Mapping[str, float] = field(default_factory=dict)  # seconds by cause: self-play, the gate


def precision_of(precision: str, means: Mapping[str, float]) -> str:
    """The precision to compare with: fp32 for a script that does not state its own and leaves the tensor cores idle.

    Otherwise `precision`, the param of that name, which is `own` for a script that does not state it.
    """
    tensor, fp32 = (means.get(COUNTERS[name]) for name in ("tensor", "fp32"))
    in_fp32 = tensor is not None and fp32 is not None and tensor < IDLE_PERCENT <= fp32
    return "fp32" if precision == OWN and in_fp32 else precision


def divide(
    clock: Clock, means: Mapping[str, float], ceilings: Mapping[str, float], on_gpu: bool = False
) -> dict[str, float]:
    """The share of each measured cause, and `unknown`.

    `means` come from `activity.means` within the training. `ceilings` hold the percentage that each counter reaches in
    a copy or a matrix product; counters without one are not used. `on_gpu`: the CPU's figures are not used, even
    without samples of the GPU. Both work at the same time, so busy cores need not be the limit.
    """
    if on_gpu:
        clock = replace(clock, update=None)
        means = {key: value for key, value in means.items() if key.startswith("gpu_")}
    shares = {"evaluation": clock.evaluation / clock.total, "checkpoint": clock.checkpoint / clock.total}
    remaining = training = clock.training / clock.total
    for name in TIMED_PARTS:
        seconds = getattr(clock, name)
        if seconds is not None:
            shares[name] = min(remaining, seconds / clock.total)
            remaining -= shares[name]
    wait_share = shares.get("data", 0.0) + shares.get("gc", 0.0)
    for name, share in _counter_shares(clock, means, training, wait_share, ceilings):
        shares[name] = min(remaining, share)
        remaining -= shares[name]
    shares = {name: min(1.0, max(0.0, share)) for name, share in shares.items()}
    return shares | {"unknown": max(0.0, 1.0 - sum(shares.values()))}


def _counter_shares(
    clock: Clock, means: Mapping[str, float], training: float, wait_share: float, ceilings: Mapping[str, float]
) -> list[tuple[str, float]]:
    """The shares by the counters, in order of deduction."""
    parts: list[tuple[str, float]] = []
    busy = means.get("gpu_engine_activity_percentage", 100.0) / 100.0
    if "gpu_engine_activity_percentage" in means:
        parts.append(("host", max(0.0, training * (1.0 - busy) - wait_share)))
    phases = {name: seconds / clock.total for name, seconds in clock.phases.items()}
    parts += [(name, share * busy) for name, share in phases.items()]
    # The counters are means over the whole training, phases included.
    training = max(0.0, training - sum(phases.values()))
    counters = [(name, COUNTERS[name], ceiling) for name, ceiling in ceilings.items() if COUNTERS[name] in means]
    work = [(name, training * means[counter] / ceiling) for name, counter, ceiling in counters]
    parts += sorted(work, key=lambda part: -part[1])
    if "gpu_sm_clock_percentage" in means:
        throttled = max(means.get(f"gpu_{cause}_throttled_percentage", 0.0) for cause in ("power", "thermal"))
        parts.append(("power", training * throttled / 100.0 * (1.0 - means["gpu_sm_clock_percentage"] / 100.0)))
    if "gpu_engine_activity_percentage" in means and "gpu_sm_activity_percentage" in means:
        unfilled_percent = means["gpu_engine_activity_percentage"] - means["gpu_sm_activity_percentage"]
        parts.append(("kernels", training * max(0.0, unfilled_percent) / 100.0))
    if "gpu_sm_activity_percentage" in means and work:
        occupied = training * means["gpu_sm_activity_percentage"] / 100.0
        parts.append(("latency", max(0.0, occupied - sum(share for _, share in work))))
    if not any(key.startswith("gpu_") for key in means):
        parts += _cpu_shares(clock, means, training)
    return parts


def _cpu_shares(clock: Clock, means: Mapping[str, float], training: float) -> list[tuple[str, float]]:
    """The shares of a run on CPUs. An update of the weights also keeps the cores busy, so it is deducted from them."""
    update = (clock.update or 0.0) / clock.total
    parts = [] if clock.update is None else [("update", update)]
    if "run_cpu_percentage" in means:
        busy = training * means["run_cpu_percentage"] / 100.0
        parts.append(("processor", max(0.0, busy - update * means["run_cpu_percentage"] / 100.0)))
    if "neighbours_cpu_percentage" in means:
        parts.append(("neighbours", training * means["neighbours_cpu_percentage"] / 100.0))
    return parts


def limit(shares: Mapping[str, float]) -> str:
    """The known cause with the largest share, or `unknown` if all are below MIN_NAMED_SHARE. Ties: the first of NAMES.

    Shares are rounded first, since means of the same figures may differ in their last bits.
    """
    known = {name: round(shares[name], 6) for name in NAMES if name in shares and name != "unknown"}
    cause = max(known, key=lambda name: known[name], default="unknown")
    return cause if known.get(cause, 0.0) >= MIN_NAMED_SHARE else "unknown"


def words(shares: Mapping[str, float]) -> str:
    """`traffic of the GPU's memory (61 % of the time), then tensor cores (18 %), not known (12 %)`.

    The shares in words. The unknown share comes last at any size, since it cannot be acted on.
    """
    ordered = [name for name in NAMES if name in shares]
    largest_first = sorted(ordered, key=lambda name: (name == "unknown", -round(shares[name], 6)))
    named = [name for name in largest_first if shares[name] >= MIN_NAMED_SHARE] or ["unknown"]
    lead, *rest = [f"{NAMES[name]} ({100 * shares.get(name, 0.0):.0f} %" for name in named]
    return f"{lead} of the time)" + (f", then {', '.join(f'{words})' for words in rest)}" if rest else "")
