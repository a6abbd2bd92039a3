"""A run before its worker starts: its name, its folder, and what the worker and the mirror are told in it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from conf import metric
from conf.schema import RunConfig
from conf.target import text
from tracking.analysis.results import BETTER_TAG, EXPLORING, PAIRED_TAG, UNCOUNTED_TAG
from tracking.jobs.trust import ownership
from tracking.record import Journal, RunInfo, documents, journal, run_folder, run_lock
from tracking.request import gpu_memory
from tracking.request.program_command import used

# The keys of a config whose values are in a run's name.
IN_RUN_NAME = ("model", "dataset", "precision", "gpus", "cpu_processes", "seed")
MEMORY_TAG = "memory.predicted"  # what the run takes of a GPU, by arithmetic
MOST_CHARS = 500  # the part of a program's command that a table of params shows


def run_name(config: RunConfig, varied: str = "", seeded: bool = True) -> str:
    """A name that tells a runs table what it was: `vgg-digits-bf16-2gpu-seed1`; and `varied`, where that is not all.

    A script's run whose seed is not known is not `seeded`.
    """
    devices = f"{config.num_gpus()}gpu" if config.on_gpu() else f"{config.cpu_processes}cpu"
    if isinstance(config.gpus, list):
        devices = f"gpu{'+'.join(map(str, config.gpus))}"
    name = f"{config.model.name}-{config.dataset.name}-{config.precision.name}-{devices}"
    name += f"-seed{config.seed}" if seeded else ""
    name += "-warm-up" if config.warm_up else ""
    return f"{name}-{varied}" if varied else name


def make_folder(name: str, root: Path, sweep: Path | None = None) -> run_lock.Owner:
    """Make the folder of the run of this name, which this process owns from then on. Raises OSError."""
    prefix = "" if sweep else time.strftime("%Y%m%d-%H%M%S-")
    return run_lock.make(root, prefix + name)


@contextmanager
def removed_unless_whole(owner: run_lock.Owner) -> Iterator[None]:
    """Remove a new folder where what fills it is cut off, by a full disk or a signal: nothing half-made stays."""
    try:
        yield
    except BaseException:
        shutil.rmtree(owner.folder, ignore_errors=True)
        owner.release()
        raise


def prepare(
    folder: Path, name: str, config: RunConfig, overrides: Sequence[str], uri: str, sweep: Path | None = None,
    values: Mapping[str, journal.Scalar] | None = None,
) -> None:  # fmt: skip
    """Fill a new folder with all that the worker and the mirror need. Raises OSError.

    `values` are the run's params; by default they are the config's.
    """
    run_folder.reserve(folder)
    info = RunInfo(name, config.tracking.experiment, uri, parent=run_folder.PARENT if sweep else None)
    documents.write_json(folder / run_folder.RUN, info)  # First: from here on `sync` ends it, if nobody else does.
    documents.write_text(folder / run_folder.OVERRIDES, yaml.safe_dump(list(overrides)))
    log = Journal(folder / run_folder.JOURNAL)
    log.params(params(config) if values is None else values)
    log.tags({"config_hash": config.config_hash()} | ({"sweep": sweep.name} if sweep else {}) | compared(config))
    log.close()
    run_folder.write_config(folder, config)
    ownership.sign(folder, [config])


def compared(config: RunConfig) -> dict[str, str]:
    """The tags of a run that say how it is compared: whether a mean counts it, with what, and what is better."""
    tags = {UNCOUNTED_TAG: "warm-up"} if config.warm_up else {}
    if config.is_program() and config.profiled():
        tags[UNCOUNTED_TAG] = "its kernels were traced while it trained"
    tags |= {UNCOUNTED_TAG: EXPLORING} if config.search.phase == "explore" else {}
    tags |= {PAIRED_TAG: "seed"} if config.sweep.paired else {}
    tags |= {MEMORY_TAG: said} if (said := gpu_memory.words(config)) else {}
    return tags | ({BETTER_TAG: metric.written(directions)} if (directions := config.directions()) else {})


def params(config: RunConfig) -> dict[str, journal.Scalar]:
    """What MLflow shows and compares as params; the worker adds what only it knows (max_epochs)."""
    optimizer = config.model.optimizer
    targets = config.targets()
    values: dict[str, journal.Scalar] = {
        "model": config.model.name,
        "dataset": config.dataset.name,
        "precision": config.precision.name,
        "stack": config.stack.name,
        "instance": config.instance.name,
        "gpus": config.num_gpus(),
        "gpu_indices": ",".join(map(str, config.gpus)) if isinstance(config.gpus, list) else None,
        "nodes": config.nodes,
        "cpu_processes": config.cpu_processes if not config.on_gpu() else None,
        "seed": config.seed,
        "target_metric": ",".join(targets) or None,
        "target_value": ",".join(map(text, targets.values())) or None,
        "batch_size": config.device_batch_size(),
        "global_batch_size": config.samples_per_step(),
        "limit_train_batches": config.limit_train_batches,
        "compile": config.compiled(),
        "strategy": config.strategy if config.sharded() else None,
        "optimizer/lr": optimizer.lr,
        "optimizer/lr_scaling": optimizer.lr_scaling,
        "optimizer/weight_decay": optimizer.weight_decay,
    }
    if config.is_program():
        values = of_program(config, values)
    values |= {f"hparams/{key}": str(value) for key, value in config.model.hparams.items()}
    return {key: value for key, value in values.items() if value is not None}


def of_program(config: RunConfig, values: dict[str, journal.Scalar]) -> dict[str, journal.Scalar]:
    """Without what timetrial does not decide of a program, and with its command."""
    names = used(config.program)
    unknown = {"compile", "global_batch_size"} | ({"batch_size"} if "batch_size" not in names else set())
    unknown |= {"optimizer/lr_scaling", "optimizer/weight_decay"} | ({"optimizer/lr"} if "lr" not in names else set())
    kept = {key: value for key, value in values.items() if key not in unknown}
    command = config.program.command
    return kept | {"program": command if len(command) <= MOST_CHARS else f"{command[: MOST_CHARS - 1]}…"}
