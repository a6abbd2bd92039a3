"""The profile of a program's run, from the trace that the program or CUPTI in it wrote."""

from __future__ import annotations

import glob
import gzip
import shutil
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from conf.schema import RunConfig
from tracking.jobs.program import process, program_cupti
from tracking.jobs.program.moments import Moment
from tracking.measure import kernels
from tracking.record import Journal, documents
from tracking.request import program_command

MOST_RANKS = 16  # the most files that are read, in order
SAME_SEC = 2.0  # the most that a file system's times may lag


def write(config: RunConfig, run_dir: Path, log: Journal, began: Moment) -> None:
    """Write profile.json into the run's folder; without a trace, journal the reason. `began`: the program's start."""
    log.event("profile_start")
    values: dict[str, Any]
    try:
        cupti = program_cupti.is_traced(config)
        paths = program_cupti.traces(config, run_dir) if cupti else written(config, run_dir, began)
        profile = profile_of(config, paths)
        keep(paths[0], run_dir)
        values = {"num_steps": profile.num_steps, "notes": list(profile.notes)}
    except (OSError, ValueError, RecursionError) as error:
        profile = kernels.Profile(asked_steps=0, num_steps=0, notes=[str(error)])
        values = {"error": str(error)}
    with suppress(OSError):  # The disk is full.
        kernels.write(run_dir, profile)
        log.event("profile_stop", **values)
    kernels.remove_scratch(run_dir)


def written(config: RunConfig, run_dir: Path, began: Moment) -> list[Path]:
    """The files of profile.file, in order, that the program wrote. Raises ValueError without one."""
    template = config.profile.file or ""
    names = process.values(config, run_dir) | {"run_dir": glob.escape(str(run_dir.absolute()))}
    pattern = str(Path(config.program.cwd or ".") / program_command.with_values(template, "profile.file", names))
    matches = glob.glob(pattern, recursive=True)  # noqa: PTH207  (Path.glob takes no pattern that is absolute)
    paths = sorted(path for path in map(Path, matches) if path.is_file())
    if not paths:
        raise ValueError(f"profile.file={template}: the program wrote no such file ({pattern}). Next: correct the path")
    new = [path for path in paths if path.stat().st_mtime >= began.time_ms / 1e3 - SAME_SEC]
    if not new:
        raise ValueError(
            f"profile.file={template}: {paths[0]} is older than the run. Next: let the program write it anew"
        )
    return new


def profile_of(config: RunConfig, paths: list[Path]) -> kernels.Profile:
    """The profile of traces, one for each process of the program, in order. Raises ValueError and OSError."""
    summaries, notes = [], []
    for path in paths[:MOST_RANKS]:
        try:
            document = kernels.program_trace.load(path, config.profile.trace_megabytes * 1e6)
            summary, new_notes = kernels.program_trace.summary_of(document)
        except ValueError as error:
            raise ValueError(f"profile.file: {error}" if str(path) in str(error) else f"{path}: {error}") from None
        summaries.append(summary.plain())
        notes += [note for note in new_notes if note not in notes]
    notes += [f"only the first {MOST_RANKS} of {len(paths)} files were read"] if len(paths) > MOST_RANKS else []
    slowest = kernels.slowest(summaries)
    return kernels.Profile(
        asked_steps=summaries[0]["num_steps"],
        num_steps=summaries[0]["num_steps"],
        slowest=slowest,
        software={"program": "its own trace" if config.profile.file else "CUPTI"},
        ranks=[
            {"rank": rank, **{key: summary[key] for key in ("step_ms", "busy_ms", "collective_ms")}}
            for rank, summary in enumerate(summaries)
        ],
        summaries={str(rank): summaries[rank] for rank in sorted({0, slowest})},
        traces=[kernels.trace_name(0)],
        notes=notes,
    )


def keep(source: Path, run_dir: Path) -> None:
    """Write the first process's trace into the run's folder, compressed. Raises OSError."""
    with source.open("rb") as file:
        packed = file.read(2) == kernels.program_trace.GZIP
        file.seek(0)
        with (
            documents.replacing(run_dir / kernels.trace_name(0)) as target,
            nullcontext(target) if packed else gzip.GzipFile("", "wb", 6, target, 0) as sink,
        ):
            shutil.copyfileobj(file, sink)
