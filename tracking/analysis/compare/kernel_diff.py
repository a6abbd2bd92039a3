"""Compare two profiles: kernels in both with their shares of each, and kernels in one alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracking.analysis.results import Cell, Run, Runs, Table
from tracking.base.number_text import significant
from tracking.measure import kernels

SHARES = {"A: share": "{:.1%}", "B: share": "{:.1%}"}
CALLS = {"A: calls": "{:,.4g}", "B: calls": "{:,.4g}"}
NUMBERS = ("ms", "share", "calls")
LONGEST = 100  # characters of a kernel's name in a table; C++ names hold all template types


@dataclass(frozen=True)
class KernelRow:
    """A kernel, class or gap in two profiles. `values` holds each number for A and B; None if a run lacks the row."""

    name: str
    kind: str
    values: dict[str, tuple[float | None, float | None]]

    @property
    def shared(self) -> bool:
        return None not in self.values["ms"]


@dataclass(frozen=True)
class KernelDiff:
    """Rows in order of the larger of the two runs' times; shares are of the time of all kernels of a run."""

    rows: Sequence[KernelRow]
    classes: Sequence[KernelRow]
    gaps: Sequence[KernelRow]  # time without a kernel, by the host's activity and the phase; shares are of a step
    steps: Sequence[tuple[float, float]]  # for A and B: milliseconds of a step, and those in which any kernel ran
    marked: tuple[bool, bool] = (True, True)  # for A and B: False if a "step" is the whole trace

    def shares(self, shared: bool) -> tuple[float, float]:
        """For A and B, the share of the kernels in both runs (`shared`), or of those in one run alone."""
        values = [row.values["share"] for row in self.rows if row.shared == shared]
        return sum(value[0] or 0.0 for value in values), sum(value[1] or 0.0 for value in values)

    def sentence(self) -> str:
        count = sum(row.shared for row in self.rows)
        first, second = self.shares(shared=True)
        kernels_are = f"{count} kernels are" if count != 1 else "1 kernel is"
        return f"{kernels_are} in both, with {first:.0%} of the kernels' time in A and {second:.0%} in B"

    def pace(self) -> str:
        first, second = (
            f"{'a traced step' if marked else 'the whole trace'} takes {significant(step_ms, 4)} ms in {run},"
            f" with kernels for {busy_ms / step_ms:.0%} of it"
            for run, marked, (step_ms, busy_ms) in zip("AB", self.marked, self.steps, strict=True)
        )
        return f"{first}, and {second}"

    def tables(self, most: int) -> list[Table]:
        """Classes, then kernels in both, in A alone and in B alone, then gaps; the first `most` rows of each."""
        times = {
            f"{run}: ms {'a step' if marked else 'in all'}": "{:,.4g}"
            for run, marked in zip("AB", self.marked, strict=True)
        }
        columns = {"kernel": "", "class": ""} | times | SHARES | CALLS
        tables = [_table("by class", self.classes, most, columns)]
        for title, place in (("in both", None), ("only in A", 0), ("only in B", 1)):
            rows = [row for row in self.rows if _alone(row) == place]
            tables += [_table(f"kernels {title}", rows, most, columns)] if rows else []
        if self.gaps:
            of_gaps = {"host": "", "phase": ""} | times | SHARES
            tables.append(_table("no kernel ran, while the host did", self.gaps, most, of_gaps))
        return tables


def kernel_diff(store: Runs, runs: Sequence[Run]) -> tuple[KernelDiff, list[str]]:
    """The difference of two runs' profiles of rank 0, and notes. Raises ValueError for a run without a profile."""
    if len(runs) != 2:
        raise ValueError(f"--kernels compares the profiles of two runs, not {len(runs)}. Next: name two")
    profiles = [_profile(store, run) for run in runs]
    first, second = (profile.first for profile in profiles)
    notes = [f"{run.name}: {note}" for run, profile in zip(runs, profiles, strict=True) for note in profile.notes]
    if first["on_gpu"] != second["on_gpu"]:
        notes.append("one run was on a GPU, the other on a CPU: a CPU's operators do not compare with a GPU's kernels")
    kinds = [{row["class"]: row for row in summary["classes"]} for summary in (first, second)]
    names = _by_name(first["kernels"], second["kernels"])
    keys = sorted({*names[0], *names[1]}, key=lambda key: -max(side.get(key, {}).get("ms", 0.0) for side in names))
    return (
        KernelDiff(
            [KernelRow(*key, _values(*(side.get(key) for side in names))) for key in keys],
            [KernelRow("", kind, _values(*(side.get(kind) for side in kinds))) for kind in {**kinds[0], **kinds[1]}],
            _gaps(first, second),
            [(summary["step_ms"], summary["busy_ms"]) for summary in (first, second)],
            (profiles[0].marks_steps, profiles[1].marks_steps),
        ),
        notes,
    )


def _by_name(*sides: Sequence[Mapping[str, Any]]) -> list[dict[tuple[str, str], Mapping[str, Any]]]:
    """The kernels of either side by name and class.

    A program's trace has no phases, so it cannot mark the optimizer's kernels. A name with one row on each side is
    the same kernel, and gets A's class.
    """
    first: dict[str, list[str]] = {}
    second: dict[str, list[str]] = {}
    for kinds, side in zip((first, second), sides, strict=True):
        for row in side:
            kinds.setdefault(row["name"], []).append(row["class"])
    same = {name: kinds[0] for name, kinds in first.items() if len(kinds) == 1 == len(second.get(name, ()))}
    return [{(row["name"], same.get(row["name"], row["class"])): row for row in side} for side in sides]


def _profile(store: Runs, run: Run) -> kernels.Profile:
    try:
        profile = kernels.read(store.text(run, kernels.PROFILE))
    except FileNotFoundError:
        raise ValueError(
            f"{run.name}: no {kernels.PROFILE}, since its steps were not traced. Next: train it with profile=true"
        ) from None
    except ValueError as error:
        raise ValueError(f"{run.name}: {error}") from error
    if not profile.num_steps:
        raise ValueError(f"{run.name}: {'; '.join(profile.notes)}")
    return profile


def _gaps(*summaries: Mapping[str, Any]) -> list[KernelRow]:
    """The host's activities while no kernel ran, in order of the larger of the two runs' times."""
    sides = [{(row["host"], row["phase"]): row for row in summary.get("gaps", ())} for summary in summaries]
    keys = sorted({*sides[0], *sides[1]}, key=lambda key: -max(side.get(key, {}).get("ms", 0.0) for side in sides))
    return [KernelRow(*key, _values(*(side.get(key) for side in sides), numbers=("ms", "share"))) for key in keys]


def _values(
    *sides: Mapping[str, Any] | None, numbers: Sequence[str] = NUMBERS
) -> dict[str, tuple[float | None, float | None]]:
    first, second = sides
    return {key: (first[key] if first else None, second[key] if second else None) for key in numbers}


def _alone(row: KernelRow) -> int | None:
    """0 or 1: the run that alone has the kernel; None if both have it."""
    if row.shared:
        return None
    return 1 if row.values["ms"][0] is None else 0


def _table(title: str, rows: Sequence[KernelRow], most: int, columns: Mapping[str, str]) -> Table:
    cells: list[list[Cell]] = [
        [_short(row.name), row.kind, *(value for pair in row.values.values() for value in pair)] for row in rows[:most]
    ]
    left = len(rows) - len(cells)
    if not any(row.name for row in rows):
        cells, columns = [row[1:] for row in cells], dict([*columns.items()][1:])
    return Table(title, dict(columns), cells, f"{left} more; all are in {kernels.PROFILE}" if left else "")


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
