"""Rates and step times from measured windows. Pure arithmetic; tracking.measure.training.callback does the measuring.

A window is a run of consecutive training steps inside one epoch. Evaluation lies between windows: it cuts one that it
comes upon. The first step of a run, or of an attempt that continues it, is a window of its own.

Over ranks the slowest counts, over a stretch as a whole: an epoch, or its part between two evaluations. Each rank has
timed its windows by its own clock, and they lie end to end, so their sum is the time from the stretch's common start
until that rank was done. Adding up the slowest rank of every single step would count a delay twice that wanders from
rank to rank, since the others wait for it in the exchange of gradients.
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

# The dense peak of the matrix units (of P100s, of the cores) in TFLOP/s, without sparsity, by NVML's name of a device
# and the precision, each with its source. A device or precision that is not there has no utilisation figure.
PEAKS = Path(__file__).with_name("peak_flops.csv")
TOKENS, ONE_KIND = ("source_tokens", "target_tokens"), "tokens"  # keys of a window of text
NUM_COLD = 2  # The first window is one step, the second what follows it up to the next edge.


@dataclass(frozen=True)
class Window:
    """A run of steps: the samples of all ranks, each rank's time, and each step's time on its slowest rank."""

    step: int  # It is the global step at the window's end.
    epoch_num: int  # It is counted from 1.
    samples: int
    rank_sec: tuple[float, ...]  # Each rank's is from the window's start to its end by its own clock.
    rank_wait_sec: tuple[float, ...]  # In this part of it the rank's device waited for the loader.
    step_sec: tuple[float, ...]
    wait_sec: tuple[float, ...]
    tokens: tuple[int, ...] = ()  # all ranks' tokens, of source and target where samples are sentences
    section: int = 0  # how many stretches of this epoch came before its own: an evaluation or a resume ends one
    after_evaluation: bool = False  # whether its first step follows an evaluation within the epoch
    parts: Mapping[str, Sequence[float]] = field(default_factory=dict)  # what each rank's time went to (rank_parts)

    @property
    def seconds(self) -> float:
        return max(self.rank_sec)

    @property
    def samples_per_sec(self) -> float:
        return self.samples / self.seconds


def recorded(history: Sequence[Record]) -> list[Window]:
    """The windows in the events of a run; of an attempt that continues another, all but the first `NUM_COLD`."""
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
    """`evaluated`: whether an evaluation's events stand before it. Windows of earlier versions do not say it."""
    keys = ("rank_ms", "rank_wait_ms", "step_ms", "wait_ms")
    if missing := [key for key in keys if key not in values]:
        raise ConfigError(
            f"resume: the run's journal has windows without {', '.join(missing)}: an earlier version of timetrial wrote"
            " them. Resume it with that version, or start the run anew"
        )
    rank, wait, step, step_wait = (tuple(1e-3 * value for value in values[key]) for key in keys)
    tokens = tuple(values[key] for key in (ONE_KIND, *TOKENS) if key in values)
    of_all = values["step"], values["epoch_num"], values["samples"]
    section = values.get("section", 0)
    after_evaluation = values.get("after_evaluation", evaluated and section > 0)
    return Window(*of_all, rank, wait, step, step_wait, tokens, section, after_evaluation)


def coarse(events: Sequence[Record]) -> list[Window]:
    """The windows of a program, which says how many samples it trained in what time, and nothing of its steps."""
    values = [event.values for event in events if event.key == "throughput_window"]
    windows = []
    for row in values:
        of_all, rank = (row["step"], row["epoch_num"], row["samples"]), tuple(1e-3 * ms for ms in row["rank_ms"])
        windows.append(Window(*of_all, rank, (), (), (), (row["tokens"],) if "tokens" in row else ()))
    return windows


def written(window: Window) -> dict[str, Any]:
    """The metadata of a window's event, times in milliseconds to a tenth of a microsecond; `recorded` reads it."""
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
    """Elementwise maximum over ranks: `ranks` has one row a rank, each with one value a step.

    Raises ValueError where ranks report different numbers of steps, or a time below zero.
    """
    steps = tuple(max(column) for column in zip(*ranks, strict=True))
    if any(value < 0 for value in steps):
        raise ValueError(f"a step took {min(steps)} s: the clock went back")
    return steps


def steady(windows: Sequence[Window]) -> list[Window]:
    """The windows that count: those behind the first `NUM_COLD`, in which data is read and caches fill.

    Where there are no more than those, all but the first step, which is a window of its own.
    """
    return list(windows[NUM_COLD:] or windows[1:])


def total_sec(windows: Sequence[Window]) -> float:
    """Seconds of the windows: of each stretch's, those of the rank that took longest for all of them together."""
    stretches = groupby(windows, key=lambda window: (window.epoch_num, window.section))
    return math.fsum(max(_rank_totals([window.rank_sec for window in stretch])) for _, stretch in stretches)


def wait_fraction(windows: Sequence[Window]) -> float:
    """The share of its own time that a rank waited for data; of the rank that waited most."""
    waited = _rank_totals([window.rank_wait_sec for window in windows])
    seconds = _rank_totals([window.rank_sec for window in windows])
    return max(wait / own for wait, own in zip(waited, seconds, strict=True))


def _rank_totals(rows: Sequence[Sequence[float]]) -> list[float]:
    """Each rank's sum over windows; `rows` has one row a window, each with one value a rank."""
    return [math.fsum(values) for values in zip(*rows, strict=True)]


def summarize(windows: Sequence[Window], world_size: int | None) -> dict[str, float]:
    """The `throughput/*` metrics over the steady windows; empty where there are none.

    The percentiles are of steps, each as long as its slowest rank took for it: with several ranks their sum is longer
    than the time that passed.
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
    """How long the first step behind an evaluation within an epoch took, the median of all; empty without any.

    What an evaluation costs beyond its own time is there: caches that it emptied, batches that were not prepared.
    """
    steps = [1e3 * window.step_sec[0] for window in windows if window.after_evaluation and window.step_sec]
    return {quantities.THROUGHPUT_STEP_MS_AFTER_EVALUATION: statistics.median(steps)} if steps else {}


def token_rates(windows: Sequence[Window]) -> dict[str, float]:
    """Tokens a second, and where they are told apart those of source and target; empty where samples have none.

    Padding is not counted.
    """
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
    """By device and precision, in FLOP/s."""
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
