"""MLPerf's score of several runs of a benchmark: the olympic mean of as many as its rules ask for, from their logs.

MLPerf training rules, section "Benchmark Results"; a run that does not converge counts as the slowest, and with a
second one there is no result. github.com/mlcommons/training_policies/blob/master/training_rules.adoc
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from tracking.compare import olympic_mean
from tracking.mlperf.log import TOKEN

VISION = ("resnet", "ssd", "maskrcnn")
NUM_VISION, NUM_OTHER = 5, 10
NO_PART_OF_SETTING = ("seed",)


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
            return f"{self.num_missing} of {self.num_needed} runs are missing"
        missed = ", one of which missed the target and counts as the slowest" if self.num_missed else ""
        return f"{self.seconds or 0:,.2f} s, the olympic mean of {self.num_needed} runs{missed}"


def read(name: str, text: str) -> Scored:
    """The run of a log. Raises ValueError for a text that is no log of a whole run."""
    said: dict[str, str] = {}
    times: dict[str, tuple[float, dict[str, Any]]] = {}
    for line in text.splitlines():
        if TOKEN not in line:
            continue
        try:
            content = dict(json.loads(line.partition(TOKEN)[2]))
            key, time_ms = str(content["key"]), float(content["time_ms"])
            metadata = dict(content.get("metadata") or {})
        except (ValueError, TypeError, KeyError) as error:
            raise ValueError(f"{name}: a line of its MLPerf log cannot be read ({error}): {line[:200]}") from None
        if key in ("run_start", "run_stop"):
            times[key] = time_ms, metadata
        elif "run_start" not in times and content.get("value") is not None:
            said[key] = json.dumps(content["value"])
    if len(times) < 2 or "submission_benchmark" not in said:
        raise ValueError(f"{name}: its MLPerf log lacks submission_benchmark, run_start or run_stop")
    setting = tuple(sorted((key, value) for key, value in said.items() if key not in NO_PART_OF_SETTING))
    (start_ms, _), (stop_ms, ending) = times["run_start"], times["run_stop"]
    return Scored(name, (stop_ms - start_ms) / 1000, ending.get("status") == "success", setting, round(start_ms))


def scores(logs: Iterable[tuple[str, str]]) -> list[Score]:
    """The score of each setting among the runs, given by name and text of their logs, in order of the first start.

    Runs are of one setting where their logs say the same up to the start of the clock, but for the seed. Raises
    ValueError for what is no log.
    """
    runs = sorted((read(name, text) for name, text in logs), key=lambda run: run.start_ms)
    settings: dict[tuple[tuple[str, str], ...], list[Scored]] = {}
    for run in runs:
        settings.setdefault(run.setting, []).append(run)
    return [score(of_setting) for of_setting in settings.values()]


def score(runs: Sequence[Scored]) -> Score:
    """The score of runs of one setting, in order of their start."""
    setting = {key: str(json.loads(value)) for key, value in runs[0].setting}
    needed = NUM_VISION if setting["submission_benchmark"] in VISION else NUM_OTHER
    counted, left_out = runs[:needed], runs[needed:]
    times = [run.seconds if run.reached else math.inf for run in counted]
    whole = len(times) == needed and times.count(math.inf) < 2
    return Score(setting, needed, counted, left_out, olympic_mean(times) if whole else None)
