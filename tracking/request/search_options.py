"""What a search is asked for: its axes, its budget and its objective, checked or refused."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conf.launch_options import OBJECTIVES, SearchConfig
from conf.schema import NOT_MEASURED, ConfigError, RunConfig
from tracking.request.program_command import used
from tracking.request.refusal import escaped

ASK = "-m +search=quickest batch_size=16,32,64 'model.optimizer.lr=interval(0.01,0.1)'"
# What a search decides itself, or what would change the question that it answers.
NO_AXES = (
    "seed", "recipe", "closed", "target", "max_epochs", "stop_at_target", "limit_train_batches",
    "instance", "price_per_hour", "price_per_gpu_hour", "warm_up", "model.targets", "model.metrics", "program.metrics",
    "hydra",
    "checkpoint_every_steps", "checkpoint_every_epochs", "save_model",
    "eval_every_steps", "eval_every_samples", "eval_at_epochs", "eval_after_steps", *NOT_MEASURED,
)  # fmt: skip
OTHER_TASKS = ("model", "dataset")  # but for the options below them
WHOLE_RUNS = ("checkpoint_every_", "cluster.max_requeues")  # with which a run may go on after an interruption
WORD = re.compile(r"[A-Za-z_][\w.+-]*", re.ASCII)  # needs no quotes, unless it is one of these:
MEANT = ("true", "false", "null", "none", "nan", "inf", "yes", "no", "on", "off")
BUDGET = re.compile(r"(\d+(?:\.\d+)?)\s*(s|sec|min|h|gpu-hours|usd|runs)")
WHOLE_ENDS = re.compile(r"interval\(\s*-?\d+\s*,\s*-?\d+\s*\)")
SECONDS = {"s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0}
AROUND = (0.25, 0.5, 1.0, 2.0)  # of the model's batch, where no axis is named
LR_AROUND = 4.0  # times more and less than the model's learning rate, likewise


@dataclass(frozen=True)
class Budget:
    """What all runs of a search may take: `amount` in seconds, gpu-hours, usd or runs."""

    amount: float
    unit: str

    def of(self, config: RunConfig, seconds: float) -> float:
        """What a run of `seconds` takes of it, its start included."""
        if self.unit == "runs":
            return 1.0
        if self.unit == "gpu-hours":
            return seconds / 3600 * config.num_gpus() * config.nodes
        if self.unit == "usd":
            return seconds / 3600 * (config.instance.price_per_hour or 0.0) * config.nodes
        return seconds

    def words(self, amount: float) -> str:
        """An amount of it as a user says it."""
        if self.unit == "seconds":
            return f"{amount:.0f} s" if amount < 120 else f"{amount / 60:.1f} min"
        return f"{amount:.0f} runs" if self.unit == "runs" else f"{amount:.3g} {self.unit}"

    def option(self, amount: float) -> str:
        """An amount of it, rounded up, as `search.budget=` takes it."""
        if self.unit == "seconds":
            return f"{math.ceil(amount)}s" if amount < 120 else f"{math.ceil(amount / 60)}min"
        step = 1.0 if self.unit == "runs" else 10.0 ** (math.floor(math.log10(amount)) - 1)
        return f"{math.ceil(round(amount / step, 6)) * step:.12g}{self.unit}"


def objectives_of(search: SearchConfig) -> tuple[str, ...]:
    """What is to be least: one objective, or two of them. Raises ConfigError."""
    objectives = tuple(word.strip() for word in search.objective.split(","))
    if not set(objectives) <= set(OBJECTIVES) or len(set(objectives)) != len(objectives) or len(objectives) > 2:
        raise ConfigError(
            f"search.objective={search.objective}: allowed: {', '.join(OBJECTIVES)}, or two of them, as time,cost"
        )
    return objectives


def budget_of(search: SearchConfig) -> Budget:
    """Raises ConfigError for a budget that cannot be read."""
    match = BUDGET.fullmatch(search.budget.strip())
    if not match or float(match[1]) <= 0:
        raise ConfigError(
            f"search.budget={search.budget}: give a positive number with its unit: 90s, 30min, 2h, 2gpu-hours, 5usd"
            " or 40runs"
        )
    amount, unit = float(match[1]), match[2]
    if unit == "runs" and not amount.is_integer():
        raise ConfigError(f"search.budget={search.budget}: runs are whole; give {math.ceil(amount)}runs or more")
    return Budget(amount * SECONDS[unit], "seconds") if unit in SECONDS else Budget(amount, unit)


def axis_of(word: str, key: str, sweep: Any, choices: Sequence[Any]) -> dict[str, Any]:
    """The fields of an axis that a word of the command line gives.

    `sweep` is what Hydra's parser makes of its value, and `choices` are the values that it lists, if it lists any.
    Raises ConfigError.
    """
    name = key.lstrip("+")
    if name in OTHER_TASKS or any(name == known or name.startswith(f"{known}.") for known in NO_AXES):
        raise ConfigError(
            f"{word}: {key} is no axis of a search; search what trains faster, as batch_size or precision"
        )
    if hasattr(sweep, "end") and not choices:
        return _interval(word, key, sweep)
    values = list(dict.fromkeys(map(_plain, choices)))
    if not values or any(not isinstance(value, str | int | float | bool) or value == "" for value in values):
        raise ConfigError(f"{word}: an axis of a search has plain values: {key}=8,16,32 or '{key}=interval(8,32)'")
    return {"key": key, "choices": tuple(values)}


def _plain(value: Any) -> Any:
    """A quoted word as its text; lists and dictionaries stay, and are refused."""
    text = getattr(value, "text", value)
    return tuple(text) if isinstance(text, list | dict) else text


def _interval(word: str, key: str, sweep: Any) -> dict[str, Any]:
    low, high = sweep.start, sweep.end
    log, integer = "log" in sweep.tags, bool(WHOLE_ENDS.search(word))  # Hydra makes floats of both ends.
    if not all(isinstance(end, int | float) and math.isfinite(end) for end in (low, high)) or not low < high:
        raise ConfigError(f"{word}: the interval begins at {low} and ends at {high}; give the lower end first")
    if log and low <= 0:
        raise ConfigError(f"{word}: an interval on a logarithmic scale begins above 0, not at {low}")
    return {"key": key, "low": float(low), "high": float(high), "log": log, "integer": integer}


def default_axes(config: RunConfig) -> list[str]:
    """The words of the axes that are searched where none is named: the batch, and the learning rate for it.

    Both are around the model's own; its rule of scaling goes with the global batch.
    """
    if config.is_program():
        raise ConfigError(f"{search_name(config)}: a program's axes are named: {ASK}")
    group, size, key = config.model.group_size, config.device_batch_size(), "batch_size"
    if config.model.global_batch:  # It stays while devices are searched, too.
        group, size, key = group * config.world_size(), config.samples_per_step(), "global_batch_size"
    sizes = dict.fromkeys(max(1, round(size * part / group)) * group for part in AROUND)
    lr = config.model.optimizer.lr
    rates = f"model.optimizer.lr=tag(log,interval({lr / LR_AROUND:.3g},{lr * LR_AROUND:.3g}))"
    return [f"{key}={','.join(map(str, sizes))}", rates]


def is_search(config: RunConfig) -> bool:
    """Whether the runs follow from each other: a search, or a sweep that is repeated until it is decided."""
    return bool(search_name(config))


def search_name(config: RunConfig) -> str:
    """What asks for it, as it was typed; empty where nothing does."""
    if config.search.name:
        return f"+search={config.search.name}"
    return "sweep.until_decided=true" if config.sweep.until_decided else ""


def check_search(config: RunConfig, overrides: Sequence[str]) -> None:
    """Raise ConfigError for a search that cannot be made, and for options of one without it."""
    search = config.search
    for key in ("name", "axes", "setting", "phase", "block", "cap_sec", "trial"):
        if any(word.lstrip("+").startswith(f"search.{key}=") for word in overrides):
            raise ConfigError(f"search.{key}: is the search's own; leave it out")
    if is_search(config):
        check_objective(config)
        check_heeded(config, overrides)
        return
    changed = [key for key, value in vars(search).items() if value != getattr(SearchConfig(), key)]
    if changed and not config.sweep.resume:  # A search that goes on has its options, but for the budget.
        raise ConfigError(
            f"search.{changed[0]}={getattr(search, changed[0])}: has no effect without a search; add -m"
            " +search=quickest"
        )


def check_objective(config: RunConfig) -> None:
    """Raise ConfigError where what is to be least, or spent, is not known here."""
    search, budget, objectives = config.search, budget_of(config.search), objectives_of(config.search)
    if not 1 <= search.max_finalists <= 8:
        raise ConfigError(f"search.max_finalists={search.max_finalists}: give 1 to 8")
    if not config.targets():
        raise ConfigError(f"{search_name(config)}: {config.model.name} has no target here; give target=VALUE")
    if not config.instance.price_per_hour and ("cost" in objectives or budget.unit == "usd"):
        asked = f"objective={search.objective}" if "cost" in objectives else f"budget={search.budget}"
        raise ConfigError(f"search.{asked}: there is no price; give price_per_hour or instance")
    if "energy" in objectives and not config.on_gpu():
        raise ConfigError(
            f"search.objective={search.objective}: a GPU's counter measures energy, and gpus=0; give gpus, or time"
        )
    if budget.unit == "gpu-hours" and not config.on_gpu():
        raise ConfigError(f"search.budget={search.budget}: gpus=0 uses none of it; give minutes or runs")


def check_heeded(config: RunConfig, overrides: Sequence[str]) -> None:
    """Raise ConfigError for options with which runs do not follow from each other."""
    name = search_name(config)
    for key, unset in (("warm_up", False), ("shuffle", None), ("paired", False)):
        if getattr(config.sweep, key) != unset:
            raise ConfigError(f"sweep.{key}: has no effect on {name}, which orders its runs itself")
    if word := next((word for word in overrides if word.lstrip("+").startswith(WHOLE_RUNS)), ""):
        raise ConfigError(f"{word}: {name} times whole runs, none that goes on; leave it out")
    if config.is_program() and "seed" not in used(config.program):
        raise ConfigError(
            f"program.command: {name} repeats runs with other seeds, and the command has no {{seed}}; put it there"
        )
    if config.sweep.until_decided and config.search.source is not None:
        raise ConfigError(
            f"search.from={config.search.source}: sweep.until_decided=true decides among the settings that are named,"
            " and begins with no other; leave it out"
        )
    if config.search.name and config.sweep.until_decided:
        raise ConfigError("sweep.until_decided=true: a search decides by itself; leave it out")
    if not config.stop_at_target:
        raise ConfigError(f"stop_at_target=false: {name} compares times to the target; leave it out")
    if config.detach:
        raise ConfigError(f"detach=true: {name} chooses each run by those before; leave it out")
    if config.study.name:
        raise ConfigError(f"+study={config.study.name}: is a sweep of its own; leave it, or {name}, out")


def setting_words(setting: Mapping[str, Any]) -> list[str]:
    """The overrides of the command line that give a setting."""
    return [f"{key}={_text(value)}" for key, value in setting.items()]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float) or (WORD.fullmatch(value) and value.lower() not in MEANT):
        return str(value)
    return f'"{escaped(value)}"'
