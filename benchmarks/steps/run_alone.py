"""For benchmarks that train without launch.py: a composed configuration, and a process group of one."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import torch
from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from omegaconf import OmegaConf

from conf import schema
from trainers.loop import precision as precisions
from trainers.loop.process_group import join
from trainers.workload import Shard

ROOT = Path(__file__).resolve().parents[2]
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}


def composed(overrides: list[str]) -> schema.RunConfig:
    ConfigStore.instance().store("schema", schema.RunConfig)
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        return OmegaConf.to_object(compose("config", overrides))  # type: ignore[return-value]


def join_alone(parser: argparse.ArgumentParser, config: schema.RunConfig) -> Shard:
    """Join as the run's only process, in its precision. Exits with an error if `gpus` is not 0 or 1."""
    num_visible = torch.cuda.device_count()
    if str(config.gpus) not in ("0", "1") or config.num_gpus() > num_visible:
        parser.error(f"gpus={config.gpus}: give gpus=0 (the CPU) or gpus=1; {num_visible} GPUs are visible here")
    os.environ |= {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    shard = join(config)
    precisions.apply(config.precision)
    return shard
