"""Every printed figure once more, from the run folders' journals, with code that shares nothing with the report's.

What it takes of the report is what the report claims: each figure's words, the workload and setting it is of, and the
runs it says it averaged. From the journals it works out for itself which runs count, and what their figures are.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy
import yaml

# Step times are journaled to a tenth of a microsecond: rates computed from them are that coarse.
TOLERANCE = {"throughput/samples_per_sec": 1e-4}
EXACT = 1e-9


@dataclass
class Outcome:
    num_runs: int = 0
    num_figures: int = 0
    differences: list[str] = field(default_factory=list)


class Journaled:
    """One run, from its journal and its config alone."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        lines = (folder / "journal.jsonl").read_text(encoding="utf-8").splitlines()
        self.rows = [row for row in map(_row, lines) if row]
        self.identity = json.loads((folder / "run.json").read_text(encoding="utf-8"))

    def _merged(self, kind: str) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        for row in self.rows:
            if row["kind"] == kind:
                merged.update(row["values"])
        return merged

    @cached_property
    def params(self) -> dict[str, Any]:
        return self._merged("params")

    @cached_property
    def tags(self) -> dict[str, Any]:
        return self._merged("tags")

    @cached_property
    def config(self) -> dict[str, Any]:
        loaded: dict[str, Any] = yaml.safe_load((self.folder / "config.yaml").read_text(encoding="utf-8"))
        return loaded

    def times(self, key: str) -> list[float]:
        return [row["clock_sec"] for row in self.rows if row["kind"] == "event" and row["key"] == key]

    @property
    def targets(self) -> dict[str, float]:
        names, values = (str(self.params.get(f"target_{what}", "")) for what in ("metric", "value"))
        return {name: float(value) for name, value in zip(names.split(","), values.split(","), strict=True) if name}

    @cached_property
    def hit(self) -> int | None:
        """The row of the evaluation that reached every target."""
        for place, row in enumerate(self.rows):
            if row["kind"] == "event" and row["key"] == "eval_accuracy" and self.targets:
                found = row["values"]["metrics"]
                if min(found.get(name, -math.inf) - value for name, value in self.targets.items()) >= 0:
                    return place
        return None

    def counts(self) -> bool:
        """Whether it ended by itself, in one go, at its target if it has one."""
        if not self.times("run_stop") or "failure" in self.tags or "resumed" in self.tags:
            return False
        return self.hit is not None or not self.targets

    def belongs(self, setting: Mapping[str, str]) -> bool:
        return all(self.label(axis) == value for axis, value in setting.items())

    def label(self, axis: str) -> str:
        short = {"topology": "env.topology", "hardware": "env.gpu", "driver": "env.driver", "cuda": "env.cuda"}
        for name in (axis, short.get(axis, axis), "/".join(axis.replace("model.", "", 1).split("."))):
            for source in (self.params, self.tags):
                if source.get(name) not in (None, ""):
                    return str(source[name])
        node: Any = self.config
        for part in axis.split("."):
            node = node.get(part, "(none)") if isinstance(node, dict) else "(none)"
        return str(node)

    # ------------------------------------------------------------------------------------------- its own figures

    def value(self, key: str) -> float | None:
        return COMPUTED[key](self)

    def epoch_sec(self) -> float | None:
        spent = [stop - start for start, stop in zip(self.times("epoch_start"), self.times("epoch_stop"), strict=False)]
        return math.fsum(spent) / len(spent) if spent else None

    def epochs(self) -> float | None:
        return None if self.hit is None else float(self.rows[self.hit]["values"]["epoch_num"])

    def to_accuracy_sec(self) -> float | None:
        return None if self.hit is None else float(self.rows[self.hit]["clock_sec"] - self.times("run_start")[0])

    def to_accuracy_train_sec(self) -> float | None:
        """The clock runs but where an evaluation or a checkpoint does: added up from event to event."""
        if self.hit is None:
            return None
        running, total, last = False, 0.0, 0.0
        for row in self.rows[: self.hit + 1]:
            if row["kind"] != "event":
                continue
            total += row["clock_sec"] - last if running else 0.0
            last = row["clock_sec"]
            if row["key"] in ("run_start", "eval_stop", "checkpoint_stop"):
                running = True
            elif row["key"] in ("eval_start", "checkpoint_start"):
                running = False
        return total

    def rate(self) -> float | None:
        """Samples over seconds of all windows but the first; of a single one, of all steps but its first."""
        windows = [row["values"] for row in self.rows if row["kind"] == "event" and row["key"] == "throughput_window"]
        if len(windows) == 1:
            steps = windows[0]["step_ms"]
            rest = windows[0]["samples"] * (len(steps) - 1) // len(steps)
            return 1e3 * rest / math.fsum(steps[1:]) if len(steps) > 1 else None
        seconds = math.fsum(step for window in windows[1:] for step in window["step_ms"]) / 1e3
        return sum(window["samples"] for window in windows[1:]) / seconds if seconds else None

    def timed_sec(self) -> float | None:
        starts, stops = self.times("run_start"), self.times("run_stop")
        return stops[0] - starts[0] if starts and stops else None

    def dollars(self, seconds: float | None) -> float | None:
        price = (self.config.get("instance") or {}).get("price_per_hour")
        return None if price is None or seconds is None else seconds / 3600 * price * self.config.get("nodes", 1)

    def devices(self) -> float:
        found = [row["values"]["world_size"] for row in self.rows if "world_size" in row.get("values", {})]
        return float(found[-1])


