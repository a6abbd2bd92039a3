"""Two profiles beside each other: the kernels in both with their share of either, and what is only in one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracking.analysis.results import Cell, Run, Runs, Table
from tracking.measure import kernels

COLUMNS = {"kernel": "", "class": "", "A: ms a step": "{:,.4g}", "B: ms a step": "{:,.4g}", "A: share": "{:.1%}",
           "B: share": "{:.1%}", "A: calls": "{:,.4g}", "B: calls": "{:,.4g}"}  # fmt: skip
GAP_COLUMNS = {"host": "", "phase": ""} | {
    key: form for key, form in COLUMNS.items() if key.endswith(("ms a step", "share"))
}
NUMBERS = ("ms", "share", "calls")
LONGEST = 100  # characters of a kernel's name in a table: C++ gives all types of a template


@dataclass(frozen=True)
class KernelRow:
    """`values` has of each number that of either run; None where the run has no such kernel."""

    name: str
    kind: str
    values: dict[str, tuple[float | None, float | None]]

    @property
    def shared(self) -> bool:
        return None not in self.values["ms"]


@dataclass(frozen=True)
class KernelDiff:
    """Rows by the time of the kernel that takes more of either run; shares are of the time of all kernels of a run."""

    rows: Sequence[KernelRow]
    classes: Sequence[KernelRow]
    gaps: Sequence[KernelRow]  # by what the host did and the phase, while no kernel ran; shares are of a step
    steps: Sequence[tuple[float, float]]  # of either run a step's milliseconds, and those in which any kernel ran

    def shares(self, shared: bool) -> tuple[float, float]:
        """The share that kernels in both, or those in one alone, have of either run."""
        own = [row.values["share"] for row in self.rows if row.shared == shared]
        return sum(value[0] or 0.0 for value in own), sum(value[1] or 0.0 for value in own)

    def sentence(self) -> str:
        count = sum(row.shared for row in self.rows)
        first, second = self.shares(shared=True)
        kernels_are = f"{count} kernels are" if count != 1 else "1 kernel is"
        return f"{kernels_are} in both, with {first:.0%} of the kernels' time of A and {second:.0%} of that of B"

    def pace(self) -> str:
        first, second = (
            f"{step_ms:,.4g} ms in {run}, with kernels for {busy_ms / step_ms:.0%} of it"
            for run, (step_ms, busy_ms) in zip("AB", self.steps, strict=True)
        )
        return f"a traced step takes {first}, and {second}"

    def tables(self, most: int) -> list[Table]:
        """Classes, then kernels in both and in either alone; of each the first so many."""
        tables = [_table("by class", self.classes, most)]
        for title, place in (("in both", None), ("only in A", 0), ("only in B", 1)):
            rows = [row for row in self.rows if _alone(row) == place]
            tables += [_table(f"kernels {title}", rows, most)] if rows else []
        if self.gaps:
            tables.append(_table("no kernel ran, while the host did", self.gaps, most, GAP_COLUMNS))
        return tables


def kernel_diff(store: Runs, runs: Sequence[Run]) -> tuple[KernelDiff, list[str]]:
    """The difference of two runs' profiles on their first rank, and notes. Raises ValueError for a run without one."""
    if len(runs) != 2:
        raise ValueError(f"--kernels compares the profiles of two runs, and {len(runs)} are named; give two")
    profiles = [_profile(store, run) for run in runs]
    first, second = (profile.first for profile in profiles)
    notes = [f"{run.name}: {note}" for run, profile in zip(runs, profiles, strict=True) for note in profile.notes]
    if first["on_gpu"] != second["on_gpu"]:
        notes.append("one run was on a GPU and the other was not: operators of a CPU are no kernels of a GPU")
    kinds = [{row["class"]: row for row in summary["classes"]} for summary in (first, second)]
    names = [{(row["name"], row["class"]): row for row in summary["kernels"]} for summary in (first, second)]
    keys = sorted({*names[0], *names[1]}, key=lambda key: -max(side.get(key, {}).get("ms", 0.0) for side in names))
    return (
        KernelDiff(
            [KernelRow(*key, _values(*(side.get(key) for side in names))) for key in keys],
            [KernelRow("", kind, _values(*(side.get(kind) for side in kinds))) for kind in {**kinds[0], **kinds[1]}],
            _gaps(first, second),
            [(summary["step_ms"], summary["busy_ms"]) for summary in (first, second)],
        ),
        notes,
    )


def _profile(store: Runs, run: Run) -> kernels.Profile:
    try:
        profile = kernels.read(store.text(run, kernels.PROFILE))
    except FileNotFoundError:
        raise ValueError(
            f"{run.name}: has no {kernels.PROFILE}, since its steps were not traced; train it with profile=true"
        ) from None
    except ValueError as error:
        raise ValueError(f"{run.name}: {error}") from error
    if not profile.num_steps:
        raise ValueError(f"{run.name}: {'; '.join(profile.notes)}")
    return profile


def _gaps(*summaries: Mapping[str, Any]) -> list[KernelRow]:
    """What the host did in either run while no kernel ran, by the time of that which takes more of either."""
    sides = [{(row["host"], row["phase"]): row for row in summary.get("gaps", ())} for summary in summaries]
    keys = sorted({*sides[0], *sides[1]}, key=lambda key: -max(side.get(key, {}).get("ms", 0.0) for side in sides))
    return [KernelRow(*key, _values(*(side.get(key) for side in sides), numbers=("ms", "share"))) for key in keys]


def _values(
    *sides: Mapping[str, Any] | None, numbers: Sequence[str] = NUMBERS
) -> dict[str, tuple[float | None, float | None]]:
    first, second = sides
    return {key: (first[key] if first else None, second[key] if second else None) for key in numbers}


def _alone(row: KernelRow) -> int | None:
    """Which run alone has the kernel; None for both."""
    if row.shared:
        return None
    return 1 if row.values["ms"][0] is None else 0


def _table(title: str, rows: Sequence[KernelRow], most: int, columns: Mapping[str, str] = COLUMNS) -> Table:
    cells: list[list[Cell]] = [
        [_short(row.name), row.kind, *(value for pair in row.values.values() for value in pair)] for row in rows[:most]
    ]
    left = len(rows) - len(cells)
    if columns is COLUMNS and not any(row.name for row in rows):
        cells, columns = [row[1:] for row in cells], {key: form for key, form in COLUMNS.items() if key != "kernel"}
    return Table(title, dict(columns), cells, f"{left} more; all are in {kernels.PROFILE}" if left else "")


def _short(name: str) -> str:
    return name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…"
