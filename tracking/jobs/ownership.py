"""Checks that a folder's configuration is this user's own, since acting on a folder executes its configuration.

To resume a run or follow a sweep is to run the workload, interpreter and shell lines that its file names. The result
goes to the server that run.json names. So the launcher signs both files when it writes them, and every command that
acts on a folder asks here first.

It also lists what a configuration executes, installs, reads and connects to, for a user who may trust it. Every option
of conf/schema.py is in one of the two tables here; a test checks that.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking.record import documents, files, run_folder, signature
from tracking.request.name_checks import check_text

SIGNATURE = ".signature"
# By option: the words before its value. Options with their default value are left out.
EXECUTED = {
    "model.workload": "the workload",
    "model.hparams": "its hyperparameter",
    "program.command": "the command",
    "program.cwd": "in the folder",
    "profile.file": "the trace read from",
    "alert.command": "when a run ends or is slow, the command",
    "cluster.before": "in each job the line of shell",
    "cluster.lines": "sbatch's option",
    "cluster.gpus_option": "sbatch's option",
    "cluster.mirror": "with your MLFLOW_* variables, MLflow written to by the",
    "stack.python": "the interpreter",
    "stack.torch": "PyTorch",
    "stack.requirements": "the package",
    "stack.overrides": "the package",
    "stack.index": "packages from",
    "stack.env": "with",
    "stack.container.engine": "the container engine",
    "stack.container.image": "the image",
    "stack.container.mounts": "its mount",
    "stack.container.user": "its user",
    "stack.container.options": "its option",
    "dataset.path": "the data in",
    "dataset.tokenizer": "its tokenizer",
    "dataset.download": "data written there, from a container as well: download",
    "tracking.uri": "MLflow at",
    "rendezvous": "other nodes at",
    "search.axes": "a search over",
}
# Numbers, switches, names, and texts that are only compared, searched for, quoted or written. Nothing that they name is
# started, fetched, opened or asked.
HARMLESS = (
    "model.name", "model.batch_size", "model.metrics", "model.targets", "model.optimizer.lr",
    "model.optimizer.lr_scaling", "model.optimizer.base_batch_size", "model.optimizer.weight_decay", "model.group_size",
    "model.global_batch", "model.fp8", "model.by_gpus",
    "model.exportable", "model.eval_every_steps", "model.eval_every_samples", "model.eval_at_epochs",
    "model.eval_after_steps", "eval_every_steps", "eval_every_samples", "eval_at_epochs", "eval_after_steps",
    "dataset.name", "dataset.size", "dataset.num_classes", "dataset.num_objects", "dataset.year", "dataset.decode",
    "dataset.num_threads", "dataset.max_image_pixels", "dataset.sequence_length", "dataset.validation_tokens",
    "dataset.train_tokens", "dataset.vocabulary", "dataset.order", "dataset.branches",
    "precision.name", "precision.trainer", "precision.tf32",
    "precision.needs_gpu", "precision.min_compute_capability", "stack.name", "stack.kind", "stack.container.shm",
    "stack.exclude_newer", "stack.expect", "instance.name", "instance.price_per_hour", "instance.currency",
    "instance.carbon_g_per_kwh", "instance.region", "instance.date", "instance.source", "tracking.experiment",
    "tracking.offline",
    "tracking.upload_model", "tracking.upload_wait_sec", "tracking.system_metrics_interval_sec", "sweep.resume",
    "sweep.jobs_at_once", "sweep.shuffle", "sweep.paired", "sweep.warm_up", "sweep.until_decided", "sweep.run_others",
    "study.name", "study.by", "study.reference", "study.smaller", "study.batch_size",
    "study.batch_factor", "study.data", "search.name", "search.objective", "search.budget",
    "search.max_finalists", "search.source", "search.setting", "search.phase", "search.block", "search.cap_sec",
    "search.trial", "program.launch", "program.metrics", "program.samples", "program.epoch", "program.step",
    "program.start", "program.unit", "program.samples_per_step", "program.tokens_per_step", "cluster.name",
    "cluster.kind", "cluster.partition", "cluster.account", "cluster.qos", "cluster.constraint", "cluster.time",
    "cluster.mem", "cluster.cpus_per_node", "cluster.exclusive", "cluster.jobs_at_once", "cluster.max_requeues",
    "cluster.warn_sec", "cluster.poll_sec", "alert.timeout_sec", "profile.steps", "profile.seed",
    "profile.trace_megabytes", "profile.nvtx", "profile.seconds", "profile.after_sec", "gpus", "nodes",
    "node_rank", "rendezvous_timeout_sec", "detach", "cpu_processes", "seed", "target", "target_set", "stop_at_target",
    "max_epochs", "batch_size", "global_batch_size", "limit_train_batches", "compile", "overlap_grad_reduce",
    "strategy", "log_every_n_steps", "checkpoint_every_epochs", "checkpoint_every_steps", "save_model", "log_model",
    "register_model", "price_per_hour", "price_per_gpu_hour", "timeout_sec", "warm_up", "resume", "trust", "runs_dir",
    "data_dir", "dry_run",
)  # fmt: skip


def sign(folder: Path, configs: Sequence[RunConfig], beside: Sequence[RunConfig] = ()) -> None:
    """Sign the configurations and the run.json that the launcher writes into a folder.

    Without a place for a key, nothing is signed. Configurations to be replaced are signed `beside` the new ones: the
    process may be killed before or after it replaces them.
    """
    lines = [signed for each in (configs, beside) if each and (signed := signature.sign(_signed(folder, each)))]
    if lines:
        documents.write_text(folder / SIGNATURE, "\n".join(lines))


def check(folder: Path, configs: Sequence[RunConfig], option: str, trust: bool, how: str = "trust=true") -> None:
    """Raise ConfigError unless this user signed the folder's configurations. The error lists all that they would run.

    `trust`: the user allows them. `option` names the folder; `how` is the option that trusts it.
    """
    for config in configs:
        check_text("", dataclasses.asdict(config))
    signatures = ""
    with suppress(OSError, ValueError):
        signatures = files.read_text(folder / SIGNATURE)
    signed = (_signed(folder, configs), _configurations(configs))
    if trust or any(signature.verify(value, line) for value in signed for line in signatures.split()):
        return
    phrases = [phrase for config in configs for phrase in would_run(config)]
    with suppress(OSError, ValueError):
        phrases.append(f"{EXECUTED['tracking.uri']} {run_folder.read_info(folder).tracking_uri!r}")
    runs = "; ".join(dict.fromkeys(phrases))
    raise ConfigError(
        f"{option}: its configuration was not written by you on this machine, or was changed since. It runs: {runs}."
        f" Next: if you trust its author, add {how}"
    )


def _signed(folder: Path, configs: Sequence[RunConfig]) -> dict[str, Any]:
    """The signed content. Earlier versions signed the configurations only."""
    identity = None
    with suppress(OSError, ValueError):
        identity = documents.read_json(folder / run_folder.RUN)
    return {"configurations": _configurations(configs), "run": identity}


def _configurations(configs: Sequence[RunConfig]) -> list[dict[str, Any]]:
    """The values that differ from the defaults, so that a version with more options signs the same."""
    default = dataclasses.asdict(RunConfig())
    return [_differing(dataclasses.asdict(config), default) for config in configs]


def _differing(values: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    differing = {}
    for key, value in values.items():
        default = defaults.get(key)
        if value != default:
            nested = isinstance(value, dict) and isinstance(default, dict)
            differing[key] = _differing(value, default or {}) if nested else value
    return differing


def would_run(config: RunConfig) -> list[str]:
    """A phrase for each value that differs from the default; dictionaries and lists have one for each part."""
    return [
        f"{words} {part}"
        for option, words in EXECUTED.items()
        if value_of(config, option) != value_of(RunConfig(), option)
        for part in parts(value_of(config, option), with_numbers=option != "model.hparams")
    ]


def value_of(config: RunConfig, option: str) -> Any:
    return functools.reduce(getattr, option.split("."), config)


def parts(value: Any, with_numbers: bool) -> list[str]:
    """Each part in Python's notation, without control characters; without a model's numbers, which execute nothing."""
    if isinstance(value, dict):
        named = {key: inner for key, inner in value.items() if with_numbers or holds_text(inner)}
        return [f"{key if str(key).isprintable() else repr(key)}={inner!r}" for key, inner in named.items()]
    return [repr(inner) for inner in (value if isinstance(value, list) else [value])]


def holds_text(value: Any) -> bool:
    if isinstance(value, dict):
        return any(holds_text(inner) for pair in value.items() for inner in pair)
    return any(map(holds_text, value)) if isinstance(value, list) else isinstance(value, str)
