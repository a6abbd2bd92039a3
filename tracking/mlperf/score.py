"""MLPerf's score of several runs of a benchmark: the olympic mean of as many as its rules ask for, from their logs.

Logs of v0.5 and v0.6 are read, too. MLPerf training rules, section "Benchmark Results"; a run that does not converge
counts as the slowest, and with a second one there is no result.
github.com/mlcommons/training_policies/blob/master/training_rules.adoc
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from tracking.programs import Entry, benchmark_in, entry_in, is_torn
from tracking.statistics import olympic_mean, verb

NUM_RUNS = {"resnet": 5, "ssd": 5, "maskrcnn": 5, "ncf": 100}  # NCF's are those of v0.5, the last rules that have it
NUM_OTHER = 10
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


@dataclass(frozen=True)
class Score:
    """What MLPerf makes of the runs of one setting.

    `seconds` is None while runs are missing (`num_missing`) and where more than one did not converge (`num_missed`).
    `counted` are the first runs by their start, as many as are asked for; `left_out` are those after them.
    """

    setting: dict[str, str]
    num_needed: int
    counted: Sequence[Scored]
    left_out: Sequence[Scored]
    seconds: float | None

    @property
    def num_missing(self) -> int:
        return self.num_needed - len(self.counted)

    @property
    def num_missed(self) -> int:
        return sum(not run.reached for run in self.counted)

    @property
    def verdict(self) -> str:
        """In a sentence without its end."""
        if self.num_missed > 1:
            return f"invalid: {self.num_missed} of {len(self.counted)} runs did not reach the target, one may miss it"
        if self.num_missing:
            return f"{self.num_missing} of {self.num_needed} runs {verb('are', self.num_missing)} missing"
        missed = ", one of which missed the target and counts as the slowest" if self.num_missed else ""
        return f"{self.seconds or 0:,.2f} s, the olympic mean of {self.num_needed} runs{missed}"


def read(name: str, text: str, known: Mapping[str, str] | None = None) -> Scored:
    """The run of a log. `known` is what is known of one of a published submission besides. Raises ValueError for a text
    that is no log of a whole run."""
    entries = list(entries_of(name, text))
    marks = {entry.key: entry for entry in entries if entry.key in ("run_start", "run_stop")}
    if len(marks) < 2:
        raise ValueError(f"{name}: its MLPerf log lacks run_start or run_stop")
    start, stop = marks["run_start"], marks["run_stop"]
    said = {key: json.dumps(value) for key, value in (known or {}).items() if value}
    if benchmark := next(filter(None, map(benchmark_in, text.splitlines())), ""):
        said["submission_benchmark"] = json.dumps(benchmark)
    before = entries[: next(index for index, entry in enumerate(entries) if entry.key == "run_start")]
    said |= {entry.key: json.dumps(entry.value) for entry in before if entry.value is not None}
    if "submission_benchmark" not in said:
        raise ValueError(f"{name}: its MLPerf log lacks submission_benchmark")
    part = said.keys() & OF_SUBMISSION if known else said.keys() - set(NO_PART_OF_SETTING)
    setting = tuple(sorted((key, said[key]) for key in part))
    return Scored(name, (stop.time_ms - start.time_ms) / 1000, reached(entries, stop), setting, round(start.time_ms))


def entries_of(name: str, text: str) -> Iterable[Entry]:
    """Those of a log's lines. Raises ValueError for a line that is torn."""
    for line in text.splitlines():
        if is_torn(line):
            raise ValueError(f"{name}: a line of its MLPerf log cannot be read: {line[:200]}")
        if (entry := entry_in(line)) is not None:
            yield entry


def reached(entries: Sequence[Entry], stop: Entry) -> bool:
    """What `run_stop` says; some logs of v0.5 leave it to their target and their evaluations."""
    target = next((entry.value for entry in entries if entry.key == "eval_target"), None)
    if "status" in stop.metadata or not isinstance(target, float | int):
        return stop.metadata.get("status") == "success"
    values = [entry.value for entry in entries if entry.key == "eval_accuracy"]
    return any(isinstance(value, float | int) and value >= target for value in values)


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
    needed = NUM_RUNS.get(setting["submission_benchmark"], NUM_OTHER)
    counted, left_out = runs[:needed], runs[needed:]
    times = [run.seconds if run.reached else math.inf for run in counted]
    whole = len(times) == needed and times.count(math.inf) < 2
    return Score(setting, needed, counted, left_out, olympic_mean(times) if whole else None)
