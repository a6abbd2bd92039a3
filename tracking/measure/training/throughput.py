"""Rates and step times from measured windows. Pure arithmetic; tracking.measure.training.callback measures.

A window is a sequence of consecutive training steps within one epoch. An evaluation ends a window. The first step of a
run, or of a resumed attempt, is a window of its own.

A section is an epoch, or its part between two evaluations. Its time is the time of the rank that was slowest over the
whole section. Each rank times its windows by its own clock, without gaps, so their sum is the time from the section's
common start until that rank was done. The sum over steps of each step's slowest rank would be too long: a rank that
waits for a delayed one in the exchange of gradients would count the same delay again.
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
# precision, each with its source. Without a row and a value here, a run has no utilisation figure.
PEAKS_CSV = Path(__file__).with_name("peak_flops.csv")
TOKENS_KEY, SIDE_TOKENS_KEYS = "tokens", ("source_tokens", "target_tokens")  # keys of a window of text; of translation
NUM_COLD = 2  # windows that are not steady: the first step, then the steps up to the next edge


@dataclass(frozen=True)
class Window:
    """Consecutive steps: the samples of all ranks, each rank's time, and each step's time on its slowest rank."""

    step: int  # the global step at the window's end
    epoch_num: int  # from 1
    samples: int
    rank_sec: tuple[float, ...]  # each rank's seconds from the window's start to its end, by its own clock
    rank_wait_sec: tuple[float, ...]  # the part of these seconds in which the rank's device waited for the loader
    step_sec: tuple[float, ...]
    wait_sec: tuple[float, ...]
    tokens: tuple[int, ...] = ()  # all ranks' tokens; for translation those of source and of target
    section: int = 0  # the number of earlier sections of this epoch; an evaluation or a resume ends a section
    after_evaluation: bool = False  # whether the window's first step follows an evaluation within the epoch
    parts: Mapping[str, Sequence[float]] = field(default_factory=dict)  # each rank's time by part (rank_parts)

    @property
    def seconds(self) -> float:
        return max(self.rank_sec)

    @property
    def samples_per_sec(self) -> float:
        return self.samples / self.seconds


def read_windows(history: Sequence[Record]) -> list[Window]:
    """The windows in a run's events, without the first `NUM_COLD` of each resumed attempt."""
    windows: list[Window] = []
    num_to_skip = 0
    follows_evaluation = False
    for event in history:
        if event.key == "run_start":
            num_to_skip = NUM_COLD if windows else 0
            follows_evaluation = False
        elif event.key == "eval_stop":
            follows_evaluation = True
        elif event.key == "throughput_window":
            if num_to_skip:
                num_to_skip -= 1
            else:
                windows.append(_parse_window(event.values, follows_evaluation))
            follows_evaluation = False
    return windows


def _parse_window(values: Mapping[str, Any], follows_evaluation: bool) -> Window:
    """The window of an event. `follows_evaluation` replaces a key that windows of earlier versions lack."""
    keys = ("rank_ms", "rank_wait_ms", "step_ms", "wait_ms")
    if missing := [key for key in keys if key not in values]:
        raise ConfigError(
            f"resume: the run's journal has windows without {', '.join(missing)}, from an earlier version of timetrial."
            " Next: resume the run with that version, or start it anew"
        )
    rank, wait, step, step_wait = (tuple(1e-3 * value for value in values[key]) for key in keys)
    tokens = tuple(values[key] for key in (TOKENS_KEY, *SIDE_TOKENS_KEYS) if key in values)
    counts = values["step"], values["epoch_num"], values["samples"]
    section = values.get("section", 0)
    after_evaluation = values.get("after_evaluation", follows_evaluation and section > 0)
    return Window(*counts, rank, wait, step, step_wait, tokens, section, after_evaluation)


def program_windows(events: Sequence[Record]) -> list[Window]:
    """The windows of a program, which reports samples and times, but no steps."""
    windows = []
    for values in (event.values for event in events if event.key == "throughput_window"):
        counts = values["step"], values["epoch_num"], values["samples"]
        tokens = (values[TOKENS_KEY],) if TOKENS_KEY in values else ()
        windows.append(Window(*counts, tuple(1e-3 * ms for ms in values["rank_ms"]), (), (), (), tokens))
    return windows


def event_values(window: Window) -> dict[str, Any]:
    """The values of a window's event, for `read_windows`; times in ms, rounded to a tenth of a microsecond."""
    times = {
        "rank_ms": window.rank_sec,
        "rank_wait_ms": window.rank_wait_sec,
        "step_ms": window.step_sec,
        "wait_ms": window.wait_sec,
    }
    event: dict[str, Any] = {"step": window.step, "epoch_num": window.epoch_num, "samples": window.samples}
    event |= dict(zip(SIDE_TOKENS_KEYS if len(window.tokens) > 1 else (TOKENS_KEY,), window.tokens, strict=False))
    if window.section or window.after_evaluation:
        event |= {"section": window.section, "after_evaluation": window.after_evaluation}
    event |= {key: [round(1e3 * value, 4) for value in values] for key, values in times.items()}
    return event | {key: list(values) for key, values in window.parts.items()}


