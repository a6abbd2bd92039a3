"""Checks that a worker will find its workload, and that the workload takes the model's and the dataset's options.

It does not import the workload, since that imports torch.
"""

from __future__ import annotations

import ast
import re
from importlib.machinery import ModuleSpec
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking.base import installation
from tracking.base.paths import with_home
from tracking.jobs.worker_command.constructor import Constructor, Parameter, Sources, spec_of
from tracking.machine.environment import available_bytes
from tracking.request.gpu_memory import WORKLOAD_PREFIX, estimated_memory

# A module with one of these makes names while it is imported, so only the worker can tell.
MAKES_NAMES = re.compile(
    r"import\s*\*|__getattr__|__path__|declare_namespace|globals\(|locals\(|vars\(|setattr\(|exec\(|sys\.modules|meta_path"
)
BY_THE_LOOP = ("data", "learning_rate", "weight_decay")  # arguments that the loop passes
KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,), "float": (int, float), "bool": (bool,), "str": (str,), "list": (list, tuple),
    "tuple": (list, tuple), "Sequence": (list, tuple), "dict": (dict,), "Mapping": (dict,),
}  # fmt: skip


def check_workload(config: RunConfig) -> None:
    """Raise ConfigError if the workload is missing, refuses an option, or does not fit into the memory.

    Other stacks have their own packages, and cluster nodes their own folders: there only the worker can tell.
    """
    if config.is_program():
        return
    elsewhere = config.cluster.kind != "none" or config.stack.kind != "native" or "PYTHONPATH" in config.stack.env
    module, _, name = config.model.workload.partition(":")
    is_ours = module.startswith("trainers.")
    module = installation.module(module) if is_ours else module
    if not elsewhere and (why := missing(module, name)):
        raise ConfigError(
            f"model.workload={config.model.workload}: {why}. Next: give package.module:NAME of a timetrial.Workload"
            " that this Python can import (PYTHONPATH must hold its folder)"
        )
    if is_ours or not elsewhere:  # Our own source is the same everywhere.
        check_hparams(config, module, name)
        check_dataset_options(config, module, name, has_files_here=is_ours and not elsewhere)
    check_host_memory(config)


def missing(module: str, name: str) -> str:
    """The certainly missing module or name, in words; empty if none is certainly missing."""
    parts = module.split(".")
    spec: ModuleSpec | None = None
    source = sources = ""  # of this part; of all parts so far
    for end in range(1, len(parts) + 1):
        above, part = spec, ".".join(parts[:end])
        try:
            spec = spec_of(part, above)
            if spec is None:
                return "" if MAKES_NAMES.search(sources) else f"module {part} does not exist"
            source = spec.loader.get_source(part) if spec.loader else ""  # type: ignore[attr-defined]
        except Exception:  # Anybody may add finders and loaders.
            return ""
        if source is None:  # a compiled module
            return ""
        sources += source
    if MAKES_NAMES.search(source) or re.search(rf"\b{re.escape(name)}\b", source):
        return ""
    return f"{module} has no {name}"


def check_host_memory(config: RunConfig) -> None:
    """Raise ConfigError if weights, gradients and optimizer state exceed the free memory.

    Linux would kill the run, or another process, while the model is made. Activations are left out: on CPUs their size
    is not measured.
    """
    if not config.model.workload.startswith(WORKLOAD_PREFIX) or config.on_gpu() or config.cluster.kind != "none":
        return
    estimate = estimated_memory(config, config.strategy, config.world_size())
    if estimate is None:
        return
    needed = config.cpu_processes * (estimate.parameters + estimate.gradients + estimate.optimizer)
    if needed > (free := available_bytes()):
        raise ConfigError(
            f"model={config.model.name}: its weights, gradients and optimizer state take {needed / 1e9:,.1f} GB, and"
            f" this machine has {free / 1e9:,.1f} GB free. Next: give a smaller size or recipe, or gpus="
        )


