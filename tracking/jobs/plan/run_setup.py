"""A run before its worker starts: its name, its folder, and the files for the worker and the mirror."""

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
from tracking.analysis.results import BETTER_TAG, EXPLORING, PAIRED_TAG, SEARCH_TAG, UNCOUNTED_TAG
from tracking.jobs import ownership
from tracking.record import Journal, RunInfo, documents, journal, run_folder, run_lock
from tracking.request.program_command import used_placeholders
from tracking.request.strategy_checks import memory_words

# Config keys whose values are in every run's name.
IN_RUN_NAME = ("model", "dataset", "precision", "gpus", "cpu_processes", "seed")
MEMORY_TAG = "memory.predicted"  # predicted memory of a GPU
MOST_CHARS = 500  # most characters of a program's command in a table of params


def run_name(config: RunConfig, varied: str = "", seeded: bool = True) -> str:
    """The run's name, `vgg-digits-bf16-2gpu-seed1`, followed by `varied`.

    Without `seeded` the seed is left out, for a script whose seed is not known.
    """
    devices = f"{config.num_gpus()}gpu" if config.on_gpu() else f"{config.cpu_processes}cpu"
    if isinstance(config.gpus, list):
        devices = f"gpu{'+'.join(map(str, config.gpus))}"
    name = f"{config.model.name}-{config.dataset.name}-{config.precision.name}-{devices}"
    name += f"-seed{config.seed}" if seeded else ""
    name += "-warm-up" if config.warm_up else ""
    return f"{name}-{varied}" if varied else name


def make_folder(name: str, root: Path, sweep: Path | None = None) -> run_lock.Owner:
    """Lock of a new run folder with this name, held by this process. Raises OSError."""
    prefix = "" if sweep else time.strftime("%Y%m%d-%H%M%S-")
    return run_lock.make(root, prefix + name)


@contextmanager
def removed_unless_whole(owner: run_lock.Owner) -> Iterator[None]:
    """Remove a new folder if filling it is interrupted, by a full disk or a signal."""
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
    """Write the files that the worker and the mirror need into a new folder. Raises OSError.

    `values` are the run's params; by default they are the config's.
    """
    run_folder.reserve(folder)
    info = RunInfo(name, config.tracking.experiment, uri, parent=run_folder.PARENT if sweep else None)
    documents.write_json(folder / run_folder.RUN, info)  # First: from here on `sync` can end the run.
    documents.write_text(folder / run_folder.OVERRIDES, yaml.safe_dump(list(overrides)))
    log = Journal(folder / run_folder.JOURNAL)
    log.params(params(config) if values is None else values)
    log.tags({"config_hash": config.config_hash()} | ({"sweep": sweep.name} if sweep else {}) | compared(config))
    log.close()
    run_folder.write_config(folder, config)
    ownership.sign(folder, [config])


def compared(config: RunConfig) -> dict[str, str]:
    """Tags for comparisons: why the run is not counted, pairing, predicted memory, and which direction is better."""
    tags = {UNCOUNTED_TAG: "warm-up"} if config.warm_up else {}
    if config.is_program() and config.profiled():
        tags[UNCOUNTED_TAG] = "its kernels were traced while it trained"
    tags |= {UNCOUNTED_TAG: EXPLORING} if config.search.phase == "explore" else {}
    tags |= {SEARCH_TAG: "decide"} if config.search.phase == "decide" else {}
    tags |= {PAIRED_TAG: "seed"} if config.sweep.paired else {}
    tags |= {MEMORY_TAG: words} if (words := memory_words(config)) else {}
    return tags | ({BETTER_TAG: metric.to_tag(directions)} if (directions := config.directions()) else {})


def params(config: RunConfig) -> dict[str, journal.Scalar]:
    """The run's params in MLflow; the worker adds those that only it knows (max_epochs)."""
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
    """Params of a program: its command, without values that timetrial does not control."""
    names = used_placeholders(config.program)
    unknown = {"compile", "global_batch_size"} | ({"batch_size"} if "batch_size" not in names else set())
    unknown |= {"optimizer/lr_scaling", "optimizer/weight_decay"} | ({"optimizer/lr"} if "lr" not in names else set())
    kept = {key: value for key, value in values.items() if key not in unknown}
    command = config.program.command
    return kept | {"program": command if len(command) <= MOST_CHARS else f"{command[: MOST_CHARS - 1]}…"}
