"""Says why a request is refused: the key, what was given, what is allowed, and the next step."""

from __future__ import annotations

import dataclasses
import difflib
import re
import shlex
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from conf.schema import ConfigError, RunConfig
from tracking.base.installation import LAUNCH, PREFIX
from tracking.base.safe_text import printable
from tracking.request.stored_config import type_name

QUOTES = "'\""
OPTIONAL = ("recipe", "closed")  # the groups that conf/config.yaml names so

# Only a clone holds the pages, and there the command is one of Python's.
HELP = f"See {LAUNCH} --help." if PREFIX else f"See python {LAUNCH} --help, or docs/configuration.md."


# Hydra's words, and ours where its own do not say what to type; {0} is what is in their brackets.
IN_OUR_WORDS = {
    r"Could not override '(\w+)'": f"{{0}}: it is added with a plus, as in {LAUNCH} -m +{{0}}=NAME.",
    r"Ambiguous value for argument '(.+)'$": "{0}: several values are a sweep, -m {0}; a list stands in brackets.",
    r"Error parsing override '(.+)'$\s+missing EQUAL": "{0}: an option is NAME=VALUE, without spaces around the sign.",
    r"Additional config directory '(.+)' not found": "--config-dir {0}: there is no such folder; give your YAML's.",
}


def options(cls: type = RunConfig, prefix: str = "") -> dict[str, Any]:
    """Every key of the schema, dotted, with its type."""
    types: dict[str, Any] = {}
    hints = typing.get_type_hints(cls)
    for field in dataclasses.fields(cls):
        if dataclasses.is_dataclass(hints[field.name]):
            types |= options(hints[field.name], f"{prefix}{field.name}.")
        else:
            types[prefix + field.name] = hints[field.name]
    return types


def explain(error: Exception) -> str:
    """One message for the user, without secrets. Hydra's and OmegaConf's own texts are kept where they say what is
    allowed."""
    return printable(_explain(error))


def _explain(error: Exception) -> str:
    if isinstance(error, ConfigError):
        return f"refused: {error}"
    cause = error.__cause__ if error.__cause__ is not None else error
    key = getattr(cause, "full_key", None)
    known = options()
    if key in known:
        reason = str(cause).splitlines()[0]
        return f"refused: {key}: {reason}; allowed: {type_name(known[key])}. {HELP}"
    if key:
        return f"refused: {unknown_option(key, known)}"
    if "/" in (choice := getattr(error, "missing_cfg_file", None) or ""):
        group, _, name = choice.rpartition("/")
        return f"refused: {unknown_choice(group, name, getattr(error, 'options', None) or [])}"
    # What Hydra adds for its developers says nothing about what to do next.
    text = str(error).partition("Config search path:")[0]
    for theirs, ours in IN_OUR_WORDS.items():
        if match := re.match(theirs, text, re.MULTILINE):
            return f"refused: {ours.format(match[1])} {of_a_program(match[1])}{HELP}"
    if (override := getattr(error, "override", None)) and (line := in_quotes(override)):
        return f"refused: {override}: Hydra does not read this without quotes; put it in quotes: {line} {HELP}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"refused: {' '.join(lines)} {HELP}"


def in_quotes(override: str) -> str:
    """What to type on a shell for an option whose value Hydra's grammar cannot read; empty where quotes do not help."""
    key, _, value = override.partition("=")
    if (metric := re.fullmatch(r"\+?program\.metrics\.(\w+/.+)", key)) and value:  # A key with a slash is no option.
        return shlex.quote(f'+program.metrics={{{metric[1]}: "{escaped(value.strip(QUOTES))}"}}')
    parts = value.split(",")
    if not re.fullmatch(r"\+{0,2}[\w.@/\-]+", key) or value[:1] in ("[", "{") or not all(parts) or value[0] in QUOTES:
        return ""
    quoted = ",".join(f'"{escaped(part)}"' for part in parts)
    return shlex.quote(f"{key}={quoted}")


def of_a_program(word: str) -> str:
    """What to type where a command line has a script or an interpreter in an option's place; empty for other words."""
    if not word.endswith((".py", ".sh")) and not re.fullmatch(r"(.*/)?(python[\d.]*|torchrun|bash)", word):
        return ""
    script = f"python {word}" if word.endswith(".py") else f"{word} ..."
    command = shlex.quote(f"program.command={script}")
    return (
        f"A program as it is: {LAUNCH} model=program {command}. A Python script may make its runs itself: "
        "from timetrial import TimeTrial (Lightning), HuggingFaceTimeTrial or time_trial (a loop). "
    )