def check_hparams(config: RunConfig, module: str, name: str) -> None:
    """Raise ConfigError for a hyperparameter that the workload's constructor does not take, or that is missing.

    A value is refused if it certainly differs from the parameter's annotation. The worker finds what the source does
    not say.
    """
    constructor = Sources().constructor(module, name)
    if constructor is None:
        return
    parameters = [parameter for parameter in constructor.parameters if parameter.name not in BY_THE_LOOP]
    allowed = ", ".join(parameter.name for parameter in parameters) or "none"
    named = {parameter.name: parameter for parameter in parameters}
    for key, value in config.model.hparams.items():
        if key not in named and not constructor.open:
            raise ConfigError(f"model.hparams.{key}: {constructor.name} takes no such option. Allowed: {allowed}")
        if key in named:
            _check_value(constructor, named[key], value)
    missing = [
        parameter.name for parameter in parameters if parameter.required and parameter.name not in config.model.hparams
    ]
    if missing:
        raise ConfigError(
            f"model.hparams.{missing[0]}: {constructor.name} needs it, and it has no default. Next: give"
            f" +model.hparams.{missing[0]}=VALUE, or put it into the model's YAML"
        )


def check_dataset_options(config: RunConfig, module: str, name: str, has_files_here: bool) -> None:
    """Raise ConfigError for an option that the workload's dataset does not take, or for a missing one that it needs.

    `has_files_here`: a path that it needs must exist on this machine.
    """
    dataset = Sources().dataset(module, name, config.dataset.name)
    if dataset is None or dataset.open:
        return
    options = {key: value for key, value in vars(config.dataset).items() if key != "name"}
    given = [key for key, value in options.items() if value is not None]
    taken = {parameter.name: parameter for parameter in dataset.parameters if parameter.name in options}
    if unknown := [key for key in given if key not in taken]:
        unset = " ".join(f"dataset.{key}=null" for key in unknown)
        raise ConfigError(
            f"dataset.{unknown[0]}={options[unknown[0]]}: dataset={config.dataset.name} takes no such option. Allowed:"
            f" {', '.join(taken) or 'none'}. Next: leave it out; if a recipe or a YAML sets it: {unset}"
        )
    if missing := [key for key, parameter in taken.items() if parameter.required and key not in given]:
        raise ConfigError(
            f"dataset.{missing[0]}=null: dataset={config.dataset.name} needs it. Next: give dataset.{missing[0]}=VALUE"
        )
    path = config.dataset.path
    if has_files_here and path is not None and taken["path"].required and not _may_be_read(path):
        raise ConfigError(
            f"dataset.path={path}: dataset={config.dataset.name} reads its files there, but nothing is there that you"
            " may read. Next: put its files there, or give dataset.path=FOLDER or data_dir=FOLDER"
        )


def _may_be_read(path: str) -> bool:
    try:
        return with_home(path).exists()
    except OSError:  # a name that is too long, a folder of another user
        return False


def _check_value(constructor: Constructor, parameter: Parameter, value: Any) -> None:
    if parameter.annotation is None or _may_be(parameter.annotation, value):
        return
    raise ConfigError(
        f"model.hparams.{parameter.name}={value}: is not what {constructor.name} takes. Allowed:"
        f" {ast.unparse(parameter.annotation)}"
    )


def _may_be(annotation: ast.expr, value: Any) -> bool:
    """Whether a value may be of an annotated type; also True for types that are not known here."""
    match annotation:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _may_be(left, value) or _may_be(right, value)
        case ast.Constant(value=None):
            return value is None
        case ast.Constant(value=str(text)):  # a quoted type
            return _may_be(ast.parse(text, mode="eval").body, value)
        case ast.Subscript(value=ast.Name(id="Literal"), slice=choices):
            nodes = choices.elts if isinstance(choices, ast.Tuple) else [choices]
            return value in [node.value for node in nodes if isinstance(node, ast.Constant)]
        case ast.Subscript(value=ast.Name(id="list" | "Sequence"), slice=inner):
            return isinstance(value, list | tuple) and all(_may_be(inner, each) for each in value)
        case ast.Subscript(value=ast.Name(id=kind)) | ast.Name(id=kind) if kind in KINDS:
            is_bool = isinstance(value, bool) and kind != "bool"
            return isinstance(value, KINDS[kind]) and not is_bool
        case _:
            return True
