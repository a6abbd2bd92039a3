"""Messages of refused requests: the key, its value, what is allowed, and what to type next."""

from __future__ import annotations

import dataclasses
import re
import shlex
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conf.launch_options import SET_BY_SEARCH
from conf.schema import ConfigError, RunConfig
from conf.target import ON_ANOTHER_METRIC
from tracking.base.installation import LAUNCH, PREFIX
from tracking.base.near_names import near
from tracking.base.safe_text import path_to_type, printable
from tracking.request.stored_config import type_name

QUOTES = "'\""
SWEEP_FUNCTION = re.compile(r"(choice|range|interval|tag|glob|sort|shuffle)\(")  # of Hydra's grammar

HELP = f"See {LAUNCH} --help." if PREFIX else f"See {LAUNCH} --help, or docs/configuration.md."  # A wheel has no docs/.

WORDS_OF_TYPES = {
    "int": "a whole number", "float": "a number", "bool": "true or false", "str": "a text", "list[int]": "a list of"
    " whole numbers", "list[str]": "a list of texts", "dict[str, str]": "a table of texts", "dict[str, Any]": "a table",
    "dict[Any, Any]": "a table",
}  # fmt: skip

# Patterns of Hydra's messages, and our messages in their place, which say what to type. {0} is the pattern's group.
HYDRA_MESSAGES = {
    r"Could not override '(\w+)'": f"{{0}}: needs a plus. Next: {LAUNCH} -m +{{0}}=NAME.",
    r"Could not delete from config. '(.+)' does not exist": "~{0}: no such option, so it cannot be removed.",
    r"BasicSweeper does not support sweep type : (INTERVAL)": "interval(...): has no list of values for a sweep."
    " Next: list the values, as in batch_size=8,16,32, or add +search=quickest.",
    r"Additional config directory '(.+)' not found": "--config-dir {0}: no such folder. Next: give your YAML's folder.",
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
    key = re.sub(r"\[\d+\]$", "", getattr(cause, "full_key", None) or "")  # without the index of a list's value
    types = options()
    if key == "target" and "of type 'dict'" in str(cause):  # such as target.top2=0.9
        return f"refused: target: target=VALUE is the value of the YAML's target. {ON_ANOTHER_METRIC}"
    if key in types:
        return f"refused: {wrong_type(key, cause, types[key])}"
    if key:
        siblings = getattr(cause, "parent_node", None)  # the keys of model.hparams are only in the YAML
        return f"refused: {unknown_option(key, types, list(siblings) if isinstance(siblings, Mapping) else [])}"
    if "/" in (missing_choice := getattr(error, "missing_cfg_file", None) or ""):
        group, _, name = missing_choice.rpartition("/")
        return f"refused: {unknown_choice(group, name, getattr(error, 'options', None) or [])}"
    # Hydra's search path does not help the user.
    text = str(error).partition("Config search path:")[0]
    if match := re.match(r"Ambiguous value for argument '(.+)'$", text, re.MULTILINE):
        return f"refused: {several_values(match[1])} {HELP}"
    for pattern, message in HYDRA_MESSAGES.items():
        if match := re.match(pattern, text, re.MULTILINE):
            return f"refused: {message.format(match[1])} {HELP}"
    override = getattr(error, "override", None) or ""
    if message := malformed_values(override):
        return f"refused: {message}"
    if line := quoted_override(override):
        return f"refused: {override}: Hydra cannot parse this without quotes. Next: {line} {HELP}"
    if match := re.match(r"LexerNoViableAltException: (.+)", text):
        return f"refused: {match[1]}: Hydra cannot parse this. Next: close its quotes. {HELP}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return f"refused: {' '.join(lines)} {HELP}"


def wrong_type(key: str, error: BaseException, kind: Any) -> str:
    """The message for a value that is not of the option's type. OmegaConf's own words name its classes."""
    value = getattr(error, "value", "")
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else value
    allowed = ", or ".join(WORDS_OF_TYPES.get(part, part) for part in type_name(kind).split(" | "))
    [name] = typed({key: kind}) or [key]
    return f"{name}={text}: is not of the option's type. Allowed: {allowed}. {HELP}"


def several_values(word: str) -> str:
    """The message for commas without -m. It suggests a sweep, or a list or text if the option takes one."""
    key, _, value = word.partition("=")
    kind = type_name(options().get(key, int))
    as_text = shlex.quote(f'{key}="{escaped(value)}"')
    single = f", or {key}=[{value}] for a list" if kind == "any" or kind.startswith("list") else ""
    single = f", or {as_text} for a text with commas" if kind in ("str", "str | null") else single
    return f"{word}: has several values. Next: -m {word} for a sweep{single}."


def malformed_values(override: str) -> str:
    """The message for the values of a sweep or a search that Hydra cannot parse; empty for other overrides."""
    key, _, value = override.partition("=")
    if SWEEP_FUNCTION.match(value):
        return (
            f"{override}: Hydra cannot parse these values. Allowed: {key}=8,16,32, '{key}=range(1,5)', or in a search"
            f" '{key}=interval(8,32)'"
        )
    if value[:1] not in (*QUOTES, "[", "{") and "," in value and not all(part.strip() for part in value.split(",")):
        return f"{override}: a value beside a comma is missing. Allowed: {key}=VALUE,VALUE"
    return ""


def quoted_override(override: str) -> str:
    """What to type in a shell for a value that Hydra's grammar cannot parse; empty if quotes do not help."""
    key, _, value = override.partition("=")
    if (metric := re.fullmatch(r"\+?program\.metrics\.(\w+/.+)", key)) and value:  # A key with a slash is no option.
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


def resuming(sweep: Path) -> str:
    """The options that continue a sweep. Its runs_dir is left out if that is the default."""
    usual = Path(RunConfig.runs_dir).resolve() == sweep.resolve().parent
    return f"sweep.resume={sweep.name}" + ("" if usual else f" {path_option('runs_dir', path_to_type(sweep.parent))}")


def path_option(key: str, path: str) -> str:
    """The option with this path, as a user types it in a shell."""
    return f"{key}={path}" if re.fullmatch(r"[\w./-]+", path, re.ASCII) else shlex.quote(f'{key}="{escaped(path)}"')


def escaped(value: str) -> str:
    """The value escaped for double quotes in Hydra's grammar, where only backslashes before a quote count."""
    return re.sub(r'(\\*)("|$)', lambda match: 2 * match[1] + ('\\"' if match[2] else ""), value)


def unknown_option(key: str, types: dict[str, Any], siblings: Sequence[str] = ()) -> str:
    """The message for a dotted key that is not in `types`; `siblings` are the existing keys beside it."""
    types = typed(types)
    parent = key.rpartition(".")[0]
    if key.startswith("model.targets."):
        return f"{key}: is not in the YAML. Next: for a target on another metric give +{key}=VALUE"
    if types.get(parent) == dict[str, str]:  # Users choose its keys.
        return f"{key}: a new key of {parent} needs a plus. Next: +{key}=VALUE. {HELP}"
    if parent in types and typing.get_origin(types[parent]) is not dict:
        return f"{key}: {parent} is a single option. Next: give {parent}=VALUE. {HELP}"
    if parent in types:
        allowed = ", ".join(map(str, siblings)) or f"the keys of {parent} in the YAML"
        meant = did_you_mean(near(key.rpartition(".")[2], map(str, siblings)))
        return f"{key}: no such option{meant} Allowed: {allowed}. {HELP}"
    if inner := [name for name in types if name.startswith(f"{key}.")]:
        return f"{key}: holds several options. Allowed: {', '.join(inner)}. {HELP}"
    if matches := near_options(key, types):
        return f"{key}: no such option. Did you mean {' or '.join(matches)}? Next: see {LAUNCH} --help"
    options_beside = [name for name in types if name.rpartition(".")[0] == parent] or list(groups(types))
    return f"{key}: no such option. Allowed: {', '.join(options_beside)}. {HELP}"


def typed(types: Mapping[str, Any]) -> dict[str, Any]:
    """The options as a user types them: without those that a search sets itself, and `search.from`."""
    own = {f"search.{name}" for name in SET_BY_SEARCH}
    return {"search.from" if key == "search.source" else key: types[key] for key in types if key not in own}


def near_options(key: str, types: dict[str, Any]) -> list[str]:
    """Up to two options or groups with names like `key`. If some have as many parts, only those."""
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


def declared(config: Any) -> RunConfig:
    """The config. Raises ConfigError for a key that the schema does not have."""
    if reason := added_option(config):
        raise ConfigError(reason)
    return config  # type: ignore[no-any-return]


def unknown_choice(group: str, name: str, options: Sequence[str]) -> str:
    """The message for a choice such as `model=vg` that is not among the options of its config group."""
    return f"{group}={name}: no such choice{did_you_mean(near(name, options))} Allowed: {', '.join(options)}. {HELP}"


def did_you_mean(matches: Sequence[str]) -> str:
    return f"; did you mean {' or '.join(matches)}?" if matches else "."


def groups(types: dict[str, Any]) -> dict[str, None]:
    """The first parts of the dotted keys, unique and in order, as keys of a dict."""
    return dict.fromkeys(key.partition(".")[0] for key in types)
