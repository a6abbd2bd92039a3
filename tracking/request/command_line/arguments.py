"""Converts the arguments of launch.py to Hydra's. Refuses arguments that contradict each other.

`size=` is short for the recipe of a model's size: `model=gpt size=1.5b` is `model=gpt recipe=gpt_1.5b`. Beside resume=
or sweep.resume=, an option that changes a configuration is refused: a run keeps its own.
"""

from __future__ import annotations

import os
import re
import typing
from collections.abc import Sequence
from pathlib import Path

from conf.launch_options import PROFILE_STEPS
from conf.schema import NOT_MEASURED, ConfigError
from tracking.base.installation import LAUNCH
from tracking.request.command_line.choices import CONF, CONFIG_DIR, MULTIRUN, check_choices, group_names
from tracking.request.program_command import quoted
from tracking.request.refusal import HELP, options, program_advice

# Flags of Hydra whose value is the next word.
VALUED_FLAGS = {
    *CONFIG_DIR, "-cp", "--config-path", "-cn", "--config-name", "-c", "--cfg", "-i", "--info", "-p", "--package",
    "-sc", "--shell-completion", "--experimental-rerun",
}  # fmt: skip
TEXT_OPTIONS = r"stack\.(?:torch|python|exclude_newer|expect\.\w+|env\.\w+)"
MOST_FILES = 1000  # stops at links in a circle; no folder of YAML has so many
NO_NAME = re.compile(r"[+-]?[\d.]+(e[+-]?\d+)?|true|false|nan|inf", re.IGNORECASE)
# Options that a resumed run may change; all others come from its folder.
BESIDE_RESUME = (
    "trust", "dry_run", "timeout_sec", "tracking.offline", "tracking.upload_wait_sec",
    "tracking.system_metrics_interval_sec",
)  # fmt: skip
OF_DEVICES = ("gpus", "cpu_processes", "nodes", "strategy")  # A run has one value of each.
# Options and groups that a resumed sweep may change: they do not change what is measured.
BESIDE_SWEEP_RESUME = sorted({*NOT_MEASURED} - {"profile"})

# A resumed sweep keeps these options. With -m, which adds jobs, the second pair may be given for the added jobs.
OF_A_NEW_SWEEP = ("sweep.until_decided", "sweep.shuffle")
OF_ADDED_JOBS = ("sweep.paired", "sweep.warm_up")
RECIPE_OF_A_SIZE = re.compile(r"(\w+)_([\d.]+)([mb])")


def hydra_arguments(words: Sequence[str]) -> list[str]:
    """The arguments of launch.py as Hydra takes them, -m first. Raises ConfigError."""
    check_form(words)
    check_choices(options_of(words))
    arguments = [quoted(hydra_argument(word)) for word in words]
    check_once(words, arguments)
    check_resumed(options_of(words), is_multirun=any(word in MULTIRUN for word in words))
    # Hydra refuses options on both sides of a flag, as in `gpus=1 -m seed=1,2`.
    return sorted(recipes_of_sizes(arguments), key=lambda word: word not in MULTIRUN)


def options_of(words: Sequence[str]) -> list[str]:
    """The arguments that set or remove an option, such as `seed=1` and `~recipe`, without flags and their values."""
    return [
        word
        for before, word in zip(["", *words], words, strict=False)
        if before not in VALUED_FLAGS and not word.startswith("-")
    ]


def may_set_hydra(words: Sequence[str]) -> bool:
    """Whether options, a study or a user's own files may change Hydra's settings. The files in conf/ do not."""
    if any(word.lstrip("+").startswith(("hydra", "study=", *(VALUED_FLAGS - {*CONFIG_DIR}))) for word in words):
        return True
    return any(mentions_hydra(Path(folder)) for folder in config_dirs(words))


def config_dirs(words: Sequence[str]) -> set[str]:
    """The values of --config-dir; an empty text for a flag without a value."""
    spaced = {after for word, after in zip(words, [*words, ""][1:], strict=True) if word in CONFIG_DIR}
    return {*spaced, *(word.partition("=")[2] for word in words if word.startswith("--config-dir="))}


def mentions_hydra(folder: Path) -> bool:
    """Whether a YAML file below a folder may set Hydra's options; True if there are too many files to read."""
    num_seen = 0
    try:
        for place, folders, names in os.walk(folder, followlinks=True):
            num_seen += len(folders) + len(names)
            yaml_files = [Path(place, name) for name in names if name.endswith(".yaml")]
            if num_seen > MOST_FILES or any(b"hydra" in path.read_bytes() for path in yaml_files):
                return True
    except OSError:
        return True
    return False


