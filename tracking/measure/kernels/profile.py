"""The profile of a run as files of its folder: `profile.json`, and its kernels as a table for spreadsheets."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracking.base.safe_text import in_csv
from tracking.record import documents

PROFILE = "profile.json"
KERNELS = "profile_kernels.csv"
SCRATCH = ".profile-"  # prefix of the folders for traces being written; the dot keeps them from MLflow
UNMARKED = "the trace marks no steps"  # prefix of a note: the profile's figures are of the whole trace
NUM_NAMED_CLASSES = 3  # classes named in `words`
ROWS = {"kernels": ("name", "class"), "classes": ("class",), "gaps": ("phase", "host")}  # the keys of the rows
MAX_AMOUNT = 1e15  # milliseconds or calls of a step
COLUMNS = ("name", "class", "calls", "ms", "share")


@dataclass(frozen=True)
class Profile:
    """The profile of a run.

    `ranks` have rank, step_ms, busy_ms and collective_ms. `summaries` hold rank 0 and `slowest`. `notes` say what was
    not traced, and why. `traces` are file names.
    """

    asked_steps: int
    num_steps: int
    slowest: int = 0
    software: Mapping[str, Any] = field(default_factory=dict)
    ranks: Sequence[Mapping[str, Any]] = field(default_factory=list)
    summaries: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # by rank
    traces: Sequence[str] = field(default_factory=list)
    notes: Sequence[str] = field(default_factory=list)

    @property
    def first(self) -> Mapping[str, Any]:
        """The summary of rank 0."""
        return self.summaries["0"]

    @property
    def marks_steps(self) -> bool:
        """Whether the figures are of a step, and not of the whole trace."""
        return not any(note.startswith(UNMARKED) for note in self.notes)

    def words(self) -> str:
        """`convolution 48 %, copy 15 %, optimizer 14 %; none for 2 % of a step`; without a traced step, the notes."""
        if not self.num_steps:
            return "; ".join(self.notes)
        shares = [f"{row['class']} {row['share']:.0%}" for row in self.first["classes"][:NUM_NAMED_CLASSES]]
        idle = 1 - self.first["busy_ms"] / self.first["step_ms"]
        whole = "a step" if self.marks_steps else "the trace"
        return f"{', '.join(shares)}; none for {idle:.0%} of {whole}".replace("%", " %")


def trace_name(rank: int) -> str:
    return f"profile_trace_rank{rank}.json.gz"


def slowest(summaries: Sequence[Mapping[str, Any]]) -> int:
    """The rank that works longest in a step; the others wait for it in a collective."""
    return max(range(len(summaries)), key=lambda rank: summaries[rank]["step_ms"] - summaries[rank]["collective_ms"])


def write(folder: Path, profile: Profile) -> None:
    """Write the profile's two files into a run's folder. Raises OSError."""
    rows = [["rank", "kernel", "class", "calls_per_step", "ms_per_step", "share"]]
    for rank, summary in profile.summaries.items():
        rows += [[rank, *(kernel[column] for column in COLUMNS)] for kernel in summary["kernels"]]
    documents.write_text(folder / KERNELS, in_csv(rows))
    documents.write_json(folder / PROFILE, profile)


def remove_scratch(folder: Path) -> None:
    """Remove the traces of a worker that was killed while tracing, since they can be large."""
    for path in folder.glob(f"{SCRATCH}*"):
        shutil.rmtree(path, ignore_errors=True)


def read(text: str) -> Profile:
    """The profile in a text. Raises ValueError for another content, since anybody may have written the file."""
    try:
        profile = Profile(**documents.parsed(text))
        _check_fields(profile)
        for rank, summary in profile.summaries.items():
            _check_summary(f"rank {rank}", summary)
        if profile.num_steps and "0" not in profile.summaries:
            raise ValueError("rank 0 is missing")
    except (ValueError, TypeError) as error:
        raise ValueError(f"{PROFILE}: is damaged ({str(error)[:200]}). Next: put a copy in place") from None
    return profile


def _check_fields(profile: Profile) -> None:
    for name in ("asked_steps", "num_steps", "slowest"):
        if type(getattr(profile, name)) is not int:
            raise ValueError(f"{name} is not a whole number")
    for name in ("software", "summaries"):
        if not isinstance(getattr(profile, name), dict):
            raise ValueError(f"{name} is not a mapping")
    for name, kind in (("ranks", dict), ("traces", str), ("notes", str)):
        value = getattr(profile, name)
        if not isinstance(value, list) or not all(isinstance(part, kind) for part in value):
            raise ValueError(f"{name} is not a list of {'mappings' if kind is dict else 'texts'}")


def _check_summary(where: str, summary: Any) -> None:
    _check_row(where, summary, {"on_gpu": bool, **dict.fromkeys(("step_ms", "busy_ms", "collective_ms"), float)})
    if not summary["step_ms"]:
        raise ValueError(f"{where}: step_ms is 0")
    for name, texts in ROWS.items():
        rows = summary.get(name, [])
        if not isinstance(rows, list):
            raise ValueError(f"{where}: {name} is not a list")
        numbers = ("ms", "share") if name == "gaps" else ("ms", "share", "calls")
        for row in rows:
            _check_row(f"{where}: {name}", row, dict.fromkeys(texts, str) | dict.fromkeys(numbers, float))


def _check_row(where: str, row: Any, kinds: Mapping[str, type]) -> None:
    for key, kind in kinds.items():
        value = row.get(key) if isinstance(row, dict) else None
        if not (_is_amount(value) if kind is float else isinstance(value, kind)):
            raise ValueError(f"{where}: {key} is {value!r}")


def _is_amount(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= MAX_AMOUNT