def escaped(value: str) -> str:
    """For double quotes of Hydra's grammar, where backslashes count before a quote alone."""
    return re.sub(r'(\\*)("|$)', lambda match: 2 * match[1] + ('\\"' if match[2] else ""), value)


def unknown_option(key: str, known: dict[str, Any]) -> str:
    """Why a dotted key, which is none of the `known`, is no option."""
    near = difflib.get_close_matches(key, {*known, *groups(known)}, n=2, cutoff=0.6)
    parent = key.rpartition(".")[0]
    siblings = [name for name in known if name.rpartition(".")[0] == parent] or list(groups(known))
    allowed = f"allowed: the keys of {parent} in the YAML" if parent in known else f"allowed: {', '.join(siblings)}"
    if known.get(parent) == dict[str, str]:  # Its keys are the user's own.
        return f"{key}: another key of {parent} is added with a plus: +{key}=VALUE. {HELP}"
    meant = f"did you mean {' or '.join(near)}? ({allowed})." if near else f"{allowed}."
    return f"{key}: there is no such option; {meant} {HELP}"


def added_option(config: Any, prefix: str = "") -> str | None:
    """Why a key that the schema does not have is no option; None where there is none.

    With a plus, `+max_epoch=1`, Hydra adds any key, and OmegaConf makes it an attribute, which nothing reads.
    """
    hints = typing.get_type_hints(type(config))
    for name, value in vars(config).items():
        if name not in hints:
            return unknown_option(prefix + name, options())
        if dataclasses.is_dataclass(hints[name]) and (wrong := added_option(value, f"{prefix}{name}.")):
            return wrong
    return None


def wrong_choice(
    choices: Mapping[str, str | None], overrides: Sequence[str], options: Callable[[str], list[str]]
) -> str | None:
    """Why a choice of an optional group is none, or none of the model's; `options` gives the names of a group.

    Hydra passes over an optional choice that is not there: that is what makes a group optional. What follows from other
    choices, `${model}_${dataset}`, need not be there, and is the model's own.
    """
    model = str(choices["model"])
    for group in OPTIONAL:
        known = ["none", *options(group)]
        for name in chosen(group, choices, overrides):
            if name not in known:
                return unknown_choice(group, name, known)
            if name == f"{model}_{choices['dataset']}":
                continue
            if wrong := others(group, name, model, known[1:], options("model")):
                return wrong
    return None


def chosen(group: str, choices: Mapping[str, str | None], overrides: Sequence[str]) -> list[str]:
    """The names that the command line chose of a group. A list of them, `recipe=[a,b]`, is no choice to Hydra."""
    if not any(word.startswith(f"{group}=") for word in overrides):
        return []
    lists = [word.partition("[")[2].rstrip("]") for word in overrides if word.startswith(f"{group}=[")]
    names = ",".join(lists) or choices.get(group) or ""
    return [name.strip() for name in names.split(",") if name.strip()]


def unknown_choice(group: str, name: str, options: Sequence[str]) -> str:
    """Why a choice of a config group, `model=vg`, of which there are these options, is none."""
    allowed = f"allowed: {', '.join(options)}"
    near = difflib.get_close_matches(name, options, n=2, cutoff=0.6)
    meant = f"did you mean {' or '.join(near)}? ({allowed})" if near else allowed
    return f"{group}={name}: there is no such choice; {meant}. {HELP}"


def others(group: str, name: str, model: str, options: Sequence[str], models: Sequence[str]) -> str | None:
    """Why this model is not trained by what is named after another one; None where it may be."""
    owner = named_after(group, name, models)
    if owner in (None, model):
        return None
    own = ", ".join(["none", *(option for option in options if named_after(group, option, models) in (None, model))])
    return (
        f"{group}={name}: is of model={owner}, and the model is model={model}; allowed with it: {own};"
        f" or give model={owner} {group}={name}. {HELP}"
    )


def named_after(group: str, name: str, models: Sequence[str]) -> str | None:
    """The model that the recipe MODEL_WHAT or the rules RULES_MODEL are of, by the longest name; None for none."""
    is_of = (lambda of: f"{name}_".startswith(f"{of}_")) if group == "recipe" else (lambda of: name.endswith(f"_{of}"))
    return max(filter(is_of, models), key=len, default=None)


def groups(known: dict[str, Any]) -> dict[str, None]:
    """The first part of every dotted key, once, in order."""
    return dict.fromkeys(key.partition(".")[0] for key in known)