def check_form(words: Sequence[str]) -> None:
    """Raise ConfigError for a word that is not an option, and for --config-dir without a folder or with several."""
    for word in options_of(words):
        key, equals, _ = word.lstrip("+").partition("=")
        if not key or key != "".join(key.split()) or not (equals or word.startswith("~")):
            raise ConfigError(
                f"{word}: not an option. Allowed: NAME=VALUE, without spaces. {program_advice(word)}{HELP}"
            )
    folders = config_dirs(words)
    if "" in folders or len(folders) > 1:
        names = " ".join(sorted(folders))
        raise ConfigError(f"--config-dir {names}: not one folder. Next: give the folder of your YAML")


def wrong_flags(words: Sequence[str]) -> str:
    """The refusal of a wrong flag. Hydra's flag parser has already printed its own message on stderr."""
    flags = " ".join(word for word in words if word.startswith("-"))
    return f"refused: {flags}: an unknown flag, or one without its value. {HELP}"


def hydra_argument(argument: str) -> str:
    """An argument of launch.py as Hydra takes it: `profile=true` becomes `profile.steps=20`.

    - `+search=` and `+target_set=` lose their plus, since the defaults list has these groups.
    - All declared options lose it, as in `++gpus=2`: the checks look for their plain names.
    - `search.from` becomes `search.source`, since `from` cannot name a field in Python.
    - `study.batch_size` and `model.by_gpus` get a plus, since the rows of a table are new keys to Hydra.
    - A choice that looks like a number is quoted, as in `precision="16"`: Hydra fails on numbers there.
    - A stack's version is quoted, as in `stack.torch="2.10"`: as a number it is 2.1.
    """
    argument = re.sub(r"^\+{1,2}(target_set=|search=)", r"\1", argument)
    argument = re.sub(r"^\+{0,2}search\.from=", "search.source=", argument)
    argument = quoted_texts(plainly_named(argument))
    # Unquoted, Hydra would sweep over two objectives.
    argument = re.sub(r"^search\.objective=\[?([\w ]*,[\w ,]*)\]?$", r'search.objective="\1"', argument)
    argument = re.sub(r"^(study\.batch_size|model\.by_gpus)=", r"+\1=", argument)
    match = re.fullmatch(r"\+{0,2}profile=(.+)", argument)
    if not match:
        return argument
    return f"profile.steps={','.join(PROFILE_STEPS.get(value, value) for value in match[1].split(','))}"


def plainly_named(argument: str) -> str:
    """The argument without plus signs if it sets a declared option. A table keeps them: rows are added to it."""
    plain = argument.lstrip("+")
    kind = options().get(plain.partition("=")[0]) if plain != argument else None
    return argument if kind is None or typing.get_origin(kind) is dict else plain


def quoted_texts(argument: str) -> str:
    """The argument. If its option takes a text, a value that Hydra would read as a number is quoted."""
    if match := re.fullmatch(rf"(\+{{0,2}}(?:{'|'.join(group_names())}|{TEXT_OPTIONS})=)([\w.,+-]+)", argument):
        choices = (f'"{choice}"' if NO_NAME.fullmatch(choice) else choice for choice in match[2].split(","))
        return match[1] + ",".join(choices)
    if re.match(r"\+{0,2}stack\.(expect|env)=\{", argument):
        return re.sub(r"(?<=:)(\s*)([\d.]+)(?=\s*[,}])", r'\1"\2"', argument)
    return argument


def check_once(words: Sequence[str], arguments: Sequence[str]) -> None:
    """Raise ConfigError for an option that has two values. Hydra would silently take the last.

    `arguments` are the words as Hydra takes them, so `profile=true` and `profile.steps=5` are the same option. Tables
    such as `program.metrics={...}` may be given twice: Hydra merges them.
    """
    allowed, given = options_of(arguments), dict[str, tuple[str, str]]()
    for word, argument in zip(words, arguments, strict=True):
        key, _, value = argument.lstrip("+").partition("=")
        if argument not in allowed or value.startswith("{"):
            continue
        earlier, earlier_value = given.setdefault(key, (word, value))
        if earlier_value != value:
            sweep = "" if key == "study" else f", or for a sweep -m {key}=VALUE,VALUE"
            raise ConfigError(f"{earlier} {word}: contradict each other. Next: give one of them{sweep}")


