"""Messages of refused requests: the key, its value, what is allowed, and what to type next."""

from __future__ import annotations

import dataclasses
import math
import re
import shlex
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from conf.schema import ConfigError, RunConfig
from conf.target import ON_ANOTHER_METRIC
from tracking.base.installation import LAUNCH, PREFIX
from tracking.base.near_names import near
from tracking.base.safe_text import printable
from tracking.request.stored_config import type_name

QUOTES = "'\""
SWEEP_FUNCTION = re.compile(r"(choice|range|interval|tag|glob|sort|shuffle)\(")  # of Hydra's grammar
MULTIRUN, CONFIG_DIR = {"-m", "--multirun"}, {"-cd", "--config-dir"}
MOST_VALUES = 10_000  # of ranges together
OPTIONAL_GROUPS = ("recipe", "closed")  # the optional groups of conf/config.yaml

HELP = f"See {LAUNCH} --help." if PREFIX else f"See {LAUNCH} --help, or docs/configuration.md."  # A wheel has no docs/.


# Hydra's messages and ours, which say what to type. {0} is the group of the pattern.
HYDRA_MESSAGES = {
    r"Could not override '(\w+)'": f"{{0}}: needs a plus. Next: {LAUNCH} -m +{{0}}=NAME.",
    r"Ambiguous value for argument '(.+)'$": "{0}: has several values. Next: -m {0} for a sweep, or [...] for a list.",
    r"Error parsing override '(.+)'$\s+missing EQUAL": "{0}: not an option. Allowed: NAME=VALUE, without spaces.",
    r"BasicSweeper does not support sweep type : (INTERVAL)": "interval(...): has no end of values in a sweep."
    " Next: list the values, as in batch_size=8,16,32, or add +search=quickest.",
    r"Additional config directory '(.+)' not found": "--config-dir {0}: no such folder. Next: give that of your YAML.",
}


def options(cls: type = RunConfig, prefix: str = "") -> dict[str, Any]:
    """The type of every key of the schema; keys are dotted."""
    types: dict[str, Any] = {}
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[field.name]):
            types |= options(hints[field.name], f"{prefix}{field.name}.")
        else:
            types[prefix + field.name] = hints[field.name]
    return types


def explain(error: Exception) -> str:
    """The message of an error, without secrets. Texts of Hydra and OmegaConf are kept if they say what is allowed."""
    return printable(_explain(error))


def _explain(error: Exception) -> str:
    if isinstance(error, ConfigError):
        return f"refused: {error}"
    cause = error.__cause__ if error.__cause__ is not None else error
    key = re.sub(r"\[\d+\]$", "", getattr(cause, "full_key", None) or "")  # of a list, for one of its values
    types = options()
    if key == "target" and "of type 'dict'" in str(cause):  # as of target.top2=0.9
        return f"refused: target: target=VALUE is the value of the YAML's target. {ON_ANOTHER_METRIC}"
    if key in types:
        reason = str(cause).splitlines()[0]
        return f"refused: {key}: {reason.rstrip('.')}. Allowed: {type_name(types[key])}. {HELP}"
    if key:
        return f"refused: {unknown_option(key, types)}"
    if "/" in (missing_choice := getattr(error, "missing_cfg_file", None) or ""):
        group, _, name = missing_choice.rpartition("/")
        return f"refused: {unknown_choice(group, name, getattr(error, 'options', None) or [])}"
    # Hydra's search path does not help the user.
    text = str(error).partition("Config search path:")[0]
    for pattern, message in HYDRA_MESSAGES.items():
        if match := re.match(pattern, text, re.MULTILINE):
            return f"refused: {message.format(match[1])} {program_advice(match[1])}{HELP}"
    override = getattr(error, "override", None) or ""
    if message := malformed_values(override):
        return f"refused: {message}"
    if line := quoted_override(override):
        return f"refused: {override}: Hydra cannot parse this without quotes. Next: {line} {HELP}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"refused: {' '.join(lines)} {HELP}"


