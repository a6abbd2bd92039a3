"""Listens to a program: its output, its journal's file and its processes go into the run's journal."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from conf.schema import RunConfig
from tracking.jobs.program.moments import Moment, now
from tracking.machine.environment import libraries, nvml
from tracking.machine.usage import compute_processes_of
from tracking.measure.programs import (
    DeclaredPatterns,
    LineSplitter,
    SkippedLines,
    TrainingEvents,
    WallClock,
    checked_values,
    is_torn,
    parse_entry,
    parse_record,
)
from tracking.record import Journal, Record, attempts, failures, files

# worker.log holds the first COPIED_BYTES of the output, and its last LAST_BYTES. The supervisor searches each line for
# secrets, at up to 30 MB/s. A program that prints more must not wait for that.
COPIED_BYTES = 8_388_608
LAST_BYTES = 65_536
CHUNK_BYTES = 1_048_576
JOURNAL_BYTES = 1_073_741_824  # most bytes of $TIMETRIAL_JOURNAL that are read
LOOK_BYTES = 16_777_216  # most bytes of it that are read at a time, so that printed output does not wait
LOOK_SEC = 1.0  # between looks at the program's processes


class Copy:
    """Copies the beginning and the end of the output to worker.log."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._left = COPIED_BYTES
        self._last = b""

    def write(self, chunk: bytes) -> None:
        first, later = chunk[: self._left], chunk[self._left :]
        self._left -= len(first)
        self._put(first)
        self._last = (self._last + later)[-LAST_BYTES:]

    def end(self) -> None:
        if self._last:
            self._put(b"\n[... the program printed more than is kept here; these are its last words ...]\n")
            self._put(self._last)

    def _put(self, content: bytes) -> None:
        with suppress(OSError):  # The reader is gone, and the program goes on.
            while content:
                content = content[os.write(self._descriptor, content) :]


class Listener:
    """Journals a program: `hear` takes output, `look` is called now and then, `close` at the program's end."""

    def __init__(self, config: RunConfig, journal: Journal, program_journal: Path, gpu_uuids: Sequence[str]) -> None:
        declared = config.program
        self.began = self.ended = began = now()
        self.waited_sec = 0.0  # time that the program waited because its output was unread
        tokens = (declared.tokens_per_step or 0) / (declared.samples_per_step or 1)
        clock, since = WallClock(*began), None if declared.start else began
        self.account = TrainingEvents(
            clock, config.targets(), since, directions=config.directions(), tokens_per_sample=tokens
        )
        self.unread = SkippedLines()
        self.last_words = b""  # kept here too, since a full disk may cut worker.log
        self.libraries: dict[str, str] = {}
        self.frameworks: dict[str, str] = {}  # the folder of packages of each imported framework
        self.devices = 0  # most GPUs of the run that the program used at once
        words = (declared.patterns(), declared.samples, declared.epoch, declared.step, declared.start)
        self.words = DeclaredPatterns(*words, declared.samples_per_step)
        self.has_reached = False  # whether it has reached all its targets
        self.was_ended = False  # whether the worker ended it at its targets
        self._targets = config.targets()
        self._journal = journal
        self._program_journal, self._position = program_journal, 0
        self._printed, self._written = LineSplitter(), LineSplitter()
        self._copy = Copy(sys.stdout.fileno())
        self._uuids = list(gpu_uuids)
        self._before = self._computing()
        self._looked = 0.0

    def hear(self, chunk: bytes, at: Moment | None = None) -> None:
        """Take a piece of the program's output, and the time when it became readable (default: now)."""
        at = at or now()
        self.account.clock.follow(*at)
        self._copy.write(chunk)
        self.last_words = (self.last_words + chunk[-failures.LAST_WORDS_BYTES :])[-failures.LAST_WORDS_BYTES :]
        self._journal_lines(self._printed.feed(chunk), at)

    def look(self, pids: set[int]) -> None:
        """Read the program's journal, and look at the libraries and GPUs that its processes use."""
        self._read_journal(LOOK_BYTES)
        self._looked = time.monotonic()
        self.libraries = libraries.mapped_by(sorted(pids)) | self.libraries
        self.frameworks = libraries.frameworks_of(sorted(pids)) | self.frameworks
        pids_of = self._computing()
        used = sum(bool(pids - self._before.get(index, set())) for index, pids in pids_of.items())
        self.devices = max(self.devices, used)

    def due(self) -> bool:
        """Whether it is time for the next `look`."""
        return time.monotonic() - self._looked >= LOOK_SEC

    def close(self, ended: Moment | None = None) -> None:
        """Record unfinished lines and the end of the training. Called when the program has ended."""
        self.ended = ended or now()
        self._journal_lines(self._printed.end(), self.ended)
        self._copy.end()
        self._read_journal(JOURNAL_BYTES)
        self._journal_records(self._written.end())
        self._append(self.account.end(*self.ended))

    def _journal_lines(self, lines: Sequence[str], at: Moment) -> None:
        for line in lines:
            entry = parse_entry(line)
            if entry is not None and entry.time_ms <= at.time_ms + checked_values.LATE_MS:
                self._append(self.account.read_entry(entry))
                continue
            if entry is not None:
                self.unread.add("a line of MLPerf's log is dated a day or more ahead", line)
            elif is_torn(line):
                self.unread.add("a line of MLPerf's log cannot be read", line)
            self._append(self.account.read_matches(self.words.matches(line), *at))

    def _read_journal(self, most_bytes: int) -> None:
        try:
            file = files.opened(self._program_journal, "rb")
        except FileNotFoundError:
            return
        except OSError as error:  # The program made a link, a pipe or a folder of this name.
            self.unread.add_file_problem(f"$TIMETRIAL_JOURNAL {error.strerror}")
            return
        with file:
            file.seek(self._position)
            end = min(self._position + most_bytes, JOURNAL_BYTES)
            while chunk := file.read(min(CHUNK_BYTES, end - self._position)):
                self._position += len(chunk)
                self._journal_records(self._written.feed(chunk))
            if self._position >= JOURNAL_BYTES:
                self.unread.add_file_problem(f"$TIMETRIAL_JOURNAL is not read beyond {JOURNAL_BYTES} bytes")

    def _journal_records(self, lines: Sequence[str]) -> None:
        for line in lines:
            try:
                records = self.account.read_record(parse_record(line, *now()))
            except ValueError as error:
                self.unread.add(f"a line of $TIMETRIAL_JOURNAL {error}", line)
                continue
            self._append(records)

    def _append(self, records: Sequence[Record]) -> None:
        for record in records:
            self._journal.append(record)
            if record.key == "eval_accuracy":
                self.has_reached |= attempts.reached(record.values["metrics"], self._targets)

    def _computing(self) -> dict[int, set[int]]:
        """The processes on the run's GPUs; empty without NVML."""
        if not self._uuids:
            return {}
        try:
            return {index: set(pids) for index, pids in compute_processes_of(self._uuids).items()}
        except Exception:  # NVML is missing or refuses, with one of many exceptions.
            return {}


def uuids_of(config: RunConfig) -> list[str]:
    """The UUIDs of the run's GPUs; empty on a CPU."""
    return [gpu.uuid for gpu in config.chosen(nvml.visible_gpus())] if config.on_gpu() else []