COMPUTED: dict[str, Callable[[Journaled], float | None]] = {
    "time/epoch_sec": Journaled.epoch_sec,
    "epochs/to_accuracy": Journaled.epochs,
    "time/to_accuracy_sec": Journaled.to_accuracy_sec,
    "time/to_accuracy_train_sec": Journaled.to_accuracy_train_sec,
    "throughput/samples_per_sec": Journaled.rate,
    "cost/to_accuracy_usd": lambda run: run.dollars(run.to_accuracy_sec()),
    "cost/usd": lambda run: run.dollars(run.timed_sec()),
}


def recheck(report: Mapping[str, Any], roots: Sequence[Path]) -> Outcome:
    """Compare every figure and p-value of a report (its JSON) with those of the run folders at or below `roots`."""
    runs = _find(report, roots)
    outcome = Outcome(num_runs=len(runs))
    known = {one["id"]: one for one in report["runs"]}
    missing = [one["name"] for one in report["runs"] if one["id"] not in runs]
    if missing:
        words = ", ".join(map(str, roots))
        outcome.differences.append(f"no run folder at or below {words} is of {', '.join(missing[:5])} ({len(missing)})")
        return outcome
    for run_id, run in runs.items():
        if run_id in known and not run.belongs(known[run_id]["setting"]):
            outcome.differences.append(f"{run.folder}: its journal is not of the setting {known[run_id]['setting']}")
    for figure in report["figures"]:
        outcome.num_figures += 1
        outcome.differences += _figure(figure, report, runs)
    outcome.num_figures += len(report["comparisons"]) + len(report["spent_usd"])
    outcome.differences += [*_comparisons(report, runs), *_spent(report, runs)]
    return outcome


def _find(report: Mapping[str, Any], roots: Sequence[Path]) -> dict[str, Journaled]:
    """By run id, the folders of the runs that the report is about: found by the identity that is in both."""
    ids = {one["uid"]: one["id"] for one in [*report["runs"], *report["excluded"]]}
    found = {}
    for path in (path for root in roots for path in root.rglob("run.json")):
        uid = json.loads(path.read_text(encoding="utf-8")).get("uid")
        if uid in ids and (path.parent / "journal.jsonl").exists():
            found[ids[uid]] = Journaled(path.parent)
    return found


def _row(line: str) -> dict[str, Any] | None:
    try:
        row: dict[str, Any] = json.loads(line)
    except ValueError:
        return None
    return row | {"values": row.get("values") or {}}


def _values(
    report: Mapping[str, Any], runs: Mapping[str, Journaled], workload: str, setting: Mapping[str, str], key: str
) -> dict[str, float]:
    """By run id, what the journals say of this setting: of every run that counts, whoever the report averaged."""
    members = {one["id"] for one in [*report["runs"], *report["excluded"]] if one["workload"] == workload}
    missed = report["with_missed"]
    found = {}
    for run_id, run in runs.items():
        counts = run.counts() or (missed and run.times("run_stop") and not {"failure", "resumed"} & run.tags.keys())
        if run_id in members and counts and run.belongs(setting):
            value = run.value(key)
            if value is not None:
                found[run_id] = value
    return found


def _figure(figure: Mapping[str, Any], report: Mapping[str, Any], runs: Mapping[str, Journaled]) -> Iterator[str]:
    name = f"{figure['workload']}, {_words(figure['setting'])}: {figure['figure']}"
    values = _values(report, runs, figure["workload"], figure["setting"], figure["key"])
    if set(values) != set(figure["runs"]):
        yield f"{name}: averages {len(figure['runs'])} runs, and {len(values)} count by their journals"
        return
    if figure["over"] is None:
        scale = 1 / 60 if figure["figure"].startswith("minutes") else 1.0
        expected = _moments([scale * value for value in values.values()])
    else:
        base = _values(report, runs, figure["workload"], figure["over"], figure["key"])
        expected = _ratio(figure, runs, values, base)
    claimed = (figure["n"], figure["mean"], figure["standard_error"], figure["olympic_mean"])
    tolerance = TOLERANCE.get(figure["key"], EXACT)
    if not all(_close(one, other, tolerance, expected[1]) for one, other in zip(claimed, expected, strict=True)):
        yield f"{name}: the report has n, mean, standard error, olympic mean {claimed}, the journals {expected}"
    elif not _printed(figure["text"], expected[1:], tolerance):
        yield f"{name}: printed as {figure['text']!r}, and the journals have {expected}"


Moments = tuple[int, float, float | None, float | None]  # n, mean, standard error, olympic mean


