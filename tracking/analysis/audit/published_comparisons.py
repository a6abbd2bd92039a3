"""The expected rows and points of measured settings beside published ones, over nodes and batch sizes.

Published ones have no journal and are not checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from tracking.analysis.audit.arithmetic import moments_of, ratio
from tracking.analysis.audit.curves import Picture, identity
from tracking.analysis.audit.evidence import UNCHECKED, Content, Evidence, Labels, Rows, mean_of, name_of
from tracking.analysis.audit.mean_pictures import Point, line
from tracking.analysis.audit.questions import gain_of
from tracking.base import quantities

TIME, EPOCHS = quantities.TIME_TO_ACCURACY_SEC, quantities.EPOCHS_TO_ACCURACY
YOURS, PUBLISHED = ", yours", "published: "
OF_FIGURES = {"speed-up": "speed-up", "efficiency (1 is ideal)": "efficiency"}
EPOCHS_TO = "epochs to the target"


def nodes_table(content: Content, workload: str, columns: Sequence[str]) -> Rows:
    """A row per number of nodes, with the figures of the table of settings."""
    evidence, rows = content.evidence, Rows()
    for name, by_nodes in _over_nodes(evidence, workload).items():
        for count, setting in by_nodes.items():
            row: Rows = {"": name, "nodes": f"{count:g}"}
            for heading in columns[2:]:
                quantity = heading.removesuffix(YOURS)
                if quantity == heading:
                    row[heading] = UNCHECKED
                elif quantity == EPOCHS_TO:
                    row[heading] = mean_of(evidence.sample(workload, setting, EPOCHS), 1.0, EPOCHS)
                else:
                    row[heading] = content.figure(workload, setting, OF_FIGURES[quantity]).get("text")
            rows[f"{name} {count:g}"] = row
    return rows


def batch_pairs(content: Content, workload: str) -> Rows:
    """A row per batch size and the next larger one, for settings that are otherwise the same."""
    evidence, rows = content.evidence, Rows()
    for name, by_batch in over_batches(evidence, workload).items():
        known = [size for size in by_batch if moments_of(evidence.sample(workload, by_batch[size], TIME))]
        for small, large in pairwise(known):
            row: Rows = {"": f"yours: {name}" if name else "yours", "hardware": UNCHECKED}
            row |= {"batch": f"{small:,}", "larger batch": f"{large:,}"}
            row["its time to accuracy (min)"] = mean_of(evidence.sample(workload, by_batch[large], TIME), 1 / 60, TIME)
            row["times as long"] = gain_of(evidence, workload, by_batch[small], by_batch[large], TIME)
            rows[f"{row['']} {small:,} {large:,}"] = row
    return rows


def over_batches(evidence: Evidence, workload: str) -> dict[str, dict[int, Labels]]:
    """The settings by their other axes, then by batch size."""
    groups: dict[str, dict[int, Labels]] = {}
    for axis in ("batch_size", "global_batch_size"):
        for setting in evidence.settings(workload):
            if setting.get(axis, "").isdecimal():
                rest = {key: value for key, value in setting.items() if key != axis}
                groups.setdefault(name_of(rest) if rest else "", {})[int(setting[axis])] = setting
    return {name: dict(sorted(by_batch.items())) for name, by_batch in groups.items()}


def nodes_picture(evidence: Evidence, picture: Picture) -> dict[str, Any]:
    """A panel per quantity, with a line per group of settings that differ only in their nodes."""
    workload, expected = picture["workload"], {}
    for panel in picture["panels"]:
        points = {name: _points(evidence, workload, by_nodes, panel["y"])
                  for name, by_nodes in _over_nodes(evidence, workload).items()}  # fmt: skip
        lines: dict[str, Any] = {name: line(line_points, TIME) if line_points else {"x": [], "y": []}
                                 for name, line_points in points.items()}  # fmt: skip
        lines |= {each["name"]: UNCHECKED for each in panel["lines"] if each["name"].startswith(PUBLISHED)}
        expected[identity({"x": "nodes (number)", "y": panel["y"]})] = {"lines": lines}
    return expected


def _over_nodes(evidence: Evidence, workload: str) -> dict[str, dict[float, Labels]]:
    """The settings by their other axes, then by number of nodes; only groups with several numbers of nodes."""
    groups: dict[str, dict[float, Labels]] = {}
    settings = evidence.settings(workload)
    for setting in settings:
        numbers = {str(run.params.get("nodes", "")) for run in evidence.counting(workload, setting).values()}
        if len(numbers) == 1 and (number := numbers.pop()).isdecimal() and evidence.base(workload, setting, settings):
            rest = {axis: value for axis, value in setting.items() if axis != "nodes"}
            groups.setdefault(name_of(rest) if rest else "yours", {})[float(number)] = setting
    return {name: dict(sorted(by_nodes.items())) for name, by_nodes in groups.items() if len(by_nodes) > 1}


def _points(evidence: Evidence, workload: str, by_nodes: Mapping[float, Labels], quantity: str) -> list[Point]:
    points = [(count, _value(evidence, workload, setting, quantity)) for count, setting in by_nodes.items()]
    return [(count, *value) for count, value in points if value]


def _value(evidence: Evidence, workload: str, setting: Labels, quantity: str) -> tuple[float, float, str] | None:
    if quantity == EPOCHS_TO:
        sample = evidence.sample(workload, setting, EPOCHS)
        moments = moments_of(sample)
        return (moments[1], moments[2] or 0.0, sample.sign) if moments else None
    base = evidence.base(workload, setting, evidence.settings(workload))
    devices, fewest = (evidence.devices(workload, each) if each else None for each in (setting, base))
    if base is None or not devices or not fewest:
        return None
    growth = 1.0 if quantity == "speed-up" else devices / fewest
    samples = [evidence.sample(workload, each, TIME) for each in (setting, base)]
    quotient = ratio(TIME, samples[0], samples[1], growth, setting == base)
    return (quotient[0][1], quotient[0][2] or 0.0, quotient[1]) if quotient else None
