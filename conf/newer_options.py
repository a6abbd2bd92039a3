"""Options that older configurations lack. A hash leaves out their defaults, so stored hashes stay valid."""

from __future__ import annotations

from typing import Any

from conf.dataset_options import without_unset
from conf.evaluation import without_defaults

OF_RUN = {"strategy": "ddp", "warm_up": False, "price_per_gpu_hour": None}
OF_MODEL = ("group_size", "exportable", "global_batch", "fp8")  # These describe the model, not the measurement.
# Newer hyperparameters of gpt and their defaults. Other architectures have had all of them from the start.
OF_GPT = {"architecture": "gpt", "kv_heads": None, "clip_norm": None, "activation_checkpointing": False}


def without_newer(content: dict[str, Any]) -> None:
    """Remove newer options at their defaults from `content`, a run's options as a dict of dicts."""
    for key in OF_MODEL:
        del content["model"][key]
    hparams = content["model"]["hparams"]
    if hparams.get("architecture") == OF_GPT["architecture"]:
        _without(hparams, OF_GPT)
    without_defaults(content, content["model"])
    without_unset(content["dataset"])
    del content["instance"]["carbon_g_per_kwh"]
    _without(content, OF_RUN)


def _without(content: dict[str, Any], defaults: dict[str, Any]) -> None:
    for key, default in defaults.items():
        if key in content and content[key] == default:
            del content[key]