def check_resumed(words: Sequence[str], is_multirun: bool) -> None:
    """Raise ConfigError for an option that a resumed run or sweep does not take from the command line.

    Checked before Hydra composes: `model.hparams.width` may be an option of the run, but not of the default model.
    """
    keys = {word.partition("=")[0].lstrip("+~"): word for word in words if not word.startswith("hydra.")}
    if resumed := keys.pop("resume", None):
        if is_multirun:
            raise ConfigError(
                f"{resumed}: continues one run. Next: leave -m out, or continue a sweep with sweep.resume=<id>"
            )
        if foreign := [key for key in keys if key not in BESIDE_RESUME]:
            word, of_devices = keys[foreign[0]], foreign[0] in OF_DEVICES
            why = ", since its rates and cost must come from the same devices and strategy" if of_devices else ""
            raise ConfigError(
                f"{resumed} {word}: a resumed run keeps the configuration in its folder{why}. Allowed beside"
                f" resume: {', '.join(BESIDE_RESUME)}. Next: leave {foreign[0]} out"
                + (f", or begin a new run with {word}" if of_devices else "")
            )
    resumed = keys.get("sweep.resume")
    decided = OF_A_NEW_SWEEP if is_multirun else OF_A_NEW_SWEEP + OF_ADDED_JOBS
    if resumed and (word := next((keys[key] for key in decided if key in keys), "")):
        raise ConfigError(
            f"{resumed} {word}: has no effect, since a resumed sweep keeps its own. Next: leave it out, or begin a new"
            f" sweep with {word}"
        )
    if resumed and not is_multirun:
        foreign = [key for key in keys if key.partition(".")[0] not in BESIDE_SWEEP_RESUME]
        if foreign:
            raise ConfigError(
                f"{resumed} {' '.join(keys[key] for key in foreign)}: the sweep's jobs keep their configuration."
                f" Allowed beside sweep.resume: {', '.join(BESIDE_SWEEP_RESUME)}. Next: leave {foreign[0]} out, or add"
                " jobs to the sweep with -m"
            )


def recipes_of_sizes(words: Sequence[str]) -> list[str]:
    """The arguments, with a size replaced by its recipe. Raises ConfigError without one model that has this size."""
    size = next((word for word in words if word.startswith("size=")), "")
    if not size:
        return list(words)
    wanted = size.removeprefix("size=").split(",")
    model = next((word.removeprefix("model=") for word in words if word.startswith("model=")), "")
    has_own_recipes = any(word.partition("=")[0] in CONFIG_DIR for word in words)
    if not model or "," in model or not ({*wanted} <= {*sizes().get(model, [])} or has_own_recipes):
        raise ConfigError(unknown_size(size, wanted, model))
    recipe = "recipe=" + ",".join(f"{model}_{name}" for name in wanted)
    other = next((word for word in words if word.startswith("recipe=") and word != recipe), "")
    if other:
        names = other.removeprefix("recipe=").strip("[]")
        raise ConfigError(
            f"{size} {other}: contradict each other, since {size} is short for {recipe}. Next: give one of them, or"
            f" recipe=[{names},{model}_{wanted[0]}], where the later one overrides the earlier"
        )
    return [recipe if word == size else word for word in words]


def sizes() -> dict[str, list[str]]:
    """The sizes of each model, smallest first, from the recipes named MODEL_SIZE; no entry for a model without any."""
    matches = [match for path in CONF.glob("recipe/*.yaml") if (match := RECIPE_OF_A_SIZE.fullmatch(path.stem))]
    of_models: dict[str, list[str]] = {}
    for match in sorted(matches, key=lambda match: (match[1], match[3] == "b", float(match[2]))):
        of_models.setdefault(match[1], []).append(f"{match[2]}{match[3]}")
    return of_models


def unknown_size(word: str, wanted: Sequence[str], model: str) -> str:
    """The message for a size without one model, or of a model that has no such size."""
    of_models = sizes()
    is_single = model and "," not in model
    why = f"model={model} has no such size" if is_single else "is the size of one model, which is not given"
    fitting = next((name for name, known in of_models.items() if {*wanted} <= {*known}), "")
    allowed = "; ".join(f"model={name} size={', '.join(known)}" for name, known in of_models.items())
    example = f"model={fitting} {word}" if fitting else f"model={min(of_models)} size={of_models[min(of_models)][0]}"
    multirun = "-m " if "," in example else ""
    return f"{word}: {why}. Allowed: {allowed}. Next: {LAUNCH} {multirun}{example}"
