"""Options that older configurations lack. A hash leaves out their defaults, so stored hashes stay valid."""

from __future__ import annotations

from typing import Any

from conf.dataset_options import remove_unset_dataset
from conf.evaluation import remove_unset

RUN_DEFAULTS = {"strategy": "ddp", "warm_up": False, "price_per_gpu_hour": None}
# These describe the model, not the measurement; the checks turn by_gpus into batch_size and lr.
MODEL_KEYS = ("group_size", "exportable", "global_batch", "fp8", "by_gpus")
# Newer hyperparameters of gpt and their defaults. Other architectures have had all of them from the start.
GPT_DEFAULTS = {"architecture": "gpt", "kv_heads": None, "clip_norm": None, "activation_checkpointing": False}


def remove_newer(content: dict[str, Any]) -> None:
    """Remove newer options at their defaults from `content`, a run's options as a dict of dicts."""
    for key in MODEL_KEYS:
        del content["model"][key]
    hparams = content["model"]["hparams"]
    if hparams.get("architecture") == GPT_DEFAULTS["architecture"]:
        _remove_defaults(hparams, GPT_DEFAULTS)
    remove_unset(content, content["model"])
    remove_unset_dataset(content["dataset"])
    del content["instance"]["carbon_g_per_kwh"]
    _remove_defaults(content, RUN_DEFAULTS)


def _remove_defaults(content: dict[str, Any], defaults: dict[str, Any]) -> None:
    for key, default in defaults.items():
        if key in content and content[key] == default:
            del content[key]
