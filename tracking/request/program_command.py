"""The command of model=program: its words, what is filled in, and what is refused before anything is started."""

from __future__ import annotations

import re
import shlex
import string
from collections.abc import Iterable, Mapping
from pathlib import Path

from conf.launch_options import PER_STEP, ProgramConfig
from conf.schema import ConfigError, RunConfig
from tracking.request.name_checks import is_measured

LAUNCHES = ("none", "torchrun")
PLACEHOLDERS = ("seed", "gpus", "processes", "batch_size", "lr", "max_epochs", "precision", "run_dir", "stack")
NO_RATE = 1.0  # the learning rate of conf/model/program.yaml, where none is given
# Options of a training of ours, of which a program hears nothing.
WITHOUT_EFFECT = (
    "compile", "strategy", "overlap_grad_reduce", "limit_train_batches", "checkpoint_every_epochs",
    "checkpoint_every_steps",
)  # fmt: skip
# Options that launch.py takes as they are, without Hydra's quotes.
WORDS = {f"program.{key}" for key in ("command", "samples", "epoch", "step", "start")}
EXPRESSIONS = {"samples": 1, "epoch": 1, "step": 1, "start": 0}  # The number of groups that each must have.
METRIC = re.compile(r"[\w.\-]+(?:/[\w.\- ]*[\w.\-])*")  # MLflow takes these keys.


def quoted(argument: str) -> str:
    """An argument of launch.py with its words in quotes for Hydra, where they are a program's and have none yet.

    Hydra's grammar reads braces and commas of an unquoted value as its own.
    """
    key, equals, value = argument.partition("=")
    if key not in WORDS or not equals or not value or (value[0] in "'\"" and value[-1] == value[0]):
        return argument
    escaped = re.sub(r"(\\*)'", lambda match: 2 * match[1] + "\\'", value)
    return f"{key}='{escaped}{trailing_backslashes(escaped)}'"


def trailing_backslashes(text: str) -> str:
    return text[len(text.rstrip("\\")) :]


def words(program: ProgramConfig, values: Mapping[str, object]) -> list[str]:
    """The words of the command with each {name} replaced by its value.

    It is split as a shell does it, and no shell expands anything: a value is never more than a part of one word.
    Raises ConfigError for what cannot be split, and for a name that is not among the values.
    """
    try:
        parts = shlex.split(program.command)
    except ValueError as error:
        raise ConfigError(f"program.command={program.command}: {error}; close its quotes") from None
    return [_filled(part, program.command, values) for part in parts]


def used(program: ProgramConfig) -> set[str]:
    """The names in braces that the command has. Raises ConfigError."""
    values = dict.fromkeys(PLACEHOLDERS, "")
    words(program, values)
    parts = (part for word in shlex.split(program.command) for part in string.Formatter().parse(word))
    return {name for _, name, _, _ in parts if name is not None}


def _filled(word: str, command: str, values: Mapping[str, object]) -> str:
    try:
        parts = list(string.Formatter().parse(word))
    except ValueError as error:
        raise ConfigError(f"program.command={command}: {error}; write {{{{ and }}}} for braces of its own") from None
    text = ""
    for literal, name, form, conversion in parts:
        text += literal
        if name is None:
            continue
        if name not in values or form or conversion:
            allowed = ", ".join(f"{{{known}}}" for known in PLACEHOLDERS)
            raise ConfigError(
                f"program.command: {{{name}}} is no value of a run; allowed: {allowed}; write {{{{ and }}}} for braces"
                " of its own"
            )
        text += str(values[name])
    return text


def check_program(config: RunConfig) -> None:
    """Raise ConfigError for a program that cannot be run as asked, and for options that nothing would read."""
    program = config.program
    if not config.is_program():
        if program != ProgramConfig():
            raise ConfigError(f"program: has no effect with model={config.model.name}; give model=program, or leave it")
        return
    if not program.command.strip():
        raise ConfigError(
            "program.command=: is empty; give what is to be run: program.command='python train.py --seed {seed}'"
        )
    if program.launch not in LAUNCHES:
        raise ConfigError(f"program.launch={program.launch}: allowed: {', '.join(LAUNCHES)}")
    if program.cwd is not None and config.stack.kind != "container" and not Path(program.cwd).is_dir():
        raise ConfigError(f"program.cwd={program.cwd}: is no folder; give one, or leave it out")
    names = used(program)
    check_expressions(program)
    check_per_step(program)
    check_effects(config, names)


