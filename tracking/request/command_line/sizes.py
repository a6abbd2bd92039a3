"""size= is short for the recipe of a model's size: `model=gpt size=1.5b` is `model=gpt recipe=gpt_1.5b`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from conf.schema import ConfigError
from tracking.base.installation import LAUNCH
from tracking.request.command_line.choices import CONF

RECIPE_OF_A_SIZE = re.compile(r"(\w+)_([\d.]+)([mb])")
CONFIG_DIR = ("-cd", "--config-dir")  # Its recipes may be of further sizes.


def recipes_of_sizes(words: Sequence[str]) -> list[str]:
    """The words with a size as the model's recipe. Raises ConfigError without one model that has this size."""
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
    """The sizes of each model that has some, the smallest first: its recipes are MODEL_SIZE."""
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
