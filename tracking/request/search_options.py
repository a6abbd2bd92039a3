"""The options of a search: parses its axes, budget and objective, and refuses wrong ones."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conf.launch_options import OBJECTIVES, SET_BY_SEARCH, SearchConfig
from conf.schema import ConfigError, RunConfig
from tracking.base.number_text import significant
from tracking.request.node_options import VisibleGpu
from tracking.request.program_command import used_placeholders
from tracking.request.refusal import escaped

RESUMING_OPTIONS = ("checkpoint_every_", "cluster.max_requeues")  # with these, a run may continue after an interruption
WORD_PATTERN = re.compile(r"[A-Za-z_][\w.+-]*", re.ASCII)  # needs no quotes for Hydra, except for HYDRA_KEYWORDS
HYDRA_KEYWORDS = ("true", "false", "null", "none", "nan", "inf", "yes", "no", "on", "off")
REQUESTS = re.compile(r"""\+{0,2}search=.*|sweep\.until_decided=["']?(?i:true|yes|y|on|[1-9]\d*)["']?""")
BUDGET_PATTERN = re.compile(r"(\d+(?:\.\d+)?)\s*(s|sec|min|h|gpu-hours|usd|runs)")
MOST_OF_A_BUDGET = 1e6  # in any unit; a larger number is a typing error
SECONDS = {"s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Budget:
    """The limit of all runs of a search together: `amount` in seconds, gpu-hours, usd or runs."""

    amount: float
    unit: str

    def used_by(self, config: RunConfig, seconds: float) -> float:
        """The part of the budget that a run of `seconds`, its start included, uses."""
        if self.unit == "runs":
            return 1.0
        if self.unit == "gpu-hours":
            return seconds / 3600 * config.num_gpus() * config.nodes
        if self.unit == "usd":
            return seconds / 3600 * (config.instance.price_per_hour or 0.0) * config.nodes
        return seconds

    def words(self, amount: float) -> str:
        """An amount with its unit, as text."""
        if self.unit == "seconds":
            return f"{amount:.0f} s" if amount < 120 else f"{amount / 60:.1f} min"
        if self.unit == "runs":
            return f"{amount:.0f} run{'' if round(amount) == 1 else 's'}"
        return f"{significant(amount)} {self.unit}"

    def option(self, amount: float) -> str:
        """An amount, rounded up, as a value of `search.budget=`."""
        if self.unit == "seconds":
            return f"{math.ceil(amount)}s" if amount < 120 else f"{math.ceil(amount / 60)}min"
        step = 1.0 if self.unit == "runs" else 10.0 ** (math.floor(math.log10(amount)) - 1)
        return f"{math.ceil(round(amount / step, 6)) * step:.12g}{self.unit}"


def objectives_of(search: SearchConfig) -> tuple[str, ...]:
    """The objectives to minimise: one or two. Raises ConfigError."""
    objectives = tuple(word.strip() for word in search.objective.split(","))
    if not set(objectives) <= set(OBJECTIVES) or len(set(objectives)) != len(objectives) or len(objectives) > 2:
        raise ConfigError(
            f"search.objective={search.objective}: no such objective. Allowed: {', '.join(OBJECTIVES)}, or two of them,"
            " as time,cost"
        )
    return objectives


def budget_of(search: SearchConfig) -> Budget:
    """The budget of a search. Raises ConfigError if it cannot be parsed."""
    match = BUDGET_PATTERN.fullmatch(search.budget.strip())
    if not match or not 0 < float(match[1]) <= MOST_OF_A_BUDGET:
        raise ConfigError(
            f"search.budget={search.budget}: not a budget. Allowed: a positive number, up to a million, with its unit:"
            " 90s, 30min, 2h, 2gpu-hours, 5usd or 40runs"
        )
    amount, unit = float(match[1]), match[2]
    if unit == "runs" and not amount.is_integer():
        raise ConfigError(
            f"search.budget={search.budget}: not a whole number of runs. Next: give {math.ceil(amount)}runs or more"
        )
    return Budget(amount * SECONDS[unit], "seconds") if unit in SECONDS else Budget(amount, unit)


def is_requested(words: Sequence[str]) -> bool:
    """Whether the arguments seem to ask for a search. Only the composed config can tell for sure."""
    return any(map(REQUESTS.fullmatch, words))


def is_search(config: RunConfig) -> bool:
    """Whether earlier runs decide the next: a search, or a sweep with sweep.until_decided."""
    return bool(search_name(config))


def search_name(config: RunConfig) -> str:
    """The argument that requests the search, as typed; empty without a search."""
    if config.search.name:
        return f"+search={config.search.name}"
    return "sweep.until_decided=true" if config.sweep.until_decided else ""


def check_search(config: RunConfig, overrides: Sequence[str], gpus: Sequence[VisibleGpu] = ()) -> None:
    """Raise ConfigError for a search that cannot be made on these GPUs, and for options without effect."""
    search = config.search
    for key in SET_BY_SEARCH:
        if any(word.lstrip("+").startswith(f"search.{key}=") for word in overrides):
            raise ConfigError(f"search.{key}: is set by the search itself. Next: leave it out")
    if is_search(config):
        check_objective(config)
        check_energy_counter(config, gpus)
        check_compatible(config, overrides)
        return
    changed = [key for key, value in vars(search).items() if value != getattr(SearchConfig(), key)]
    if changed and not config.sweep.resume:  # A continued search keeps its options, except for the budget.
        raise ConfigError(
            f"search.{changed[0]}={getattr(search, changed[0])}: has no effect without a search. Next:"
            " add -m +search=quickest"
        )


def check_objective(config: RunConfig) -> None:
    """Raise ConfigError if the objective or the budget cannot be measured here."""
    search, budget, objectives = config.search, budget_of(config.search), objectives_of(config.search)
    if not 1 <= search.max_finalists <= 8:
        raise ConfigError(f"search.max_finalists={search.max_finalists}: out of range. Allowed: 1 to 8")
    if not config.targets():
        raise ConfigError(
            f"{search_name(config)}: model={config.model.name} has no target on dataset={config.dataset.name}. Next:"
            " give target=VALUE"
        )
    if "cost" in objectives or budget.unit == "usd":
        check_price(config, f"objective={search.objective}" if "cost" in objectives else f"budget={search.budget}")
    if "energy" in objectives and not config.on_gpu():
        raise ConfigError(
            f"search.objective={search.objective}: gpus=0, but energy is measured by a GPU's counter. Next: give gpus,"
            " or search.objective=time"
        )
    if budget.unit == "gpu-hours" and not config.on_gpu():
        raise ConfigError(f"search.budget={search.budget}: gpus=0 uses no GPU-hours. Next: give minutes or runs")


def check_price(config: RunConfig, option: str) -> None:
    """Raise ConfigError if no run has a cost above 0, which the `option` of the search needs."""
    price = config.instance.price_per_hour
    if price is None:
        beside = ""
        if option.startswith("budget="):
            beside = ", or beside sweep.resume, which keeps the price, a budget in min or runs"
        raise ConfigError(f"search.{option}: the price is not known. Next: give price_per_hour or instance{beside}")
    if price == 0:
        raise ConfigError(
            f"search.{option}: price_per_hour=0, so each run costs 0 and no cost can be compared. Next: give a price"
            " above 0, or search for the time with a budget in min or runs"
        )


def check_energy_counter(config: RunConfig, gpus: Sequence[VisibleGpu]) -> None:
    """Raise ConfigError if energy is an objective and a GPU here has no counter; clusters are not checked."""
    if "energy" not in objectives_of(config.search) or config.cluster.kind != "none":
        return
    if uncounted := [gpu for gpu in config.chosen(gpus) if gpu.energy_counter is False]:
        raise ConfigError(
            f"search.objective={config.search.objective}: GPU {uncounted[0].index} ({uncounted[0].name}) has no energy"
            " counter; MIG devices and GPUs before Volta have none. Next: give gpus=[INDEX] of a whole GPU, or"
            " search.objective=time"
        )


def check_compatible(config: RunConfig, overrides: Sequence[str]) -> None:
    """Raise ConfigError for options that do not fit a search."""
    name = search_name(config)
    for key, default in (("warm_up", False), ("shuffle", None), ("paired", False)):
        if getattr(config.sweep, key) != default:
            raise ConfigError(f"sweep.{key}: has no effect on {name}, which orders its runs itself. Next: leave it out")
    if word := next((word for word in overrides if word.lstrip("+").startswith(RESUMING_OPTIONS)), ""):
        raise ConfigError(f"{word}: {name} measures the time of whole runs, not of resumed ones. Next: leave it out")
    if config.is_program() and "seed" not in used_placeholders(config.program):
        raise ConfigError(
            f"program.command: {name} repeats runs with other seeds, but the command has no {{seed}}. Next: put it"
            " there"
        )
    if config.sweep.until_decided and config.search.source is not None:
        raise ConfigError(
            f"search.from={config.search.source}: sweep.until_decided=true runs only the settings of the command line."
            " Next: leave it out"
        )
    if config.search.name and config.sweep.until_decided:
        raise ConfigError("sweep.until_decided=true: a search decides by itself. Next: leave it out")
    if not config.stop_at_target:
        raise ConfigError(f"stop_at_target=false: {name} compares times to the target. Next: leave it out")
    if config.detach:
        raise ConfigError(f"detach=true: {name} chooses each run by the results of earlier runs. Next: leave it out")
    if config.study.name:
        raise ConfigError(f"+study={config.study.name}: cannot be combined with {name}. Next: leave one of them out")


def setting_overrides(setting: Mapping[str, Any]) -> list[str]:
    """The overrides of a setting, as arguments."""
    return [f"{key}={_text(value)}" for key, value in setting.items()]


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float) or (WORD_PATTERN.fullmatch(value) and value.lower() not in HYDRA_KEYWORDS):
        return str(value)
    return f'"{escaped(value)}"'