def check_seed(config: RunConfig, overrides: Iterable[str]) -> None:
    """Raise ConfigError for a seed of which the program hears nothing: runs of several would be no repeats."""
    given = next((override for override in overrides if override.startswith("seed=")), None)
    if given and config.is_program() and "seed" not in used(config.program):
        raise ConfigError(
            f"{given}: has no effect, since program.command has no {{seed}}; put it there, as in"
            " program.command='python train.py --seed {seed}', or leave seed= out"
        )


def check_program_target(config: RunConfig) -> None:
    """A program's metrics are those that are declared; MLPerf's log may have any."""
    for metric in config.targets() if config.program.metrics else ():
        if metric not in config.program.evaluated():
            known = ", ".join(config.program.evaluated())
            raise ConfigError(f"model.targets.{config.dataset.name}: {metric} is no eval/ of program.metrics ({known})")


def check_expressions(program: ProgramConfig) -> None:
    for key, pattern in program.patterns().items():
        if not METRIC.fullmatch(key) or len(key) > 250 or is_measured(key):
            raise ConfigError(
                f"program.metrics.{key}: is no name for a metric of a program; give letters, digits, '_', '-', '.' and"
                " '/', as in eval/accuracy and train/loss; timetrial's own, such as time/, are taken"
            )
        if not isinstance(pattern, str):
            raise ConfigError(f"program.metrics.{key}={pattern}: give EXPRESSION, or [EXPRESSION, lower | higher]")
        check_expression(f"program.metrics.{key}", pattern, 1)
    for key, groups in EXPRESSIONS.items():
        if (text := getattr(program, key)) is not None:
            check_expression(f"program.{key}", text, groups)


def check_per_step(program: ProgramConfig) -> None:
    for key in PER_STEP:
        if (number := getattr(program, key)) is None:
            continue
        if number <= 0:
            raise ConfigError(f"program.{key}={number}: must be above 0")
        if program.step is None:
            raise ConfigError(f"program.{key}={number}: has no effect without program.step, the expression of the step")
    if program.samples_per_step and program.samples:
        raise ConfigError("program.samples_per_step and program.samples: both say how many samples; leave one out")
    if program.tokens_per_step and not program.samples_per_step:
        raise ConfigError("program.tokens_per_step: has no effect without program.samples_per_step; give both")


def check_expression(key: str, text: str, groups: int) -> None:
    try:
        num_groups = re.compile(text).groups
    except re.error as error:
        raise ConfigError(f"{key}={text}: is no regular expression: {error}") from None
    if num_groups != groups:
        wanted = "one group (...), around the number; (?:...) is none" if groups else "no group (...); (?:...) is none"
        raise ConfigError(f"{key}={text}: has {num_groups} groups; give it {wanted}")


def check_effects(config: RunConfig, names: set[str]) -> None:
    for key in WITHOUT_EFFECT:
        if getattr(config, key) != getattr(RunConfig(), key):
            raise ConfigError(f"{key}={getattr(config, key)}: has no effect on a program; put it into program.command")
    if config.save_model != "none" or config.resume:
        raise ConfigError("save_model and resume: have no effect on a program, which keeps its weights itself")
    if config.log_model:
        raise ConfigError(
            "log_model=true: has no effect on a program, which keeps its weights itself; leave it out, and log the"
            " model with mlflow.pytorch.log_model from the program"
        )
    if config.model.hparams:
        raise ConfigError("model.hparams: have no effect on a program; put them into program.command")
    if config.model.optimizer.lr != NO_RATE and "lr" not in names:
        raise ConfigError(
            f"model.optimizer.lr={config.model.optimizer.lr:g}: has no effect, since program.command has no {{lr}}; put"
            " it there"
        )
    for key in ("batch_size", "max_epochs"):
        if getattr(config, key) is not None and key not in names:
            raise ConfigError(
                f"{key}={getattr(config, key)}: has no effect, since program.command has no {{{key}}}; put it there"
            )
    if "max_epochs" in names and config.max_epochs is None:
        raise ConfigError("program.command: has {max_epochs}, which is not given; give max_epochs=")
    if not config.stop_at_target:
        raise ConfigError("stop_at_target=false: has no effect on a program, which ends when it ends; leave it out")
    if config.cpu_processes != 1 and config.program.launch == "none" and "processes" not in names:
        raise ConfigError(
            f"cpu_processes={config.cpu_processes}: has no effect, since program.command has no {{processes}}; put it"
            " there, or give program.launch=torchrun"
        )
