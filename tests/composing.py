"""Composes configurations in process, as `python launch.py ...` does, many a second."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from conf import schema
from conf.schema import RunConfig
from tracking.nvml import Gpu

ROOT = Path(__file__).resolve().parent.parent
EIGHT_GPUS = [Gpu(index, "NVIDIA H200", f"GPU-{index}", 140 * 2**30, 9.0) for index in range(8)]


def composed(overrides: Sequence[str], config_dir: Path | None = None) -> RunConfig:
    """The configuration of one job. Raises what Hydra and OmegaConf raise, and ConfigError."""
    ConfigStore.instance().store("schema", schema.RunConfig)
    extra = [f"hydra.searchpath=[file://{config_dir.resolve()}]"] if config_dir else []
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = OmegaConf.to_object(compose("config", [*extra, *overrides]))
    assert isinstance(config, RunConfig)
    return config


def jobs(overrides: Sequence[str]) -> Iterator[list[str]]:
    """The overrides of each job of a multirun: all combinations of what commas separate."""
    choices = [
        [f"{one.get_key_element()}={value}" for value in one.sweep_string_iterator()]
        if one.is_sweep_override()
        else [text]
        for one, text in zip(OverridesParser.create().parse_overrides(list(overrides)), overrides, strict=True)
    ]
    return (list(combination) for combination in itertools.product(*choices))
