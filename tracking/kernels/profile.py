"""The profile of a run as files of its folder: `profile.json`, and its kernels as a table for spreadsheets."""

from __future__ import annotations

import csv
import io
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracking.run import documents

PROFILE = "profile.json"
KERNELS = "profile_kernels.csv"
SCRATCH = ".profile-"  # begins the name of a folder for traces as they are written; the dot keeps it from MLflow
NAMED = 3  # classes that are named
COLUMNS = ("name", "class", "calls", "ms", "share")


@dataclass(frozen=True)
class Profile:
    """`ranks` have rank, step_ms, busy_ms and collective_ms; `summaries` are of the first rank and of `slowest`.

    `notes` say what was not traced, and why; `traces` are names of files.
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
        """The summary of the first rank."""
        return self.summaries["0"]

    def words(self) -> str:
        """`convolution 48 %, copy 15 %, optimizer 14 %; none for 2 % of a step`; the notes where nothing was traced."""
        if not self.num_steps:
            return "; ".join(self.notes)
        shares = [f"{row['class']} {row['share']:.0%}" for row in self.first["classes"][:NAMED]]
        idle = 1 - self.first["busy_ms"] / self.first["step_ms"]
        return f"{', '.join(shares)}; none for {idle:.0%} of a step".replace("%", " %")


def trace_name(rank: int) -> str:
    return f"profile_trace_rank{rank}.json.gz"


def slowest(summaries: Sequence[Mapping[str, Any]]) -> int:
    """The rank that works longest in a step: whoever is early waits in a collective for it."""
    return max(range(len(summaries)), key=lambda rank: summaries[rank]["step_ms"] - summaries[rank]["collective_ms"])


def write(folder: Path, profile: Profile) -> None:
    """Raises OSError."""
    text = io.StringIO()
    table = csv.writer(text)
    table.writerow(["rank", "kernel", "class", "calls_per_step", "ms_per_step", "share"])
    for rank, summary in profile.summaries.items():
        table.writerows([rank, *(kernel[column] for column in COLUMNS)] for kernel in summary["kernels"])
    documents.write_text(folder / KERNELS, text.getvalue())
    documents.write_json(folder / PROFILE, profile)


def remove_scratch(folder: Path) -> None:
    """Remove what a worker that was killed while it traced has left; a trace can be large."""
    for path in folder.glob(f"{SCRATCH}*"):
        shutil.rmtree(path, ignore_errors=True)


def read(text: str) -> Profile:
    """Raises ValueError for what is no profile."""
    try:
        profile = Profile(**json.loads(text))
        rows = profile.first["kernels"] if profile.num_steps else []
        if all({*COLUMNS} <= row.keys() for row in rows):
            return profile
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{PROFILE}: is damaged ({type(error).__name__}: {error}); put a copy in place") from error
    raise ValueError(f"{PROFILE}: is damaged (a kernel lacks a figure); put a copy in place")
