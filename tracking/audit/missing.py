"""The table of missing combinations against the journals: whether it has each of them, and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from tracking.audit.evidence import AuditResult, Evidence, Labels
from tracking.audit.run_figures import JournalFigures
from tracking.audit.stack_choice import SHORT, SOFTWARE, is_stack

MACHINE = {"instance", "env.gpu", "env.gpu_count", "env.node", "env.cpu", "env.topology", "env.hardware_id"}
# By CUDA's major version, from NVIDIA's compatibility guide.
OLDEST_DRIVERS = {"13": 580, "12": 525, "11": 450, "10": 410}
LONGEST = 200  # characters of a message


def compare(evidence: Evidence, tally: AuditResult) -> None:
    """Whether there is a table where something is missing."""
    for workload in sorted({run["workload"] for run in evidence.claimed.values()}):
        tables = [
            table for table in evidence.report["tables"] if (table["kind"], table["about"]) == ("missing", workload)
        ]
        due = bool(expected(evidence, workload))
        tally.note(len(tables) == due, f"{workload}: {len(tables)} tables of missing combinations, {int(due)} are due")


def rows_of(evidence: Evidence, table: Mapping[str, Any], rows: Sequence[Mapping[str, str]]) -> Iterator[Any]:
    """What each row claims, and whether the journals say so; see `tables`."""
    axes = evidence.report["by"]
    due = {tuple(labels.values()): why for labels, why in expected(evidence, table["about"])}
    yield "its rows", f"{len(rows)} combinations", {tuple(row[axis] for axis in axes) for row in rows} == due.keys()
    yield "its rows", f"{len(rows)} combinations", len(rows) == len(due)
    for row in rows:
        labels = tuple(row[axis] for axis in axes)
        yield " ".join(labels), row["why"], row["why"] == due.get(labels)


def expected(evidence: Evidence, workload: str) -> list[tuple[Labels, str]]:
    """Of all values that go together, those of which no run counts."""
    axes = evidence.report["by"]
    if not any(map(is_stack, axes)):
        return []
    there = evidence.settings(workload)
    choices = [
        {tuple(setting[axis] for axis in part) for setting in there if "(none)" not in [setting[axis] for axis in part]}
        for part in together(axes)
    ]
    due: list[tuple[Labels, str]] = []
    for chosen in product(*choices):
        by_axis = {
            axis: value
            for part, values in zip(together(axes), chosen, strict=True)
            for axis, value in zip(part, values, strict=True)
        }
        labels = {axis: by_axis[axis] for axis in axes}
        if not len(evidence.sample(workload, labels, evidence.report["metric"])):
            due.append((labels, why(evidence, workload, labels)))
    return due


def together(axes: Sequence[str]) -> list[list[str]]:
    """Axes whose values come with each other: of the software (but the driver), of the machine, each other alone."""
    of: dict[str, list[str]] = {}
    for axis in axes:
        name = SHORT.get(axis, axis)
        driver_apart = name == "env.driver" and "env.stack_id" not in axes
        kind = "software" if name in SOFTWARE and not driver_apart else "machine" if name in MACHINE else name
        of.setdefault(kind, []).append(axis)
    return [*of.values()]


def why(evidence: Evidence, workload: str, labels: Labels) -> str:
    members = evidence.all_of(workload, labels)
    order = [run["id"] for run in evidence.report["excluded"] if run["id"] in members]
    reasons = list(dict.fromkeys(reason(members[run_id]) for run_id in order)) or ["not run"]
    driver, cuda = tag_of(evidence, workload, labels, "env.driver"), tag_of(evidence, workload, labels, "env.cuda")
    branch, major = (text.split(".")[0] for text in (driver, cuda))
    told = any("needs driver" in words for words in reasons)  # by a run that was refused for it
    if branch.isdecimal() and int(branch) < OLDEST_DRIVERS.get(major, 0) and not told:
        reasons.append(f"CUDA {cuda} needs driver {OLDEST_DRIVERS[major]} or later, and this is {driver}")
    return "; ".join(reasons)


def reason(run: JournalFigures) -> str:
    """Why a run is in no mean."""
    if run.uncounted:
        text = f"not counted: {run.tags['timetrial.uncounted']}"
    elif not run.result:
        text = "not ended"
    elif run.failure:
        text = "diverged: nan" if run.failure == "nan" else f"failed: {run.failure}"
    else:
        text = "interrupted and resumed" if "resumed" in run.tags else "target missed"
    if run.failure != "bad_input":
        return text
    return f"{text} ({' '.join(run.result['failure']['message'].split())[:LONGEST]})"


def tag_of(evidence: Evidence, workload: str, labels: Labels, key: str) -> str:
    """The one value that a tag has in all runs which are alike in what decides it: the axis of it, else the software
    for a CUDA and the machine for a driver; "" where there are several or none."""
    parts = together(list(labels))
    named = [{SHORT.get(axis, axis) for axis in part} for part in parts]
    deciding = [part for part, names in zip(parts, named, strict=True) if key in names]
    kind = SOFTWARE - {"env.driver"} if key == "env.cuda" else MACHINE
    deciding += [part for part, names in zip(parts, named, strict=True) if names & kind]
    if not deciding:
        return ""
    alike = {axis: labels[axis] for axis in deciding[0]}
    runs = [evidence.runs[run_id] for run_id in evidence.members(workload)]
    values = {run.tags[key] for run in runs if key in run.tags and run.belongs(alike)}
    return str(values.pop()) if len(values) == 1 else ""