def malformed_values(override: str) -> str:
    """The message for the values of a sweep or a search that Hydra cannot parse; empty for other overrides."""
    key, _, value = override.partition("=")
    if SWEEP_FUNCTION.match(value):
        return (
            f"{override}: Hydra cannot parse these values. Allowed: {key}=8,16,32, '{key}=range(1,5)', or in a search"
            f" '{key}=interval(8,32)'"
        )
    if value[:1] not in (*QUOTES, "[", "{") and "," in value and not all(part.strip() for part in value.split(",")):
        return f"{override}: a value beside a comma is missing. Allowed: {key}=8,16,32"
    return ""


def check_number(num_jobs: int, words: Sequence[str]) -> None:
    """Raise ConfigError for a sweep without jobs, unless the words of the command line ask for none, as --help does."""
    flags = {word.partition("=")[0] for word in words if word.startswith("-")}
    if num_jobs or not flags & MULTIRUN or flags - MULTIRUN - CONFIG_DIR:
        return
    functions = [word for word in words if SWEEP_FUNCTION.match(word.partition("=")[2])]
    raise ConfigError(f"{' '.join(functions)}: no values, so the sweep has no jobs. Next: list them: seed=1,2,3")


def check_ranges(values: Mapping[str, Any]) -> None:
    """Raise ConfigError if Hydra's ranges among the values, by argument, have more than MOST_VALUES combinations.

    Hydra lists all of them before it composes one; those of `range(1,1000000000)` fill the memory.
    """
    ranges = {word: value for word, value in values.items() if getattr(value, "step", None)}
    lengths = [abs((each.stop - each.start) / each.step) for each in ranges.values()]
    if math.prod(lengths) > MOST_VALUES:
        raise ConfigError(
            f"{' '.join(ranges)}: gives {math.prod(lengths):,.0f} values. Allowed: up to {MOST_VALUES:,}. Next: give a"
            " larger step as the third number, or in a search interval(LOW,HIGH)"
        )


def quoted_override(override: str) -> str:
    """What to type in a shell for a value that Hydra's grammar cannot parse; empty if quotes do not help."""
    key, _, value = override.partition("=")
    if (metric := re.fullmatch(r"\+?program\.metrics\.(\w+/.+)", key)) and value:  # not an option: slash
        return shlex.quote(f'+program.metrics={{{metric[1]}: "{escaped(value.strip(QUOTES))}"}}')
    parts = value.split(",")
    if not re.fullmatch(r"\+{0,2}[\w.@/\-]+", key) or value[:1] in ("[", "{") or not all(parts) or value[0] in QUOTES:
        return ""
    quoted = ",".join(f'"{escaped(part)}"' for part in parts)
    return shlex.quote(f"{key}={quoted}")


def program_advice(word: str) -> str:
    """What to type if an argument is a script or an interpreter; empty for other arguments."""
    if not word.endswith((".py", ".sh")) and not re.fullmatch(r"(.*/)?(python[\d.]*|torchrun|bash)", word):
        return ""
    script = f"python {word}" if word.endswith(".py") else f"{word} ..."
    command = shlex.quote(f"program.command={script}")
    return (
        f"Next: to run a program as it is: {LAUNCH} model=program {command}. A Python script can also track itself: "
        "from timetrial import TimeTrial (Lightning), HuggingFaceTimeTrial or time_trial (a loop). "
    )


def escaped(value: str) -> str:
    """The value escaped for double quotes in Hydra's grammar, where only backslashes before a quote count."""
    return re.sub(r'(\\*)("|$)', lambda match: 2 * match[1] + ('\\"' if match[2] else ""), value)


def unknown_option(key: str, types: dict[str, Any]) -> str:
    """The message for a dotted key that is not in `types`."""
    parent = key.rpartition(".")[0]
    if key.startswith("model.targets."):
        return f"{key}: is not in the YAML. Next: for a target on another metric give +{key}=VALUE"
    if types.get(parent) == dict[str, str]:  # Users choose its keys.
        return f"{key}: a new key of {parent} needs a plus. Next: +{key}=VALUE. {HELP}"
    if parent in types and typing.get_origin(types[parent]) is not dict:
        return f"{key}: {parent} is a single option. Next: give {parent}=VALUE. {HELP}"
    if parent in types:
        return f"{key}: no such option. Allowed: the keys of {parent} in the YAML. {HELP}"
    if inner := [name for name in types if name.startswith(f"{key}.")]:
        return f"{key}: holds several options. Allowed: {', '.join(inner)}. {HELP}"
    if matches := near_options(key, types):
        return f"{key}: no such option. Did you mean {' or '.join(matches)}? Next: see {LAUNCH} --help"
    siblings = [name for name in types if name.rpartition(".")[0] == parent] or list(groups(types))
    return f"{key}: no such option. Allowed: {', '.join(siblings)}. {HELP}"


