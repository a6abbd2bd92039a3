"""Rates and step times from measured windows. Pure arithmetic; tracking.measure.callback does the measuring.

A window is a run of consecutive training steps inside one epoch. Evaluation lies between windows. Over ranks the
slowest counts: a step is over when its last rank is done.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tracking.run import Record

# Dense peak of the matrix units in FLOP/s by NVML's device name and precision: NVIDIA's datasheets of each product
# (without sparsity). A device that is not here has no utilisation figure, rather than another device's.
PEAK_FLOPS: dict[str, dict[str, float]] = {
    "NVIDIA H200": {"fp32": 67e12, "tf32": 494.7e12, "bf16": 989.4e12, "fp16": 989.4e12},
    "NVIDIA H100 80GB HBM3": {"fp32": 67e12, "tf32": 494.7e12, "bf16": 989.4e12, "fp16": 989.4e12},
    "NVIDIA H100 PCIe": {"fp32": 51.2e12, "tf32": 378e12, "bf16": 756e12, "fp16": 756e12},
    "NVIDIA A100-SXM4-40GB": {"fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12, "fp16": 312e12},
    "NVIDIA A100-SXM4-80GB": {"fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12, "fp16": 312e12},
    "NVIDIA A100 80GB PCIe": {"fp32": 19.5e12, "tf32": 156e12, "bf16": 312e12, "fp16": 312e12},
    "NVIDIA L4": {"fp32": 30.3e12, "tf32": 60.5e12, "bf16": 121e12, "fp16": 121e12},
    "Tesla V100-SXM2-16GB": {"fp32": 15.7e12, "fp16": 125e12},
    "Tesla V100-SXM2-32GB": {"fp32": 15.7e12, "fp16": 125e12},
    "Tesla T4": {"fp32": 8.1e12, "fp16": 65e12},
}


@dataclass(frozen=True)
class Window:
    """A measured run of steps; `samples` over all ranks, `step_sec` and `wait_sec` of the slowest rank a step."""

    step: int  # global step at its end
    samples: int
    step_sec: tuple[float, ...]
    wait_sec: tuple[float, ...]  # the part of each step in which the device waited for the loader

    @property
    def seconds(self) -> float:
        return sum(self.step_sec)

    @property
    def samples_per_sec(self) -> float:
        return self.samples / self.seconds


def recorded(history: Sequence[Record]) -> list[Window]:
    """The windows in the events of a run; of an attempt that continues another, all but the first."""
    windows: list[Window] = []
    cold = False
    for event in history:
        if event.key == "run_start":
            cold = bool(windows)
        elif event.key == "throughput_window":
            values = event.values
            steps, waits = (tuple(1e-3 * value for value in values[key]) for key in ("step_ms", "wait_ms"))
            if not cold:
                windows.append(Window(values["step"], values["samples"], steps, waits))
            cold = False
    return windows


def slowest(ranks: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """Elementwise maximum over ranks: `ranks` has one row a rank, each with one value a step.

    Raises ValueError where ranks report different numbers of steps, or a time below zero.
    """
    steps = tuple(max(column) for column in zip(*ranks, strict=True))
    if any(value < 0 for value in steps):
        raise ValueError(f"a step took {min(steps)} s: the clock went back")
    return steps


def steady(windows: Sequence[Window]) -> list[Window]:
    """The windows that count: all but the first, in which data is read and caches fill.

    Of a single window, its steps but the first, if there are more.
    """
    if len(windows) != 1:
        return list(windows[1:])
    (only,) = windows
    steps = len(only.step_sec)
    if steps < 2:
        return []
    return [Window(only.step, only.samples * (steps - 1) // steps, only.step_sec[1:], only.wait_sec[1:])]


def summarize(windows: Sequence[Window], world_size: int) -> dict[str, float]:
    """The `throughput/*` metrics over the steady windows; empty where there are none."""
    counted = steady(windows)
    if not counted:
        return {}
    seconds = sum(window.seconds for window in counted)
    rate = sum(window.samples for window in counted) / seconds
    milliseconds = [1e3 * value for window in counted for value in window.step_sec]
    return {
        "throughput/samples_per_sec": rate,
        "throughput/samples_per_sec_per_device": rate / world_size,
        "throughput/step_ms_p50": percentile(milliseconds, 50),
        "throughput/step_ms_p90": percentile(milliseconds, 90),
        "throughput/step_ms_p99": percentile(milliseconds, 99),
        "throughput/data_wait_fraction": sum(sum(window.wait_sec) for window in counted) / seconds,
    }


def spread(windows: Sequence[Window]) -> dict[str, float]:
    """Number, median and quartiles of the steady windows' rates, in samples/s."""
    rates = [window.samples_per_sec for window in steady(windows)]
    if not rates:
        return {"num_windows": 0}
    return {
        "num_windows": len(rates),
        "samples_per_sec_p25": percentile(rates, 25),
        "samples_per_sec_median": percentile(rates, 50),
        "samples_per_sec_p75": percentile(rates, 75),
    }


def percentile(values: Sequence[float], percent: int) -> float:
    """Percentile with linear interpolation between the two nearest ranks (numpy's default)."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


def model_flops_utilization(
    flops_per_sample: float, samples_per_sec: float, gpu: str, num_gpus: int, precision: str
) -> float | None:
    """Model FLOPs a second over the devices' peak (Chowdhery et al. 2022, arXiv:2204.02311, appendix B).

    None for a device or precision whose peak is not known.
    """
    peak = PEAK_FLOPS.get(gpu, {}).get(precision)
    return None if peak is None else flops_per_sample * samples_per_sec / (peak * num_gpus)
