"""The outcome of a program's run: the stack and devices that it used, and its figures or its failure."""

from __future__ import annotations

import errno
import os
import re
import signal
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import dropwhile
from pathlib import Path
from typing import Any

from conf.schema import RunConfig
from conf.target import text
from tracking.base import quantities
from tracking.jobs.program.listener import Listener
from tracking.machine.environment import libraries
from tracking.measure.programs import program_tags
from tracking.measure.training import clock, summary, throughput
from tracking.record import Failure, Journal, Record, Result, failures, journal, run_folder

REPORTED_SEC = 0.01  # shorter waits of the program are not reported
MAX_AHEAD_SEC = 1.0  # the most that a program's clock may be ahead of ours
# Words of programs whose write found no space; in other languages the error's number is the same.
NO_ROOM = re.compile(rf"{os.strerror(errno.ENOSPC)}|{os.strerror(errno.EDQUOT)}|ENOSPC|EDQUOT|\[Errno (?:28|122)\]")
MAX_LINE_CHARS = 200
UNCOUNTED = "timetrial.uncounted"  # the tag of a run that no mean counts, as tracking.analysis.results reads it


def conclude(config: RunConfig, run_dir: Path, log: Journal, listener: Listener, code: int) -> int:
    """Journal the findings and write the result; returns 0, or 1 if the program failed."""
    if not config.targets() and (targets := listener.account.targets):
        config = replace(config, model=replace(config.model, targets={config.dataset.name: dict(targets)}))
        log.params({"target_metric": ",".join(targets), "target_value": ",".join(map(text, targets.values()))})
        log.tags({"program.target": f"MLPerf's, of {listener.account.submission.name}"})
    size = world_size(config, listener)
    log.tags(tags(config, listener, size))
    if listener.account.params:
        log.params(dict(listener.account.params))
    if code:
        return fail(run_dir, failure_of(code, listener.last_words))
    events = journal.events(run_dir / run_folder.JOURNAL)
    try:
        clock.summarize(events, config.targets())
        check_span(events, listener.ended.clock_sec - listener.began.clock_sec)
    except ValueError as error:  # The figures cannot be trusted.
        return fail(run_dir, Failure("error", f"the program's log: {error}", failures.last_words(run_dir)))
    windows = throughput.program_windows(events)
    measured = throughput.summarize(windows, size) | ({} if size is None else {quantities.WORLD_SIZE: float(size)})
    # DAWNBench's clock leaves out evaluations, whose times are unknown without eval_start.
    unknown = () if clock.first(events, "eval_start") else (quantities.TIME_TO_ACCURACY_TRAIN_SEC,)
    summary.write(config, run_dir, log, windows, measured, config.program.unit, unknown)
    return 0


def check_span(events: Sequence[Record], lived_sec: float) -> None:
    """Raise ValueError if the program's own times span more than its run."""
    times = [event.clock_sec for event in dropwhile(lambda event: event.key != "run_start", events)]
    if times and (span_sec := max(times) - min(times)) > lived_sec + MAX_AHEAD_SEC:
        raise ValueError(f"its times span {span_sec:.3f} s, but it ran for {lived_sec:.3f} s: a clock was set forward")


def seen_facts(facts: dict[str, Any], paths: dict[str, str], folders: Mapping[str, str]) -> dict[str, Any]:
    """The fingerprint with the libraries and frameworks that the program loaded."""
    if folders:
        facts = facts | {"software": facts["software"] | {"framework": libraries.framework_words(folders)}}
    if not paths:
        return facts
    facts_of_libraries: dict[str, Any] = {"libraries": paths, "loaded": libraries.summary(paths)}
    versions = libraries.wheel_versions(list(paths.values()))
    # A library that PyTorch does not load in this stack has the version of its wheel, or an unknown one.
    torch_paths = facts["software"].get("libraries", {})
    others = [name for name in ("cudnn", "nccl") if name in paths and paths[name] != torch_paths.get(name)]
    facts_of_libraries |= {name: versions.get(paths[name]) for name in others}
    if "torch" not in facts["software"] and (cuda := versions.get(paths.get("cudart", ""))):
        facts_of_libraries["cuda"] = ".".join(cuda.split(".")[:2])
    software = {key: value for key, value in (facts["software"] | facts_of_libraries).items() if value is not None}
    return facts | {"software": software}


def world_size(config: RunConfig, listener: Listener) -> int | None:
    """The log's world size, else the number of used GPUs, or torchrun's ranks on a CPU; None if unknown."""
    if listener.account.world_size is not None:
        return listener.account.world_size
    if config.on_gpu():
        return listener.devices or None
    if config.program.launch == "torchrun" or config.cpu_processes == 1:
        return config.cpu_processes
    return None


def tags(config: RunConfig, listener: Listener, size: int | None) -> dict[str, str]:
    """Tags on how the figures were measured."""
    account = listener.account
    values = program_tags(account, listener.unread, listener.words.skipped)
    if account.started and not account.program_gave_start:
        values["program.clock"] = "from the program's start"
    if listener.waited_sec >= REPORTED_SEC:
        values["program.slowed"] = f"it waited {listener.waited_sec:.2f} s, since it printed faster than that was read"
    if listener.was_ended:
        values["program.ended"] = "at its target, by the search"
    requested = config.world_size()
    if size is not None and size != requested:
        values[UNCOUNTED] = f"world size {size}, not {requested} as requested"
    elif account.missing_metrics:  # No miss was measured.
        values[UNCOUNTED] = f"it reported no {', '.join(sorted(account.missing_metrics))}, the target's metric"
    return values


def failure_of(code: int, last_words: bytes = b"") -> Failure:
    """The failure of a program with this exit code (below 0: a signal); the follower adds its last words."""
    cut = len(last_words) >= failures.LAST_WORDS_BYTES
    words = failures.whole_lines(last_words.decode(errors="replace"), cut)
    if line := next((line for line in reversed(words.splitlines()) if NO_ROOM.search(line)), ""):
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
        return Failure("disk_full", f"the program {how}: {line.strip()[:MAX_LINE_CHARS]}", words)
    if code < 0:
        return Failure(f"signal:{-code}", f"the program was killed by {signal.Signals(-code).name}")
    return Failure("error", f"the program ended with exit code {code}")


def fail(run_dir: Path, failure: Failure) -> int:
    """Write the failure as the result and return 1."""
    status = "killed" if failure.kind.startswith("signal:") else "failed"
    run_folder.write_result(run_dir, Result(status, failure=failure))
    return 1
