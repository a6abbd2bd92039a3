"""Composes configurations in process, as `python launch.py ...` does, many a second."""

from __future__ import annotations

import copy
import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from conf import schema
from conf.instance_prices import prices
from conf.schema import RunConfig
from tracking.machine.environment.nvml import Gpu

ROOT = Path(__file__).resolve().parents[2]
EIGHT_GPUS = [Gpu(index, "NVIDIA H200", f"GPU-{index}", 140 * 2**30, 9.0) for index in range(8)]


@functools.cache
def register_schema() -> None:
    ConfigStore.__deepcopy__ = lambda self, memo: self  # type: ignore[attr-defined]  # as launch.py has it
    ConfigStore.instance().store("schema", schema.RunConfig)
    for name, price in prices().items():
        ConfigStore.instance().store(name, price, group="instance", package="instance")


def study(name: str) -> dict[str, Any]:
    """What a study of conf/study says of itself."""
    content: dict[str, Any] = yaml.safe_load((ROOT / f"conf/study/{name}.yaml").read_text())["study"]
    return content


def composed(overrides: Sequence[str], config_dir: Path | None = None) -> RunConfig:
    """The configuration of one job. Raises what Hydra and OmegaConf raise, and ConfigError.

    Composing takes a tenth of a second, and jobs that differ in their seeds alone share it.
    """
    seeds = [word for word in overrides if re.fullmatch(r"seed=\d+", word)]
    config = composed_once(tuple(word for word in overrides if word not in seeds), config_dir)
    if seeds:
        config.seed = int(seeds[-1].removeprefix("seed="))
    return config


def composed_once(overrides: tuple[str, ...], config_dir: Path | None) -> RunConfig:
    if config_dir is not None:  # A test may change its files.
        return compose_job(overrides, config_dir)
    return copy.deepcopy(composed_from_ours(overrides))


@functools.lru_cache(maxsize=512)
def composed_from_ours(overrides: tuple[str, ...]) -> RunConfig:
    return compose_job(overrides, None)


def compose_job(overrides: Sequence[str], config_dir: Path | None) -> RunConfig:
    register_schema()
    extra = [f"hydra.searchpath=[file://{config_dir.resolve()}]"] if config_dir else []
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = OmegaConf.to_object(compose("config", [*extra, *overrides]))
    assert isinstance(config, RunConfig)
    return config


def jobs(overrides: Sequence[str]) -> list[list[str]]:
    """The overrides of each job of a multirun: all combinations of what commas separate, and of a study's grid."""
    register_schema()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        asked = [*grid([override for override in overrides if override.startswith("+study=")]), *overrides]
        parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
        return BasicSweeper.split_arguments(parser.parse_overrides(asked), None)[0]


def grid(study: Sequence[str]) -> list[str]:
    """What a study sweeps over, as overrides."""
    params = compose("config", [*study], return_hydra_config=True).hydra.sweeper.get("params") if study else None
    return [f"{key}={value}" for key, value in (params or {}).items()]
