"""A run as its folder shows it now: progress, rate, the load of its machines, and warnings."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from conf.schema import RunConfig
from conf.target import text
from tracking.base import quantities
from tracking.base.number_text import significant
from tracking.jobs.follow import PHASES, job_words
from tracking.jobs.watch.signs import Signs, past_rates, slower
from tracking.record import Record, Result, attempts, files, journal, node_records, run_folder, typed_json

SILENT_SEC = 60.0  # A run writes a sample of its machine every few seconds.
SHARED_PERCENTAGE = 10.0  # of the cores; a monitor or a shell takes less
HEAD = ""  # the head node's keys contain no node name
GPU = re.compile(r"gpu_\d+_(\w+)")
SYSTEM = re.compile(rf"{quantities.SYSTEM}(?:([\w-]+)/)?([\w-]+)")


@dataclass
class LiveRun:
    """The state of one run, updated by `read`.

    `nodes` has the newest sample of each machine of the present attempt, the head node's under "".
    """

    folder: Path
    name: str = ""
    phase: str = "not started"
    epoch: float = 0  # the present one; after the run's end, the last one that was trained or evaluated
    schedule: attempts.Schedule = field(default_factory=attempts.Schedule)
    result: Result | None = None
    nodes: dict[str, dict[str, float]] = field(default_factory=dict)
    evaluated: dict[str, float] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    signs: Signs = field(default_factory=Signs)
    is_reported: bool = False  # whether the last line, after its end, was printed
    unreadable: str = ""  # why the run cannot be read

    def __post_init__(self) -> None:
        self.config, self._created_ms = RunConfig(), 0
        with self._naming(run_folder.CONFIG):
            self.config = run_folder.read_config(self.folder)
        with self._naming(run_folder.RUN):
            self._created_ms = run_folder.read_info(self.folder).created_ms
        self.name = self.name or self.folder.name
        self._offsets: dict[str, int] = {}
        self._now_sec = 0.0
        self._trained: float = 0  # the last epoch that was ended or evaluated
        self._resumed_ms = 0  # when the present attempt began; 0 for the first
        self._last_ms: dict[str, int] = {}  # the time of each node's newest record in the present attempt
        self._past: list[float] | None = None

    @contextmanager
    def _naming(self, file: str) -> Iterator[None]:
        """If the file is damaged, note that the run cannot be read."""
        try:
            yield
        except ValueError as error:
            self.unreadable = f"{file} cannot be read: {error}"

    def read(self) -> None:
        """Read what is new in the folder; while the file system is away, nothing changes."""
        if self.unreadable:
            return
        with suppress(OSError, ValueError):
            for file in [run_folder.JOURNAL, *node_records.other_journals(self.folder)]:
                for record, offset in journal.read(self.folder / file, self._offsets.get(file, 0)):
                    self._offsets[file] = offset
                    with suppress(ValueError, TypeError, LookupError, AttributeError):  # Skip foreign records.
                        self._see(record, HEAD if file == run_folder.JOURNAL else node_records.node_of(file))
            with self._naming(run_folder.RESULT):
                self.result = run_folder.read_result(self.folder)
        if self.result is not None:  # A loop begins an epoch after its last evaluation, and does not train it.
            self.epoch = self._trained

    def _see(self, record: Record, node: str) -> None:
        if node != HEAD and record.time_ms < self._resumed_ms:
            return  # A later attempt may have other nodes.
        self._last_ms[node] = max(self._last_ms.get(node, 0), record.time_ms)
        if record.kind == "metrics":
            self._sampled(record.values)
        if node != HEAD:
            return
        self.signs.see(record)
        if words := job_words.remark(record):
            self.remarks.append(words)
        if record.kind == "event":
            self._happened(record, str(record.key), record.values)

    def _sampled(self, values: Mapping[str, float]) -> None:
        samples: dict[str, dict[str, float]] = {}
        for key, value in values.items():
            if typed_json.is_number(value) and (match := SYSTEM.fullmatch(key)):
                samples.setdefault(match[1] or HEAD, {})[match[2]] = value
        self.nodes |= samples

    def _happened(self, event: Record, key: str, values: Mapping[str, Any]) -> None:
        self.phase = PHASES.get(key, self.phase)
        self._now_sec = event.clock_sec
        self.schedule.see(event)
        if key in ("epoch_stop", "eval_accuracy") and typed_json.is_number(values.get("epoch_num")):
            self._trained = values["epoch_num"]
        if key == attempts.RESUME:
            self._resumed(event.time_ms)
        elif key == "epoch_start" and typed_json.is_number(values.get("epoch_num")):
            self.epoch = values["epoch_num"]
        elif key == "eval_accuracy":
            if typed_json.is_number(values.get("epoch_num")):
                self.epoch = max(self.epoch, values["epoch_num"])  # the only record of a program's epochs
            self.evaluated = {
                name: value for name, value in values.get("metrics", {}).items() if typed_json.is_number(value)
            }
        elif key in ("checkpoint_stop", "checkpoint_saved") and "error" in values:
            self.remarks.append(f"no checkpoint: {values['error']}")

    def _resumed(self, time_ms: int) -> None:
        """Forget the machines of the earlier attempt; those that go on are known from their next records."""
        self._resumed_ms = time_ms
        self._last_ms = {node: last_ms for node, last_ms in self._last_ms.items() if last_ms >= time_ms}
        self._last_ms[HEAD] = time_ms  # The wall clock may have been set back since the last attempt.
        self.nodes = {node: usage for node, usage in self.nodes.items() if node != HEAD and node in self._last_ms}

    @property
    def has_ended(self) -> bool:
        return self.result is not None or bool(self.unreadable)

    @property
    def has_failed(self) -> bool:
        """Whether the run failed, or cannot be read; a run that its search stopped did not fail."""
        failure = self.result.failure if self.result else None
        return bool(self.unreadable) or (failure is not None and failure.kind != "search")

    @property
    def state(self) -> str:
        if self.result is None:
            return "unreadable" if self.unreadable else self.phase
        if self.result.failure and not self.has_failed:
            return "stopped"
        return f"failed: {self.result.failure.kind}" if self.result.failure else self.result.status

    @property
    def left(self) -> str:
        """The time left in the schedule at the pace so far; the target may be reached earlier."""
        left_sec = None if self.has_ended else self.schedule.left_sec(self._now_sec)
        return "" if left_sec is None else job_words.duration(left_sec)

    @property
    def loss(self) -> float | None:
        return self.signs.losses[-1] if self.signs.losses else None

    @property
    def metrics(self) -> str:
        """The newest evaluation: the metrics with targets, else all metrics."""
        targets = self.config.targets()
        names = [name for name in self.evaluated if name in targets] or list(self.evaluated)
        of = {name: f" of {text(value)}" for name, value in targets.items()}
        return ", ".join(f"{name} {significant(self.evaluated[name], 4)}{of.get(name, '')}" for name in names)

    def usage(self, node: str) -> dict[str, float]:
        """A node's newest sample; GPU sensors are averaged over the node's GPUs."""
        gathered: dict[str, list[float]] = {}
        for key, value in self.nodes.get(node, {}).items():
            match = GPU.fullmatch(key)
            gathered.setdefault(f"gpu_{match[1]}" if match else key, []).append(value)
        return {key: sum(values) / len(values) for key, values in gathered.items()}

    def warnings(self, now_ms: int) -> list[str]:
        """Warnings for the user, one a line."""
        words = list(self.remarks)
        if self.unreadable:
            return [self.unreadable]
        if self.result is not None:
            return words + ([self.result.failure.message] if self.result.failure else [])
        if diverged := self.signs.diverged():
            words.append(f"it diverges: {diverged}")
        if slow := slower(self.signs.rate, self._past_rates()):
            words.append(f"it is slow: {slow}")
        silent = {node: self.silent_sec(node, now_ms) for node in self._last_ms or [HEAD]}
        if all(silent.values()):
            words.append(f"silent for {job_words.duration(min(silent.values()))}")
        else:
            words += [
                f"node {node or 'head'}: silent for {job_words.duration(sec)}" for node, sec in silent.items() if sec
            ]
        return words + [warning for node in self.nodes for warning in self._of_node(node)]

    def silent_sec(self, node: str, now_ms: int) -> float:
        """Seconds since a node's newest record, if a live node would have written by now; else 0."""
        sec = (now_ms - self._last_ms.get(node, self._created_ms)) / 1e3
        return sec if sec > max(SILENT_SEC, 5 * self.config.tracking.system_metrics_interval_sec) else 0.0

    def _of_node(self, node: str) -> Iterator[str]:
        usage, place = self.usage(node), f"node {node}: " if node else ""
        for cause in ("power", "thermal"):
            if usage.get(f"gpu_{cause}_throttled_percentage"):
                yield f"{place}a GPU's clock is kept down by {'heat' if cause == 'thermal' else cause}"
        others = usage.get("neighbours_cpu_percentage", 0.0)
        if math.isfinite(others) and others > SHARED_PERCENTAGE:
            yield f"{place}others take {others:.0f} % of the cores"

    def _past_rates(self) -> list[float]:
        """The rates of earlier runs, read once this run has a rate to compare."""
        if self.signs.rate is None:
            return []
        if self._past is None:
            self._past = []
            with suppress(OSError, ValueError):
                self._past = past_rates(self.folder, self.config)
        return self._past


def live_runs(folder: Path, known: Mapping[Path, LiveRun]) -> dict[Path, LiveRun]:
    """The runs of a sweep's or a run's folder; runs that are `known` already keep their state."""
    runs = dict(known)
    for path in [folder, *files.folders(folder, run_folder.RUN)]:
        with suppress(OSError):  # the run's folder is still being made
            if path not in runs and files.exists(path / run_folder.CONFIG):
                runs[path] = LiveRun(path)
    return runs
