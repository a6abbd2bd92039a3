"""Earlier runs in `runs_dir`: the request, the hardware and the time of each."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

from conf.launch_options import InstanceConfig
from conf.schema import RunConfig
from tracking.base import quantities
from tracking.machine.environment import fingerprint
from tracking.record import documents, files, journal, run_folder

MOST_RUNS = 50  # newest runs that are read; more would delay a launcher
MOST_FOLDERS = 200  # folders that are searched for them
IMPORT = quantities.init_part("import")
FORKED_SEC = 1.0  # a forked worker has imported within 0.2 s, a new one after 4 s or more


@dataclass(frozen=True)
class Place:
    """The hardware and stack of a run. None means unknown, an empty text means absent."""

    gpu: str | None = None
    cpu: str | None = None
    stack_id: str | None = None

    def may_be(self, other: Place) -> bool:
        """Whether all known parts equal those of `other`."""
        pairs = ((self.gpu, other.gpu), (self.cpu, other.cpu), (self.stack_id, other.stack_id))
        return all(part in (None, other_part) for part, other_part in pairs)


@dataclass(frozen=True)
class RunRequest:
    """The request of a run. Times are comparable only between runs of equal `work`.

    Runs of one `setting` differ only in seed and price. An explicit default is the same setting.
    """

    work: tuple[Any, ...]
    batch_size: int
    setting: str

    @classmethod
    def of(cls, config: RunConfig) -> RunRequest:
        work = (
            config.model.name, config.program.command, config.dataset.name, config.dataset.size, config.precision.name,
            config.dataset.train_tokens, config.dataset.sequence_length,
            config.on_gpu(), config.processes_per_node(), config.nodes, config.stack.name, config.compiled(),
            config.strategy, config.cluster.kind, config.cluster.partition, config.sweep.jobs_at_once,
            config.targets(), config.stop_at_target, config.max_epochs, config.limit_train_batches,
            config.warm_up, config.profiled(),
        )  # fmt: skip
        same = dataclasses.replace(
            config, seed=0, price_per_hour=None, price_per_gpu_hour=None, instance=InstanceConfig(),
            batch_size=config.device_batch_size(), compile=config.compiled(), gpus=config.num_gpus(),
        )  # fmt: skip
        return cls(work, config.device_batch_size(), same.config_hash())


@dataclass(frozen=True)
class EarlierRun:
    """A run that finished, with or without its target. `seconds` come from `journal.span_sec`."""

    config: RunConfig
    place: Place
    seconds: float
    is_cold: bool  # it compiled at least one graph that was not cached
    samples_per_sec: float | None = None  # in the steady state; None if not measured
    import_sec: float = 0.0  # the part of `seconds` until its worker had imported PyTorch; 0 if not measured

    @property
    def has_imported(self) -> bool:
        """Whether it waited for imports, as the first run of a sweep does; later ones are forked."""
        return self.import_sec > FORKED_SEC

    @cached_property
    def request(self) -> RunRequest:
        return RunRequest.of(self.config)


def earlier_runs(runs_dir: Path, models: Collection[str], before_ms: int | None = None) -> list[EarlierRun]:
    """The newest finished runs of these models, newest first; with `before_ms`, those that had ended by then.

    Skips runs that were resumed, as their journals span the time between attempts, and folders that cannot be read.
    """
    return list(islice(_runs(runs_dir, models, before_ms), MOST_RUNS))


def finished_in(folder: Path) -> list[EarlierRun]:
    """The finished runs in a sweep's or run's folder, by the rules of `earlier_runs`."""
    return [run for path in run_folder.run_folders(folder) if (run := _readable(path))]


def _runs(runs_dir: Path, models: Collection[str], before_ms: int | None) -> Iterator[EarlierRun]:
    for folder in islice(newest_first(runs_dir), MOST_FOLDERS):
        if run := _readable(folder, models, before_ms):
            yield run


def _readable(folder: Path, models: Collection[str] = (), before_ms: int | None = None) -> EarlierRun | None:
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):  # a torn or foreign folder
        return _read(folder, models, before_ms)
    return None


def _read(folder: Path, models: Collection[str], before_ms: int | None) -> EarlierRun | None:
    """The finished run in a folder, or None. Without `models`, any model counts."""
    result = run_folder.read_result(folder)
    if result is None or result.status != "finished" or result.resumes:
        return None
    if models and result.start.get("model") not in (None, *models):  # Checked first: reading a config takes longer.
        return None
    config = run_folder.read_config(folder)
    if models and config.model.name not in models:
        return None
    seconds = journal.span_sec(folder / run_folder.JOURNAL)
    if seconds <= 0 or (before_ms is not None and run_folder.read_info(folder).created_ms + 1e3 * seconds > before_ms):
        return None
    rate = result.metrics.get(quantities.THROUGHPUT_SAMPLES_PER_SEC)
    is_cold, import_sec = bool(result.start.get("num_compiled")), min(seconds, result.metrics.get(IMPORT, 0.0))
    return EarlierRun(config, place_of(folder), seconds, is_cold, rate, import_sec)


def place_of(folder: Path) -> Place:
    """The hardware and stack of a run, from its fingerprint. Raises OSError, ValueError for a malformed file."""
    path = folder / run_folder.FINGERPRINT
    try:
        tags = fingerprint.tags(documents.read_json(path))
    except (AttributeError, LookupError, TypeError) as error:
        raise ValueError(f"{path}: is not a fingerprint ({error!r})") from error
    return Place(*(tags.get(f"env.{name}", "") for name in ("gpu", "cpu", "stack_id")))


def newest_first(runs_dir: Path) -> Iterator[Path]:
    """Run folders, newest first (names begin with a time), including those inside sweeps."""
    with suppress(OSError):
        for folder in reversed(files.folders(runs_dir, run_folder.RUN)):
            if files.exists(folder / run_folder.CONFIG):
                yield folder
            else:
                yield from reversed(files.folders(folder, run_folder.RUN))
