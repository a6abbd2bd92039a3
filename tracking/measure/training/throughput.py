"""Rates and step times from measured windows. Pure arithmetic; tracking.measure.training.callback measures.

A window is a sequence of consecutive training steps within one epoch. An evaluation ends a window. The first step of a
run, or of a resumed attempt, is a window of its own.

The time of a stretch, an epoch or its part between two evaluations, is that of the slowest rank over the whole stretch.
Each rank times its windows by its own clock, end to end, so their sum is the time from the stretch's common start until
that rank was done. Summing the slowest rank of each single step would count a delay twice that moves from rank to rank,
since the others wait for it in the exchange of gradients.
"""

from __future__ import annotations

import csv
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from conf.schema import ConfigError
from tracking.base import quantities
from tracking.record import Record

# The dense peak of the matrix units (of the cores on P100s) in TFLOP/s, without sparsity, by NVML's device name and
# precision, each with its source. Devices and precisions that are not listed have no utilisation figure.
PEAKS = Path(__file__).with_name("peak_flops.csv")
TOKENS, ONE_KIND = ("source_tokens", "target_tokens"), "tokens"  # keys of a window of text
NUM_COLD = 2  # the first window is one step, the second the steps up to the next edge


@dataclass(frozen=True)
class Window:
    """Consecutive steps: the samples of all ranks, each rank's time, and each step's time on its slowest rank."""

    step: int  # the global step at the window's end
    epoch_num: int  # from 1
    samples: int
    rank_sec: tuple[float, ...]  # each rank's seconds from the window's start to its end, by its own clock
    rank_wait_sec: tuple[float, ...]  # the part of them in which the rank's device waited for the loader
    step_sec: tuple[float, ...]
    wait_sec: tuple[float, ...]
    tokens: tuple[int, ...] = ()  # all ranks' tokens; of source and target for translation
    section: int = 0  # the number of earlier stretches of this epoch; an evaluation or a resume ends a stretch
    after_evaluation: bool = False  # whether its first step follows an evaluation within the epoch
    parts: Mapping[str, Sequence[float]] = field(default_factory=dict)  # each rank's time by part (rank_parts)

    @property
    def seconds(self) -> float:
        return max(self.rank_sec)

    @property
    def samples_per_sec(self) -> float:
        return self.samples / self.seconds


def recorded(history: Sequence[Record]) -> list[Window]:
    """The windows in a run's events, without the first `NUM_COLD` of each resumed attempt."""
    windows: list[Window] = []
    num_cold = 0
    evaluated = False
    for event in history:
        if event.key == "run_start":
            num_cold = NUM_COLD if windows else 0
            evaluated = False
        elif event.key == "eval_stop":
            evaluated = True
        elif event.key == "throughput_window":
            if num_cold:
                num_cold -= 1
            else:
                windows.append(_read(event.values, evaluated))
            evaluated = False
    return windows


def _read(values: Mapping[str, Any], evaluated: bool) -> Window:
    """The window of an event. `evaluated`: an evaluation precedes it; windows of earlier versions do not say so."""
    keys = ("rank_ms", "rank_wait_ms", "step_ms", "wait_ms")
    if missing := [key for key in keys if key not in values]:
        raise ConfigError(
            f"resume: the run's journal has windows without {', '.join(missing)}, from an earlier version of timetrial."
            " Next: resume the run with that version, or start it anew"
        )
    rank, wait, step, step_wait = (tuple(1e-3 * value for value in values[key]) for key in keys)
    tokens = tuple(values[key] for key in (ONE_KIND, *TOKENS) if key in values)
    counts = values["step"], values["epoch_num"], values["samples"]
    section = values.get("section", 0)
    after_evaluation = values.get("after_evaluation", evaluated and section > 0)
    return Window(*counts, rank, wait, step, step_wait, tokens, section, after_evaluation)


def coarse(events: Sequence[Record]) -> list[Window]:
    """The windows of a program, which reports samples and times, but no steps."""
    values = [event.values for event in events if event.key == "throughput_window"]
    windows = []
    for row in values:
        counts, rank = (row["step"], row["epoch_num"], row["samples"]), tuple(1e-3 * ms for ms in row["rank_ms"])
        windows.append(Window(*counts, rank, (), (), (), (row["tokens"],) if "tokens" in row else ()))
    return windows


def written(window: Window) -> dict[str, Any]:
    """The metadata of a window's event, which `recorded` reads; times in ms, rounded to a tenth of a microsecond."""
    times = {
        "rank_ms": window.rank_sec,
        "rank_wait_ms": window.rank_wait_sec,
        "step_ms": window.step_sec,
        "wait_ms": window.wait_sec,
    }
    numbers: dict[str, Any] = {"step": window.step, "epoch_num": window.epoch_num, "samples": window.samples}
    numbers |= dict(zip(TOKENS if len(window.tokens) > 1 else (ONE_KIND,), window.tokens, strict=False))
    if window.section or window.after_evaluation:
        numbers |= {"section": window.section, "after_evaluation": window.after_evaluation}
    numbers |= {key: [round(1e3 * value, 4) for value in values] for key, values in times.items()}
    return numbers | {key: list(values) for key, values in window.parts.items()}


