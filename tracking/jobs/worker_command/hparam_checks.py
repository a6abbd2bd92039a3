"""Checks a model's hyperparameters against its constructor, before anything is started."""

from __future__ import annotations

import ast
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking.jobs.worker_command.constructor import Constructor, Parameter, Sources

BY_THE_LOOP = ("data", "learning_rate", "weight_decay")  # arguments that the loop passes
KINDS: dict[str, tuple[type, ...]] = {
    "int": (int,), "float": (int, float), "bool": (bool,), "str": (str,), "list": (list, tuple),
    "tuple": (list, tuple), "Sequence": (list, tuple), "dict": (dict,), "Mapping": (dict,),
}  # fmt: skip


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
