"""The command of model=program: splits it, fills in its placeholders, and refuses wrong options."""

from __future__ import annotations

import re
import shlex
import string
from collections.abc import Iterable, Mapping
from pathlib import Path

from conf.launch_options import PER_STEP, ProgramConfig
from conf.schema import ConfigError, RunConfig
from tracking.request.name_checks import is_reserved

LAUNCHES = ("none", "torchrun")
PLACEHOLDERS = ("seed", "gpus", "processes", "batch_size", "lr", "max_epochs", "precision", "run_dir", "stack")
DEFAULT_LR = 1.0  # the default learning rate, in conf/model/program.yaml
# Options that do not reach a program.
WITHOUT_EFFECT = (
    "compile", "strategy", "overlap_grad_reduce", "limit_train_batches", "checkpoint_every_epochs",
    "checkpoint_every_steps", "log_every_n_steps",
)  # fmt: skip
# Options that users type without Hydra's quotes.
QUOTED_OPTIONS = {f"program.{key}" for key in ("command", "samples", "epoch", "step", "start")} | {"profile.file"}
NUM_GROUPS = {"samples": 1, "epoch": 1, "step": 1, "start": 0}  # required number of groups
METRIC_PATTERN = re.compile(r"[\w.\-]+(?:/[\w.\- ]*[\w.\-])*")  # keys that MLflow accepts


def quoted(argument: str) -> str:
    """An argument of launch.py. The value of a program's option gets Hydra's quotes, unless it is quoted already.

    Hydra would parse braces and commas in an unquoted value.
    """
    key, equals, value = argument.partition("=")
    if key not in QUOTED_OPTIONS or not equals or not value or (value[0] in "'\"" and value[-1] == value[0]):
        return argument
    escaped = re.sub(r"(\\*)'", lambda match: 2 * match[1] + "\\'", value)
    return f"{key}='{escaped}{trailing_backslashes(escaped)}'"


def trailing_backslashes(text: str) -> str:
    return text[len(text.rstrip("\\")) :]


def command_words(program: ProgramConfig, values: Mapping[str, object]) -> list[str]:
    """The words of the command, with each {name} replaced by its value.

    The command is split by a shell's rules but run without a shell, so a value cannot add words. Raises ConfigError if
    it cannot be split, and for a name without a value.
    """
    try:
        parts = shlex.split(program.command)
    except ValueError as error:
        raise ConfigError(f"program.command={program.command}: {error}. Next: close its quotes") from None
    return [with_values(part, "program.command", values) for part in parts]


def used_placeholders(program: ProgramConfig) -> set[str]:
    """The names in braces in the command. Raises ConfigError."""
    values = dict.fromkeys(PLACEHOLDERS, "")
    command_words(program, values)
    parts = (part for word in shlex.split(program.command) for part in string.Formatter().parse(word))
    return {name for _, name, _, _ in parts if name is not None}


def with_values(word: str, key: str, values: Mapping[str, object]) -> str:
    """A word of the option `key` with each {name} replaced by its value. Raises ConfigError for any other name."""
    try:
        parts = list(string.Formatter().parse(word))
    except ValueError as error:
        raise ConfigError(f"{key}={word}: {error}. Next: write {{{{ and }}}} for literal braces") from None
    text = ""
    for literal, name, format_spec, conversion in parts:
        text += literal
        if name is None:
            continue
        if name not in values or format_spec or conversion:
            allowed = ", ".join(f"{{{known}}}" for known in PLACEHOLDERS)
            raise ConfigError(
                f"{key}={word}: {{{name}}} has no value. Allowed: {allowed}. Next: write {{{{ and }}}} for"
                " literal braces"
            )
        text += str(values[name])
    return text


def check_program(config: RunConfig) -> None:
    """Raise ConfigError for a program that cannot be run, and for options without effect."""
    program = config.program
    if not config.is_program():
        if program != ProgramConfig():
            raise ConfigError(
                f"program: has no effect with model={config.model.name}. Next: give model=program, or leave it out"
            )
        return
    if not program.command.strip():
        raise ConfigError(
            "program.command=: is empty. Next: give the command, as in program.command='python train.py --seed {seed}'"
        )
    if program.launch not in LAUNCHES:
        raise ConfigError(f"program.launch={program.launch}: no such value. Allowed: {', '.join(LAUNCHES)}")
    if program.cwd is not None and config.stack.kind != "container" and not Path(program.cwd).is_dir():
        raise ConfigError(f"program.cwd={program.cwd}: no such folder. Next: give one, or leave it out")
    placeholders = used_placeholders(program)
    check_expressions(program)
    check_per_step(program)
    check_effects(config, placeholders)


def check_seed(config: RunConfig, overrides: Iterable[str]) -> None:
    """Raise ConfigError for seed= without {seed} in the command: its runs would not be repeats."""
    option = next((override for override in overrides if override.startswith("seed=")), None)
    if option and config.is_program() and "seed" not in used_placeholders(config.program):
        raise ConfigError(
            f"{option}: has no effect, since program.command has no {{seed}}. Next: put it there, as in"
            " program.command='python train.py --seed {seed}', or leave seed= out"
        )


