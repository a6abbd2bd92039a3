"""The facts of a report's runs from their journals: which count, in which setting, and their means and tests."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any

from conf.metric import HIGHER
from tracking.analysis.audit.arithmetic import (
    Observations,
    PairTest,
    corrected,
    pair_of,
    untested,
    wilson,
    without_shares,
)
from tracking.analysis.audit.evidence import selection
from tracking.analysis.audit.evidence.headings import is_stack
from tracking.analysis.audit.evidence.spacing import OF_TARGETS, observed, spacing
from tracking.analysis.audit.evidence.trees import name_of
from tracking.analysis.audit.journals import JournalFigures
from tracking.base import quantities

DEVICES = {"gpus", "nodes", "cpu_processes"}
# A setting's value of each axis.
Labels = Mapping[str, str]


class Evidence:
    """The journals of the runs that a report (its JSON) is about, by uid.

    `folders` holds all runs below the roots; `should` those that the report's selectors name, without `left_out`.
    """

    def __init__(self, report: Mapping[str, Any], roots: Sequence[Path]) -> None:
        self.axes: list[str] = list(report["by"])
        self.metric: str = report["metric"]
        self._with_missed: bool = report["with_missed"]
        self.folders, sweeps = selection.read(roots)
        by_selector = {name: selection.selected(name, self.folders, sweeps) for name in report["selectors"]}
        self.nameless = [name for name, uids in by_selector.items() if not uids]
        should = {uid: self.folders[uid] for uids in by_selector.values() for uid in sorted(uids)}
        self.left_out = selection.left_out(should, report["with_neighbours"])
        self.should = {uid: run for uid, run in should.items() if uid not in self.left_out}
        listed = {str(run.get("uid")) for run in [*report["runs"], *report["excluded"]]}
        self.unknown = listed - self.folders.keys()
        self.runs: dict[str, JournalFigures] = {uid: self.folders[uid] for uid in sorted(listed - self.unknown)}
        self._uids = {name: uid for uid, run in self.folders.items() for name in run.ids}
        self._settings: dict[tuple[Any, ...], dict[str, JournalFigures]] = {}
        self._samples: dict[tuple[Any, ...], Observations] = {}
        self._pairs: dict[str, dict[frozenset[str], PairTest]] = {}

    def uid_of(self, run_id: str) -> str | None:
        return self._uids.get(run_id)

    def workloads(self) -> list[str]:
        return sorted({run.title for run in self.runs.values()})

    def better(self, workload: str, key: str) -> str | None:
        """Which way a metric is better, by the catalogue or by the configs of the workload's runs."""
        runs = [self.runs[run_id] for run_id in self.members(workload)]
        directions = {direction for run in runs if (direction := quantities.better(key, run.directions))}
        return directions.pop() if len(directions) == 1 else None

    def counts(self, run: JournalFigures) -> bool:
        return run.counts(with_missed=self._with_missed)

    def why(self, run: JournalFigures) -> str:
        return run.why(with_missed=self._with_missed)

    def members(self, workload: str) -> list[str]:
        return [uid for uid, run in self.runs.items() if run.title == workload]

    def settings(self, workload: str) -> list[Labels]:
        """The settings that have a run of this workload, counted or not, in the report's order."""
        return self._by_workload.get(workload, [])

    @cached_property
    def _by_workload(self) -> dict[str, list[Labels]]:
        labels = sorted({(run.title, *map(run.label, self.axes)) for run in self.runs.values()}, key=self._order)
        return {
            workload: [dict(zip(self.axes, values, strict=True)) for of, *values in labels if of == workload]
            for workload in self.workloads()
        }

    def _order(self, labels: tuple[str, ...]) -> list[list[tuple[int, float, str]]]:
        """A sort key: numbers by value, before words; versions part by part."""
        return [
            [_as_number(part) for part in (re.split(r"[.+_ -]", value) if is_stack(axis) else [value])]
            for axis, value in zip(self.axes, labels[1:], strict=True)
        ]

    def all_of(self, workload: str, setting: Labels) -> dict[str, JournalFigures]:
        """All runs of a setting, by run id."""
        key = (workload, *setting.items())
        if key not in self._settings:
            members = ((run_id, self.runs[run_id]) for run_id in self.members(workload))
            self._settings[key] = {run_id: run for run_id, run in members if run.belongs(setting)}
        return self._settings[key]

    def counting(self, workload: str, setting: Labels) -> dict[str, JournalFigures]:
        return {run_id: run for run_id, run in self.all_of(workload, setting).items() if self.counts(run)}

    def values(self, workload: str, setting: Labels, key: str) -> dict[str, float]:
        """A figure of all runs of the setting that trained to their end, by run id."""
        values = {run_id: run.value(key) for run_id, run in self.ended(workload, setting).items()}
        return {run_id: value for run_id, value in values.items() if value is not None}

    def ended(self, workload: str, setting: Labels) -> dict[str, JournalFigures]:
        """All runs of a setting that trained to their end, target or not, by run id."""
        return {run_id: run for run_id, run in self.all_of(workload, setting).items() if run.counts(with_missed=True)}

    def sample(self, workload: str, setting: Labels, key: str) -> Observations:
        """A setting's values of a figure, with the bounds from runs that stopped short of the target."""
        cache_key = (workload, *setting.items(), key)
        if cache_key not in self._samples:
            self._samples[cache_key] = self._sample(workload, setting, key)
        return self._samples[cache_key]

    def _sample(self, workload: str, setting: Labels, key: str) -> Observations:
        sample = observed(self.all_of(workload, setting).values(), key)
        ended = [run for run in self.ended(workload, setting).values() if run.value(key) is not None]
        seeds = tuple(sorted(run.paired_by for run in ended))
        paired = all(seeds) and len({*seeds}) == len(seeds)
        if key in OF_TARGETS and (self.short(workload, setting) or self.stopped(workload, setting)):
            paired = False
        apart = spacing(self.ended(workload, setting).values(), key)
        if key not in OF_TARGETS:
            sample = replace(sample, never=len(self.lost(workload, setting, key)))
        paired, higher = paired and not sample.num_short, self.better(workload, key) == HIGHER
        return replace(sample, interval=apart, seeds=seeds if paired else (), higher=higher)

    def lost(self, workload: str, setting: Labels, key: str) -> list[str]:
        """The runs, by id, in which a metric with a direction became NaN, if it is known in another run."""
        if self.better(workload, key) is None or not self.values(workload, setting, key):
            return []
        return [run_id for run_id, run in self.ended(workload, setting).items() if run.lost(key)]

    def short(self, workload: str, setting: Labels) -> dict[str, JournalFigures]:
        return {run_id: run for run_id, run in self.all_of(workload, setting).items() if run.stopped_short}

    def stopped(self, workload: str, setting: Labels) -> dict[str, JournalFigures]:
        return {run_id: run for run_id, run in self.all_of(workload, setting).items() if run.stopped}

    def searched(self, workload: str, setting: Labels) -> list[JournalFigures]:
        """The runs of a setting that a search decided with."""
        runs = self.all_of(workload, setting).values()
        return [run for run in runs if run.searched and (run.counts(True) or run.stopped_short or run.stopped)]

    def reached(self, workload: str, setting: Labels) -> tuple[int, int]:
        """The number of runs that reached the target, and the number that reached or missed it."""
        hits = len(self.values(workload, setting, quantities.TIME_TO_ACCURACY_SEC))
        return hits, hits + len(self.short(workload, setting))

    def share(self, workload: str, setting: Labels) -> str:
        """How many reached the target, as printed; from 5 runs on with Wilson's interval."""
        hits, n = self.reached(workload, setting)
        if not n:
            return ""
        low, high = (f"{100 * bound:.0f}" for bound in wilson(hits, n))
        return f"{hits} of {n} ({low}-{high} %)" if n >= 5 else f"{hits} of {n}"

    def ends(self, workload: str, setting: Labels) -> str:
        """How many reached the target and how many were stopped before, as printed."""
        stopped = len(self.stopped(workload, setting))
        return "; ".join(filter(None, [self.share(workload, setting), f"{stopped} stopped" if stopped else ""]))

    def spent_usd(self, workload: str) -> float:
        """The cost of the runs that count."""
        counting = [run for run_id in self.members(workload) if self.counts(run := self.runs[run_id])]
        return math.fsum(run.value(quantities.COST_USD) or 0.0 for run in counting)

    def devices(self, workload: str, setting: Labels) -> float | None:
        counts = {run.devices() for run in self.ended(workload, setting).values()}
        return counts.pop() if len(counts) == 1 else None

    def base(self, workload: str, setting: Labels, settings: Sequence[Labels]) -> Labels | None:
        """The setting with the fewest devices that is otherwise the same; None if all have equally many."""
        same = [
            candidate
            for candidate in settings
            if self.devices(workload, candidate) and without_devices(candidate) == without_devices(setting)
        ]
        counts = {self.devices(workload, candidate) for candidate in same}
        if len(counts) < 2 or self.devices(workload, setting) is None:
            return None
        return min(same, key=lambda candidate: self.devices(workload, candidate) or math.inf)

    def line_name(self, workload: str, setting: Labels) -> str:
        """The setting without its devices; "" if nothing is left. Nodes stay if a number of devices occurs twice."""
        rest = without_devices(setting)
        alike = [other for other in self.settings(workload) if without_devices(other) == rest]
        sizes = sorted(size for other in alike if (size := self.devices(workload, other)))
        if any(size == following for size, following in pairwise(sizes)):
            rest = {axis: value for axis, value in setting.items() if axis in rest or axis == "nodes"}
        return name_of(rest) if rest else ""

    def pairs(self, workload: str) -> dict[frozenset[str], PairTest]:
        """All pairs of settings that both have a value of the report's metric."""
        if workload not in self._pairs:
            self._pairs[workload] = self._all_pairs(workload, self.metric)
        return self._pairs[workload]

    def _all_pairs(self, workload: str, key: str) -> dict[frozenset[str], PairTest]:
        samples = {name_of(setting): self.sample(workload, setting, key) for setting in self.settings(workload)}
        names = [name for name, sample in samples.items() if len(sample)]
        searched = {name_of(each) for each in self.settings(workload) if self.searched(workload, each)}
        pairs, direction = {}, self.better(workload, key)
        if direction is None or not any(samples[name].numbers for name in names):
            return {}
        for place, name in enumerate(names):
            for other in names[place + 1 :]:
                pair = pair_of(direction, name, samples[name], other, samples[other])
                pair = pair if key in OF_TARGETS else without_shares(pair)
                pairs[frozenset((name, other))] = untested(pair) if searched & {name, other} else pair
        ranked = sorted(pair.p for pair in pairs.values() if pair.p is not None)
        often = sorted(pair.often_p for pair in pairs.values() if pair.often_p is not None)
        return {names: _corrected(pair, ranked, often) for names, pair in pairs.items()}


def _corrected(pair: PairTest, ranked: Sequence[float], often: Sequence[float]) -> PairTest:
    return replace(
        pair,
        corrected=None if pair.p is None else corrected(ranked, pair.p),
        often_corrected=None if pair.often_p is None else corrected(often, pair.often_p),
        turned=None if pair.turned is None else _corrected(pair.turned, ranked, often),
    )


def _as_number(text: str) -> tuple[int, float, str]:
    try:
        return 0, float(text), ""
    except ValueError:
        return 1, 0.0, text


def without_devices(setting: Labels) -> Labels:
    """The labels without numbers of devices; the CPU (gpus=0) is not a number of GPUs."""
    on_cpu = setting.get("gpus") == "0"
    return {axis: value for axis, value in setting.items() if axis not in DEVICES or (on_cpu and axis == "gpus")}
