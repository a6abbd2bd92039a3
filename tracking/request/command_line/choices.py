"""Refuses unknown choices of a config group, choices for another model, and sweeps with no job or with too many."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conf import schema
from conf.schema import ConfigError
from tracking.request.refusal import HELP, SWEEP_FUNCTION, options, unknown_choice

CONF = Path(schema.__file__).parent
OPTIONAL_GROUPS = ("recipe", "closed")  # the optional groups of conf/config.yaml
MULTIRUN, CONFIG_DIR = {"-m", "--multirun"}, {"-cd", "--config-dir"}
MOST_VALUES = 10_000  # of all ranges of a sweep together, or of each range of a search


@functools.cache
def group_names() -> tuple[str, ...]:
    """The config groups: the folders of YAML files in conf."""
    return tuple(sorted({path.parent.name for path in CONF.glob("*/*.yaml")}))


def check_choices(words: Sequence[str]) -> None:
    """Raise ConfigError for an argument such as `model=[vgg]`, `model=null` or `model=`, which choose no name.

    Hydra's own messages about them do not name the group. Two things are allowed: several recipes, `recipe=[a,b]`, and
    options of a group as a table, `dataset={size: 100}`.
    """
    for word in words:
        if word.startswith("~") and word[1:] in group_names() and word[1:] not in (*OPTIONAL_GROUPS, "study"):
            raise ConfigError(f"{word}: a run needs a {word[1:]}. Next: give another one, as {word[1:]}=NAME")
        group, _, value = word.lstrip("+").partition("=")
        is_table = value.startswith("{") and any(key.startswith(f"{group}.") for key in options())
        if group not in group_names() or is_table or (value.startswith("[") and group == "recipe"):
            continue
        if value.startswith(("[", "{")) or value == "" or "null" in value.split(","):
            names = sorted(path.stem for path in CONF.glob(f"{group}/*.yaml"))
            names = ["none", *names] if group in OPTIONAL_GROUPS else names
            given = re.findall(r"[\w.]+", value) if value.startswith("[") else []
            example = next((name for name in given if name in names), names[0])
            raise ConfigError(
                f"{word}: not the name of a {group}. Allowed: {', '.join(names)}. Next: give one, as"
                f" {group}={example}, or leave it out; a sweep takes several, as -m {group}={names[0]},..."
            )


def number_in_stack(sources: Sequence[Any], name: str) -> str | None:
    """The message for an unquoted number with a point in a user's stack; None without one.

    Hydra reads `torch: 2.10` as 2.1. `sources` are the folders of configs. The project's own files are not checked.
    """
    import yaml

    paths = [Path(source.path, "stack", f"{name}.yaml") for source in sources if source.provider != "main"]
    for path in filter(Path.is_file, paths):
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        tables = {"": content, **content} if isinstance(content, dict) else {}
        for table, values in tables.items():
            for key, value in values.items() if isinstance(values, dict) else ():
                if isinstance(value, float):
                    where = f"{table}.{key}" if table else key
                    return (
                        f"{path}: {where}: {value}: is read as a number, which makes 2.10 into 2.1. Next: write it"
                        f' in quotes, as in {key}: "{value}"'
                    )
    return None


def wrong_choice(
    choices: Mapping[str, str | None], overrides: Sequence[str], options: Callable[[str], list[str]],
    sources: Sequence[Any] = (),
) -> str | None:  # fmt: skip
    """The message for an unknown choice of an optional group, or one of another model; None if all are right.

    `options` gives the names in a group. Hydra skips a missing choice of an optional group. The default choice,
    `${model}_${dataset}`, may be missing, and always belongs to the model.
    """
    if message := number_in_stack(sources, str(choices.get("stack"))):
        return message
    model = str(choices["model"])
    for group in OPTIONAL_GROUPS:
        names = chosen_names(group, choices, overrides)
        allowed = ["none", *options(group)] if names else []  # Listing them takes as long as a whole config.
        for name in names:
            if name not in allowed:
                return unknown_choice(group, name, allowed)
            if name == f"{model}_{choices['dataset']}":
                continue
            if message := choice_of_another_model(group, name, model, allowed[1:], options("model")):
                return message
    return None


def chosen_names(group: str, choices: Mapping[str, str | None], overrides: Sequence[str]) -> list[str]:
    """The names that the command line chooses in a group. Hydra does not report names in a list, `recipe=[a,b]`."""
    if not any(word.startswith(f"{group}=") for word in overrides):
        return []
    listed = [word.partition("[")[2].rstrip("]") for word in overrides if word.startswith(f"{group}=[")]
    names = ",".join(listed) or choices.get(group) or ""
    return [name.strip() for name in names.split(",") if name.strip()]


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


def check_number(num_jobs: int, words: Sequence[str]) -> None:
    """Raise ConfigError for a sweep without jobs, unless the command line asks for none, as with --help."""
    flags = {word.partition("=")[0] for word in words if word.startswith("-")}
    if num_jobs or not flags & MULTIRUN or flags - MULTIRUN - CONFIG_DIR:
        return
    functions = [word for word in words if SWEEP_FUNCTION.match(word.partition("=")[2])]
    raise ConfigError(f"{' '.join(functions)}: no values, so the sweep has no jobs. Next: list them: seed=1,2,3")


def check_ranges(values: Mapping[str, Any], is_search: bool) -> None:
    """Raise ConfigError if a range has no end or more than MOST_VALUES values. `values` are Hydra's, by argument.

    Hydra lists all combinations of a sweep before it composes one. The list of `range(1,1000000000)` fills the memory.
    A search draws from each axis alone, so its axes may have more combinations.
    """
    ranges = {word: value for word, value in values.items() if hasattr(value, "step")}
    for word, each in ranges.items():
        if not each.step or not all(map(math.isfinite, (each.start, each.stop, each.step))):
            raise ConfigError(
                f"{word}: its step is {each.step}, from {each.start} to {each.stop}. Allowed: finite numbers, and a"
                " step other than 0. Next: give other ones, as range(1,5) or range(0.1,0.5,0.1)"
            )
    lengths = {word: abs((each.stop - each.start) / each.step) for word, each in ranges.items()}
    together = {" ".join(lengths): math.prod(lengths.values())}
    for words, length in (lengths if is_search else together).items():
        if length > MOST_VALUES:
            raise ConfigError(
                f"{words}: gives {length:,.0f} values. Allowed: up to {MOST_VALUES:,}. Next: give a larger step as the"
                " third number, or in a search interval(LOW,HIGH)"
            )