def check_label(config: RunConfig, axes: Iterable[str]) -> None:
    """Raise ConfigError if `precision` is one of the axes and does not reach the program: its runs would be alike."""
    if "precision" in axes and config.is_program() and "precision" not in used_placeholders(config.program):
        raise ConfigError(
            "precision: is only a label as an axis of this program, since program.command has no {precision}. Next: put"
            " it there, or give precision one value"
        )


def check_program_target(config: RunConfig) -> None:
    """Raise ConfigError for a target of an undeclared metric. Without declared metrics, MLPerf's log may have any."""
    for metric in config.targets() if config.program.metrics else ():
        if metric not in config.program.evaluated():
            known = ", ".join(config.program.evaluated())
            raise ConfigError(
                f"model.targets.{config.dataset.name}.{metric}: no such metric. Allowed: {known} (eval/ of"
                " program.metrics)"
            )


def check_expressions(program: ProgramConfig) -> None:
    for key, pattern in program.patterns().items():
        if not METRIC_PATTERN.fullmatch(key) or len(key) > 250 or is_reserved(key):
            raise ConfigError(
                f"program.metrics.{key}: not a name for a metric. Allowed: letters, digits, '_', '-', '.' and '/', as"
                " in eval/accuracy and train/loss, without timetrial's own prefixes, such as time/"
            )
        if not isinstance(pattern, str):
            raise ConfigError(
                f"program.metrics.{key}={pattern}: not an expression. Allowed: EXPRESSION, or [EXPRESSION, lower |"
                " higher]"
            )
        check_expression(f"program.metrics.{key}", pattern, 1)
    for key, required_groups in NUM_GROUPS.items():
        if (text := getattr(program, key)) is not None:
            check_expression(f"program.{key}", text, required_groups)


def check_per_step(program: ProgramConfig) -> None:
    for key in PER_STEP:
        if (number := getattr(program, key)) is None:
            continue
        if number <= 0:
            raise ConfigError(f"program.{key}={number}: must be above 0")
        if program.step is None:
            raise ConfigError(
                f"program.{key}={number}: has no effect without program.step. Next: give the expression of the step"
            )
    if program.samples_per_step and program.samples:
        raise ConfigError(
            f"program.samples_per_step={program.samples_per_step}: program.samples is given too. Next: leave one out"
        )
    if program.tokens_per_step and not program.samples_per_step:
        raise ConfigError(
            f"program.tokens_per_step={program.tokens_per_step}: has no effect without program.samples_per_step. Next:"
            " give both"
        )


def check_expression(key: str, text: str, required_groups: int) -> None:
    try:
        num_groups = re.compile(text).groups
    except re.error as error:
        raise ConfigError(f"{key}={text}: not a regular expression: {error}") from None
    if num_groups != required_groups:
        allowed = "one group (...), around the number" if required_groups else "no group (...)"
        raise ConfigError(f"{key}={text}: has {num_groups} groups. Allowed: {allowed}; (?:...) does not count")


def check_effects(config: RunConfig, placeholders: set[str]) -> None:
    for key in WITHOUT_EFFECT:
        if getattr(config, key) != getattr(RunConfig(), key):
            raise ConfigError(
                f"{key}={getattr(config, key)}: has no effect on a program. Next: put it into program.command"
            )
    if config.save_model != "none" or config.resume:
        raise ConfigError(
            "save_model and resume: have no effect on a program, which saves its weights itself. Next: leave them out"
        )
    if config.log_model:
        raise ConfigError(
            "log_model=true: has no effect on a program, which saves its weights itself. Next: leave it out, and log"
            " the model with mlflow.pytorch.log_model from the program"
        )
    if config.model.hparams:
        raise ConfigError("model.hparams: have no effect on a program. Next: put them into program.command")
    decay = config.model.optimizer.weight_decay
    options = {"model.optimizer.weight_decay": decay or None}  # 0 is the default
    options |= {f"dataset.{key}": value for key, value in vars(config.dataset).items() if key != "name"}
    if unused := next((key for key, value in options.items() if value is not None), ""):
        raise ConfigError(f"{unused}={options[unused]}: has no effect on a program. Next: put it into program.command")
    if config.model.optimizer.lr != DEFAULT_LR and "lr" not in placeholders:
        raise ConfigError(
            f"model.optimizer.lr={config.model.optimizer.lr:g}: has no effect, since program.command has no {{lr}}."
            " Next: put it there"
        )
    for key in ("batch_size", "max_epochs"):
        if getattr(config, key) is not None and key not in placeholders:
            raise ConfigError(
                f"{key}={getattr(config, key)}: has no effect, since program.command has no {{{key}}}. Next: put it"
                " there"
            )
    if "max_epochs" in placeholders and config.max_epochs is None:
        raise ConfigError("program.command: has {max_epochs}, which has no value. Next: give max_epochs=NUMBER")
    if not config.stop_at_target:
        raise ConfigError("stop_at_target=false: has no effect on a program, which stops by itself. Next: leave it out")
    if config.cpu_processes != 1 and config.program.launch == "none" and "processes" not in placeholders:
        raise ConfigError(
            f"cpu_processes={config.cpu_processes}: has no effect, since program.command has no {{processes}}. Next:"
            " put it there, or give program.launch=torchrun"
        )