def _moments(values: Sequence[float]) -> Moments:
    n = len(values)
    middle = float(numpy.mean(values))
    error = float(numpy.std(values, ddof=1) / numpy.sqrt(n)) if n > 1 else None
    return n, middle, error, float(numpy.mean(numpy.sort(values)[1:-1])) if n >= 5 else None


def _ratio(
    figure: Mapping[str, Any], runs: Mapping[str, Journaled], values: Mapping[str, float], base: Mapping[str, float]
) -> Moments:
    """Speed-up or efficiency over the base; relative variances of two independent means add."""
    growth = runs[next(iter(values))].devices() / runs[next(iter(base))].devices()
    divisor = growth if figure["figure"].startswith("efficiency") else 1.0
    if set(values) == set(base):
        return len(values), 1.0, None, None
    (n, own, own_error, _), (m, other, other_error, _) = _moments([*values.values()]), _moments([*base.values()])
    factor = (own / other if figure["key"].startswith("throughput") else other / own) / divisor
    if own_error is None or other_error is None:
        return min(n, m), factor, None, None
    return min(n, m), factor, factor * math.sqrt((own_error / own) ** 2 + (other_error / other) ** 2), None


def _comparisons(report: Mapping[str, Any], runs: Mapping[str, Journaled]) -> Iterator[str]:
    """Welch's test by its formula, and Holm's correction, of every workload's pairs."""
    for workload in dict.fromkeys(pair["workload"] for pair in report["comparisons"]):
        pairs = [pair for pair in report["comparisons"] if pair["workload"] == workload]
        if pairs[0]["metric"] not in COMPUTED:
            yield f"{workload}: comparisons by {pairs[0]['metric']} cannot be recomputed from journals"
            continue
        expected = []
        for pair in pairs:
            sides = [
                [*_values(report, runs, workload, pair[role], pair["metric"]).values()] for role in ("better", "worse")
            ]
            means = sorted(float(numpy.mean(side)) for side in sides)
            expected.append((means[1] / means[0], _welch(*sides)))
        ranked = sorted(p for _, p in expected if p is not None)
        for pair, (factor, p) in zip(pairs, expected, strict=True):
            corrected = None if p is None else _corrected(ranked, p)
            claimed = (pair["factor"], pair["p"], pair["p_corrected"])
            tolerance = TOLERANCE.get(pair["metric"], 1e-6)
            found = (factor, p, corrected)
            good = all(_close(one, other, tolerance, 1) for one, other in zip(claimed, found, strict=True))
            if not good or pair["told_apart"] != (corrected is not None and corrected < 0.05):
                names = f"{_words(pair['better'])} against {_words(pair['worse'])}"
                yield f"{workload}, {names}: factor, p, corrected p are {claimed}, by the journals {found}"


def _spent(report: Mapping[str, Any], runs: Mapping[str, Journaled]) -> Iterator[str]:
    for workload, claimed in report["spent_usd"].items():
        found = [runs[one["id"]].value("cost/usd") or 0.0 for one in report["runs"] if one["workload"] == workload]
        if not _close(claimed, math.fsum(found), EXACT, 1.0):
            yield f"{workload}: all its runs cost {claimed} USD in the report, {math.fsum(found)} by the journals"


def _welch(first: Sequence[float], second: Sequence[float]) -> float | None:
    from scipy.special import stdtr

    if min(len(first), len(second)) < 2:
        return None
    shares = [float(numpy.var(side, ddof=1)) / len(side) for side in (first, second)]
    distance = abs(float(numpy.mean(first) - numpy.mean(second)))
    if sum(shares) <= (1e-12 * float(numpy.mean(first))) ** 2:  # nothing but rounding
        return 1.0 if distance <= 1e-12 * abs(float(numpy.mean(first))) else 0.0
    freedom = sum(shares) ** 2 / sum(s**2 / (len(side) - 1) for s, side in zip(shares, (first, second), strict=True))
    return float(2 * stdtr(freedom, -distance / math.sqrt(sum(shares))))


def _corrected(ranked: Sequence[float], p: float) -> float:
    """Holm: the largest of (number of tests not yet rejected) x p over this and all smaller p-values."""
    return min(1.0, max((len(ranked) - place) * one for place, one in enumerate(ranked) if one <= p))


def _close(claimed: float | None, expected: float | None, tolerance: float, size: float) -> bool:
    if claimed is None or expected is None:
        return claimed is expected
    return math.isclose(claimed, expected, rel_tol=tolerance, abs_tol=tolerance * abs(size))


def _printed(text: str, numbers: Sequence[float | None], tolerance: float) -> bool:
    """Whether the words say these numbers, rounded to the digits that they show."""
    shown = re.findall(r"-?[\d,]+(?:\.\d+)?", text)
    there = [number for number in numbers if number is not None]
    if len(shown) != len(there):
        return False
    for words, number in zip(shown, there, strict=True):
        half_a_digit = 0.5 * 10.0 ** -len(words.partition(".")[2])
        if abs(float(words.replace(",", "")) - number) > half_a_digit * (1 + 1e-6) + tolerance * abs(number):
            return False
    return True


def _words(setting: Mapping[str, str]) -> str:
    return " ".join(f"{axis}={value}" for axis, value in setting.items())
