"""MLPerf's score of several runs of a benchmark: the olympic mean of as many as its rules ask for, from their logs.

Numbers of runs are those of measure.programs.mlperf_benchmarks. MLPerf training rules, section "Benchmark Results": a
run that does not converge counts as one of the slowest, which are dropped, and with one more there is no result; of NCF
of v0.5 the first 50 that converge count. github.com/mlcommons/training_policies/blob/master/training_rules.adoc
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tracking.analysis.statistics import olympic_mean, verb
from tracking.measure.programs import EVALUATIONS, SUCCESS, Benchmark, MLPerfLog, read_log
from tracking.record import typed_json

NO_PART_OF_SETTING = ("seed",)
# What tells submissions apart. The repeats of one may differ in what else they say, as in which optimizer's name.
OF_SUBMISSION = {
    "submission_benchmark", "submission_org", "submission_platform", "submission_division", "submission_status",
    "global_batch_size", "gpus",
}  # fmt: skip


@dataclass(frozen=True)
class Scored:
    """A run as its log has it: from `run_start` to `run_stop`, in seconds, and whether it reached the target there."""

    name: str
    seconds: float
    reached: bool
    setting: tuple[tuple[str, str], ...]  # key and value of what the log says of it before the clock starts
    start_ms: int
    benchmark: Benchmark
    epochs: float | None = None  # those of its last evaluation, where the log counts epochs


@dataclass(frozen=True)
class Score:
    """What MLPerf makes of the runs of one setting.

    `seconds` is None while runs are missing (`num_missing`), and where too many did not converge. `counted` are the
    first runs by their start, as many as are asked for; `left_out` are those after them.
    """

    setting: dict[str, str]
    benchmark: Benchmark
    counted: Sequence[Scored]
    left_out: Sequence[Scored]
    seconds: float | None

    @property
    def num_needed(self) -> int:
        """0 where no rules are known of the benchmark."""
        return self.benchmark.runs

    @property
    def num_missing(self) -> int:
        return max(0, self.num_needed - len(self.counted))

    @property
    def num_missed(self) -> int:
        return sum(not run.reached for run in self.counted)

    @property
    def verdict(self) -> str:
        """In a sentence without its end."""
        needed, missed, converged = self.num_needed, self.num_missed, self.benchmark.converged
        if not needed:
            return f"no score: no rules of a benchmark {self.benchmark.name} are known, nor how many runs they ask for"
        if converged and needed - missed < converged:
            return f"invalid: {missed} of {len(self.counted)} runs did not reach the target, and {converged} have to"
        if not converged and missed > self.benchmark.dropped:
            may = "one may miss it" if self.benchmark.dropped == 1 else f"{self.benchmark.dropped} may miss it"
            return f"invalid: {missed} of {len(self.counted)} runs did not reach the target, {may}"
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
        return ", one of which missed the target and counts as the slowest"
    return f", {number} of which missed the target and count as the slowest"


def read(name: str, text: str, known: Mapping[str, str] | None = None) -> Scored:
    """The run of a log. `known` is what is known of one of a published submission besides. Raises ValueError for a text
    that is no log of a run."""
    log = read_log(text.splitlines())
    if (torn := next((line for line in log.torn if "run_st" in line), None)) is not None:
        raise ValueError(f"{name}: a line of its MLPerf log cannot be read: {torn[:200]}")
    if log.start is None:
        raise ValueError(f"{name}: its MLPerf log lacks run_start")
    said = {key: json.dumps(value) for key, value in (known or {}).items() if value}
    if log.submission.name:
        said["submission_benchmark"] = json.dumps(log.submission.name)
    before = log.entries[: next(index for index, entry in enumerate(log.entries) if entry is log.start)]
    said |= {entry.key: json.dumps(entry.value) for entry in before if entry.value is not None}
    if "submission_benchmark" not in said:
        raise ValueError(f"{name}: its MLPerf log lacks submission_benchmark")
    part = said.keys() & OF_SUBMISSION if known else said.keys() - set(NO_PART_OF_SETTING)
    setting = tuple(sorted((key, said[key]) for key in part))
    reached = log.status == SUCCESS
    benchmark = log.submission.benchmark
    return Scored(name, _seconds(log), reached, setting, round(log.start.time_ms), benchmark, _epochs(log, benchmark))


def _epochs(log: MLPerfLog, benchmark: Benchmark) -> float | None:
    said = [entry.metadata.get("epoch_num") for entry in log.entries if entry.key in EVALUATIONS]
    last = next((value for value in reversed(said) if typed_json.is_number(value)), None)
    return None if last is None or not benchmark.has_epochs else float(last)


def _seconds(log: MLPerfLog) -> float:
    """From run_start to run_stop, else to the last line."""
    assert log.start is not None
    end_ms = log.stop.time_ms if log.stop else max(entry.time_ms for entry in log.entries)
    return (end_ms - log.start.time_ms) / 1000


def scores(logs: Iterable[tuple[str, str, Mapping[str, str]]]) -> list[Score]:
    """The score of each setting among the runs, given by name, text of their logs, and what is known of published ones
    besides, in order of the first start.

    Runs are of one setting where their logs say the same up to the start of the clock, but for the seed. Raises
    ValueError for what is no log.
    """
    runs = sorted((read(*log) for log in logs), key=lambda run: run.start_ms)
    settings: dict[tuple[tuple[str, str], ...], list[Scored]] = {}
    for run in runs:
        settings.setdefault(run.setting, []).append(run)
    return [score(of_setting) for of_setting in settings.values()]


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