def slowest(ranks: Sequence[Sequence[float]]) -> tuple[float, ...]:
    """The elementwise maximum over ranks. `ranks` has a row per rank, each with a value per step.

    Raises ValueError if ranks report different numbers of steps, or a time below zero.
    """
    steps = tuple(max(column) for column in zip(*ranks, strict=True))
    if any(value < 0 for value in steps):
        raise ValueError(f"a step took {min(steps)} s: the clock went back")
    return steps


def steady(windows: Sequence[Window]) -> list[Window]:
    """The windows after the first `NUM_COLD`. In the first ones, data is first read and caches fill.

    If there are no others, all windows after the first step, which is a window of its own.
    """
    return list(windows[NUM_COLD:] or windows[1:])


def total_sec(windows: Sequence[Window]) -> float:
    """Seconds of the windows: the sum over sections, each with the seconds of its slowest rank."""
    sections = groupby(windows, key=lambda window: (window.epoch_num, window.section))
    return math.fsum(max(_rank_totals([window.rank_sec for window in section])) for _, section in sections)


def wait_fraction(windows: Sequence[Window]) -> float:
    """The share of its time that a rank waited for data; the largest of all ranks."""
    waits = _rank_totals([window.rank_wait_sec for window in windows])
    seconds = _rank_totals([window.rank_sec for window in windows])
    return max(wait / elapsed for wait, elapsed in zip(waits, seconds, strict=True))


def _rank_totals(rows: Sequence[Sequence[float]]) -> list[float]:
    """Each rank's sum over windows. `rows` has a row per window, each with a value per rank."""
    return [math.fsum(values) for values in zip(*rows, strict=True)]


def summarize(windows: Sequence[Window], world_size: int | None) -> dict[str, float]:
    """The `throughput/*` metrics over the steady windows; {} without any.

    The percentiles are over steps, each with its slowest rank's time. With several ranks, the sum of these times
    exceeds the elapsed time.
    """
    steady_windows = steady(windows)
    if not steady_windows:
        return {}
    rate = sum(window.samples for window in steady_windows) / total_sec(steady_windows)
    figures = {quantities.THROUGHPUT_SAMPLES_PER_SEC: rate}
    if world_size is not None:
        figures[quantities.THROUGHPUT_SAMPLES_PER_SEC_PER_DEVICE] = rate / world_size
    figures |= token_rates(steady_windows)
    if milliseconds := [1e3 * value for window in steady_windows for value in window.step_sec]:
        figures |= {
            quantities.THROUGHPUT_STEP_MS_P50: percentile(milliseconds, 50),
            quantities.THROUGHPUT_STEP_MS_P90: percentile(milliseconds, 90),
            quantities.THROUGHPUT_STEP_MS_P99: percentile(milliseconds, 99),
        }
    figures |= step_after_evaluation(windows)
    if all(window.rank_wait_sec for window in steady_windows):
        figures[quantities.THROUGHPUT_DATA_WAIT_FRACTION] = wait_fraction(steady_windows)
    return figures


def step_after_evaluation(windows: Sequence[Window]) -> dict[str, float]:
    """The median time of first steps after evaluations within epochs; {} without any.

    It shows what an evaluation costs beyond its own time: emptied caches, and batches that were not prepared.
    """
    steps = [1e3 * window.step_sec[0] for window in windows if window.after_evaluation and window.step_sec]
    return {quantities.THROUGHPUT_STEP_MS_AFTER_EVALUATION: statistics.median(steps)} if steps else {}


def token_rates(windows: Sequence[Window]) -> dict[str, float]:
    """Tokens a second, without padding; {} if samples have no tokens. Translation also has a rate for each side."""
    if not windows or not all(window.tokens for window in windows):
        return {}
    seconds = total_sec(windows)
    rates = [sum(side) / seconds for side in zip(*(window.tokens for window in windows), strict=True)]
    figures = {quantities.THROUGHPUT_TOKENS_PER_SEC: sum(rates)}
    if len(rates) == len(SIDE_TOKENS_KEYS):
        sides = (quantities.THROUGHPUT_SOURCE_TOKENS_PER_SEC, quantities.THROUGHPUT_TARGET_TOKENS_PER_SEC)
        figures |= dict(zip(sides, rates, strict=True))
    return figures


def rate_quartiles(windows: Sequence[Window]) -> dict[str, float]:
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
    """Percentile with linear interpolation between the two nearest values (numpy's default)."""
    if len(values) == 1:
        return values[0]
    return statistics.quantiles(values, n=100, method="inclusive")[percent - 1]


@cache
def peak_flops() -> dict[str, dict[str, float]]:
    """The peak in FLOP/s by device and precision."""
    with PEAKS_CSV.open(encoding="utf-8", newline="") as file:
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