def near_options(key: str, types: dict[str, Any]) -> list[str]:
    """Up to two options or groups with names like `key`; those with as many parts come alone."""
    names = {*types, *groups(types)}
    for known in ([name for name in names if name.count(".") == key.count(".")], names):
        if matches := near(key, known):
            return matches
    return []


def added_option(config: Any, prefix: str = "") -> str | None:
    """The message for a key that the schema does not have; None if all keys are in the schema.

    With a plus, `+max_epoch=1`, Hydra adds any key, and OmegaConf makes it an attribute that nothing reads.
    """
    hints = typing.get_type_hints(type(config))
    for name, value in vars(config).items():
        if name not in hints:
            return unknown_option(prefix + name, options())
        if dataclasses.is_dataclass(hints[name]) and (message := added_option(value, f"{prefix}{name}.")):
            return message
    return None


def wrong_choice(
    choices: Mapping[str, str | None], overrides: Sequence[str], options: Callable[[str], list[str]]
) -> str | None:
    """The message for an unknown choice of an optional group, or one of another model; None if all are right.

    `options` gives the names in a group. Hydra skips a missing choice of an optional group. The default choice,
    `${model}_${dataset}`, may be missing, and always belongs to the model.
    """
    model = str(choices["model"])
    for group in OPTIONAL_GROUPS:
        names = chosen_names(group, choices, overrides)
        allowed = ["none", *options(group)] if names else []  # Hydra takes as long for them as for a whole config.
        for name in names:
            if name not in allowed:
                return unknown_choice(group, name, allowed)
            if name == f"{model}_{choices['dataset']}":
                continue
            if message := choice_of_another_model(group, name, model, allowed[1:], options("model")):
                return message
    return None


def chosen_names(group: str, choices: Mapping[str, str | None], overrides: Sequence[str]) -> list[str]:
    """The names that the command line chooses in a group. Hydra's choices lack those of a list, `recipe=[a,b]`."""
    if not any(word.startswith(f"{group}=") for word in overrides):
        return []
    listed = [word.partition("[")[2].rstrip("]") for word in overrides if word.startswith(f"{group}=[")]
    names = ",".join(listed) or choices.get(group) or ""
    return [name.strip() for name in names.split(",") if name.strip()]


def unknown_choice(group: str, name: str, options: Sequence[str]) -> str:
    """The message for a choice such as `model=vg` that is not among the options of its config group."""
    return f"{group}={name}: no such choice{did_you_mean(near(name, options))} Allowed: {', '.join(options)}. {HELP}"


def did_you_mean(matches: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(matches)}?" if matches else "."


def choice_of_another_model(
    group: str, name: str, model: str, options: Sequence[str], models: Sequence[str]
) -> str | None:  # fmt: skip
    """The message for a choice that is named after another model; None if this model may have it."""
    owner = named_after(group, name, models)
    if owner in (None, model):
        return None
    allowed = (option for option in options if named_after(group, option, models) in (None, model))
    return (
        f"{group}={name}: belongs to model={owner}, not to model={model}. Allowed: {', '.join(['none', *allowed])}."
        f" Next: choose one of these, or give model={owner} {group}={name}. {HELP}"
    )


def named_after(group: str, name: str, models: Sequence[str]) -> str | None:
    """The model in the name of a recipe MODEL_WHAT or of rules RULES_MODEL; the longest match, or None."""
    if group == "recipe":
        matches = [model for model in models if f"{name}_".startswith(f"{model}_")]
    else:
        matches = [model for model in models if name.endswith(f"_{model}")]
    return max(matches, key=len, default=None)


def groups(types: dict[str, Any]) -> dict[str, None]:
    """The first parts of the dotted keys, unique and in order, as keys of a dict."""
    return dict.fromkeys(key.partition(".")[0] for key in types)
