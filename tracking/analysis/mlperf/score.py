"""MLPerf's score of several runs of a benchmark: the olympic mean of the number of runs that its rules require.

measure.programs.mlperf_benchmarks holds these numbers. MLPerf training rules, section "Benchmark Results": a run that
does not converge counts as one of the slowest, which are dropped; with one more, there is no result. NCF of v0.5 counts
the first 50 runs that converge. github.com/mlcommons/training_policies/blob/master/training_rules.adoc
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tracking.analysis.statistics import olympic_mean
from tracking.base.number_text import verb
from tracking.measure.programs import EVALUATIONS, SUCCESS, Benchmark, MLPerfLog, read_log
from tracking.record import typed_json

NOT_IN_SETTING = ("seed",)
LEAVE_OUT = "Next: leave this run out"
# The keys that identify a submission. Its repeats may differ in other keys, such as the optimizer's name.
SUBMISSION_KEYS = {
    "submission_benchmark", "submission_org", "submission_platform", "submission_division", "submission_status",
    "global_batch_size", "gpus",
}  # fmt: skip


@dataclass(frozen=True)
class Scored:
    """A run from its log: the seconds from `run_start` to `run_stop`, and whether it reached the target."""

    name: str
    seconds: float
    reached: bool
    setting: tuple[tuple[str, str], ...]  # keys and values that the log has before the clock starts
    start_ms: int
    benchmark: Benchmark
    epochs: float | None = None  # at the last evaluation, if the log counts epochs


@dataclass(frozen=True)
class Score:
    """MLPerf's score of the runs of one setting.

    `seconds` is None while runs are missing (`num_missing`), and if too many did not converge. `counted` are the first
    runs by start, as many as the rules require; `left_out` are the later ones.
    """

    setting: dict[str, str]
    benchmark: Benchmark
    counted: Sequence[Scored]
    left_out: Sequence[Scored]
    seconds: float | None

    @property
    def num_needed(self) -> int:
        """The number of runs that the rules require; 0 if no rules for the benchmark are known."""
        return self.benchmark.runs

    @property
    def num_missing(self) -> int:
        return max(0, self.num_needed - len(self.counted))

    @property
    def num_missed(self) -> int:
        return sum(not run.reached for run in self.counted)

    @property
    def verdict(self) -> str:
        """The result as a sentence without its full stop."""
        needed, missed, converged = self.num_needed, self.num_missed, self.benchmark.converged
        if not needed:
            return f"no score: the rules for benchmark {self.benchmark.name}, and their number of runs, are not known"
        if converged and needed - missed < converged:
            return f"invalid: {missed} of {len(self.counted)} runs did not reach the target, but {converged} must"
        if not converged and missed > self.benchmark.dropped:
            allowed = "one" if self.benchmark.dropped == 1 else self.benchmark.dropped
            return f"invalid: {missed} of {len(self.counted)} runs did not reach the target; {allowed} may miss it"
        if self.num_missing:
            return f"{self.num_missing} of {needed} runs {verb('are', self.num_missing)} missing"
        seconds = f"{self.seconds or 0:,.2f} s, the olympic mean of"
        if converged:
            return f"{seconds} the first {converged} of {needed} runs that reached the target"
        without = f" without the {self.benchmark.dropped} fastest and slowest" if self.benchmark.dropped > 1 else ""
        return f"{seconds} {needed} runs{without}{_missed(missed)}"


def _missed(number: int) -> str:
    if not number:
        return ""
    if number == 1:
        return " (one missed the target and counts as the slowest)"
    return f" ({number} missed the target and count as the slowest)"


def read(name: str, text: str, known: Mapping[str, str] | None = None) -> Scored:
    """The run of a log. `known` holds further facts about a published submission.

    Raises ValueError for a text that is not the log of a run.
    """
    log = read_log(text.splitlines())
    if (torn := next((line for line in log.torn if "run_st" in line), None)) is not None:
        raise ValueError(f"{name}: its MLPerf log has an unreadable line: {torn[:200]}. {LEAVE_OUT}")
    if log.start is None:
        raise ValueError(f"{name}: its MLPerf log has no run_start. {LEAVE_OUT}")
    values = {key: json.dumps(value) for key, value in (known or {}).items() if value}
    if log.submission.name:
        values["submission_benchmark"] = json.dumps(log.submission.name)
    before = log.entries[: next(index for index, entry in enumerate(log.entries) if entry is log.start)]
    values |= {entry.key: json.dumps(entry.value) for entry in before if entry.value is not None}
    if "submission_benchmark" not in values:
        raise ValueError(f"{name}: its MLPerf log has no submission_benchmark. {LEAVE_OUT}")
    part = values.keys() & SUBMISSION_KEYS if known else values.keys() - set(NOT_IN_SETTING)
    setting = tuple(sorted((key, values[key]) for key in part))
    reached = log.status == SUCCESS
    benchmark = log.submission.benchmark
    return Scored(name, _seconds(log), reached, setting, round(log.start.time_ms), benchmark, _epochs(log, benchmark))


def _epochs(log: MLPerfLog, benchmark: Benchmark) -> float | None:
    values = [entry.metadata.get("epoch_num") for entry in log.entries if entry.key in EVALUATIONS]
    last = next((value for value in reversed(values) if typed_json.is_number(value)), None)
    return None if last is None or not benchmark.has_epochs else float(last)


def _seconds(log: MLPerfLog) -> float:
    """Seconds from run_start to run_stop, else to the last line."""
    assert log.start is not None
    end_ms = log.stop.time_ms if log.stop else max(entry.time_ms for entry in log.entries)
    return (end_ms - log.start.time_ms) / 1000


def scores(logs: Iterable[tuple[str, str, Mapping[str, str]]]) -> list[Score]:
    """The score of each setting, in order of its first start. `logs` are (name, text, known facts), as for `read`.

    Runs belong to one setting if their logs are the same up to the start of the clock, except for the seed. Raises
    ValueError for a text that is not a log.
    """
    runs = sorted((read(*log) for log in logs), key=lambda run: run.start_ms)
    settings: dict[tuple[tuple[str, str], ...], list[Scored]] = {}
    for run in runs:
        settings.setdefault(run.setting, []).append(run)
    return [score(members) for members in settings.values()]


def score(runs: Sequence[Scored]) -> Score:
    """The score of runs of one setting, in order of their start."""
    setting = {key: str(json.loads(value)) for key, value in runs[0].setting}
    benchmark = runs[0].benchmark
    counted, left_out = runs[: benchmark.runs or len(runs)], runs[benchmark.runs or len(runs) :]
    times = [run.seconds if run.reached else math.inf for run in counted]
    if benchmark.converged:
        times = [seconds for seconds in times if seconds < math.inf][: benchmark.converged]
        whole = len(counted) == benchmark.runs and len(times) == benchmark.converged
    else:
        whole = 0 < len(counted) == benchmark.runs and times.count(math.inf) <= benchmark.dropped
    return Score(setting, benchmark, counted, left_out, olympic_mean(times, benchmark.dropped) if whole else None)