def slowest(ranks: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The elementwise maximum over ranks. `ranks` has a row per rank, each with a value per step.

    Raises ValueError if ranks report different numbers of steps, or a time below zero.
    """
    steps = tuple(max(column) for column in zip(*ranks, strict=True))
    if any(value < 0 for value in steps):
        raise ValueError(f"a step took {min(steps)} s: the clock went back")
    return steps


def steady(windows: Sequence[Window]) -> list[Window]:
    """The windows that count: all after the first `NUM_COLD`, in which data is first read and caches fill.

    If there are no more windows than that, all after the first step, which is a window of its own.
    """
    return list(windows[NUM_COLD:] or windows[1:])


def total_sec(windows: Sequence[Window]) -> float:
    """Seconds of the windows: for each stretch, those of the rank that took longest over all its windows."""
    stretches = groupby(windows, key=lambda window: (window.epoch_num, window.section))
    return math.fsum(max(_rank_totals([window.rank_sec for window in stretch])) for _, stretch in stretches)


def wait_fraction(windows: Sequence[Window]) -> float:
    """The largest share of a rank's time that it waited for data."""
    waited = _rank_totals([window.rank_wait_sec for window in windows])
    seconds = _rank_totals([window.rank_sec for window in windows])
    return max(wait / own for wait, own in zip(waited, seconds, strict=True))


def _rank_totals(rows: Sequence[Sequence[float]]) -> list[float]:
    """Each rank's sum over windows. `rows` has a row per window, each with a value per rank."""
    return [math.fsum(values) for values in zip(*rows, strict=True)]


def summarize(windows: Sequence[Window], world_size: int | None) -> dict[str, float]:
    """The `throughput/*` metrics over the steady windows; {} without any.

    The percentiles are over steps, each with its slowest rank's time. With several ranks, the sum of these times
    exceeds the elapsed time.
    """
    counted = steady(windows)
    if not counted:
        return {}
    rate = sum(window.samples for window in counted) / total_sec(counted)
    figures = {quantities.THROUGHPUT_SAMPLES_PER_SEC: rate}
    if world_size is not None:
        figures[quantities.THROUGHPUT_SAMPLES_PER_SEC_PER_DEVICE] = rate / world_size
    figures |= token_rates(counted)
    if milliseconds := [1e3 * value for window in counted for value in window.step_sec]:
        figures |= {
            quantities.THROUGHPUT_STEP_MS_P50: percentile(milliseconds, 50),
            quantities.THROUGHPUT_STEP_MS_P90: percentile(milliseconds, 90),
            quantities.THROUGHPUT_STEP_MS_P99: percentile(milliseconds, 99),
        }
    figures |= after_evaluations(windows)
    if all(window.rank_wait_sec for window in counted):
        figures[quantities.THROUGHPUT_DATA_WAIT_FRACTION] = wait_fraction(counted)
    return figures


def after_evaluations(windows: Sequence[Window]) -> dict[str, float]:
    """The median time of first steps after evaluations within epochs; {} without any.

    It shows what an evaluation costs beyond its own time: emptied caches, and batches that were not prepared.
    """
    steps = [1e3 * window.step_sec[0] for window in windows if window.after_evaluation and window.step_sec]
    return {quantities.THROUGHPUT_STEP_MS_AFTER_EVALUATION: statistics.median(steps)} if steps else {}


def token_rates(windows: Sequence[Window]) -> dict[str, float]:
    """Tokens a second without padding, for translation also of source and target; {} if samples have no tokens."""
    if not windows or not all(window.tokens for window in windows):
        return {}
    seconds = total_sec(windows)
    rates = [sum(side) / seconds for side in zip(*(window.tokens for window in windows), strict=True)]
    figures = {quantities.THROUGHPUT_TOKENS_PER_SEC: sum(rates)}
    if len(rates) == len(TOKENS):
        sides = (quantities.THROUGHPUT_SOURCE_TOKENS_PER_SEC, quantities.THROUGHPUT_TARGET_TOKENS_PER_SEC)
        figures |= dict(zip(sides, rates, strict=True))
    return figures


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


@cache
def peak_flops() -> dict[str, dict[str, float]]:
    """The peak in FLOP/s by device and precision."""
    with PEAKS.open(encoding="utf-8", newline="") as file:
        rows = {row.pop("gpu"): row for row in csv.DictReader(file)}
    return {
        gpu: {key: 1e12 * float(value) for key, value in row.items() if key != "source" and value}
        for gpu, row in rows.items()
    }


def model_flops_utilization(
    flops_per_sample: float, samples_per_sec: float, gpu: str, num_gpus: int, precision: str
) -> float | None:
    """Model FLOPs a second over the devices' peak (Chowdhery et al. 2022, arXiv:2204.02311, appendix B).

    None for a device or precision whose peak is not known.
    """
    peak = peak_flops().get(gpu, {}).get(precision)
    return None if peak is None else flops_per_sample * samples_per_sec / (peak * num_gpus)
