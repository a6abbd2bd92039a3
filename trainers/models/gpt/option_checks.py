"""Checks a language model's options; each check raises ConfigError."""

from __future__ import annotations

from collections.abc import Mapping

from conf.schema import ConfigError
from trainers.models.gpt.cross_entropy import LARGEST_CAP
from trainers.models.schedule import check_above_zero, check_below_one, is_count, is_number, require

ARCHITECTURES = ("gpt", "llama")
ALIGNMENT = 64  # Matrix units need the number of the head's rows to be a multiple of it.


def check_counts(**counts: int) -> None:
    for name, value in counts.items():
        require(name, value, is_count(value) and value >= 1, "a whole number, 1 or more")


def check_network(
    width: int, heads: int, hidden: float, cap: float | None, attention_scale: float | None, architecture: str,
    kv_heads: int | None, activation_checkpointing: bool,
) -> None:  # fmt: skip
    require("width", width, is_count(width) and width % (4 * heads) == 0 < width, f"a multiple of 4 * heads={heads}")
    capped = cap is None or (is_number(cap) and 0 < cap <= LARGEST_CAP)
    require("cap", cap, capped, f"above 0 and up to {LARGEST_CAP:g}, or null for no cap")
    check_above_zero(hidden=hidden, **({} if attention_scale is None else {"attention_scale": attention_scale}))
    require("architecture", architecture, architecture in ARCHITECTURES, " or ".join(ARCHITECTURES))
    shared = kv_heads is None or (architecture == "llama" and is_count(kv_heads) and kv_heads > 0 == heads % kv_heads)
    require("kv_heads", kv_heads, shared, f"null, or with architecture=llama a divisor of heads={heads}")
    again = activation_checkpointing
    require("activation_checkpointing", again, isinstance(again, bool), "true or false")


def check_training(cooldown: float, momentum: float, clip_norm: float | None, positive: Mapping[str, float]) -> None:
    require("cooldown", cooldown, is_number(cooldown) and 0 <= cooldown <= 1, "from 0 to 1")
    check_below_one(momentum=momentum)
    check_above_zero(**positive)
    clips = clip_norm is None or (is_number(clip_norm) and clip_norm > 0)
    require("clip_norm", clip_norm, clips, "a norm above 0, or null")


def check_decays(adamw_weight_decay: float, weight_decay: float) -> None:
    decays = {"model.hparams.adamw_weight_decay": adamw_weight_decay, "model.optimizer.weight_decay": weight_decay}
    for key, value in decays.items():
        if not is_number(value) or value < 0:
            raise ConfigError(f"{key}={value}: must be a number, 0 or more")


def vocabulary_size(vocabulary: int | None, data_vocabulary: int, name: str) -> int:
    """Return the size of the model's vocabulary. Raises ConfigError if that of the data is larger."""
    if vocabulary is None:
        return -(-data_vocabulary // ALIGNMENT) * ALIGNMENT
    valid = is_count(vocabulary) and vocabulary >= 1
    require("vocabulary", vocabulary, valid, "a whole number of tokens, 1 or more, or null for the data's")
    if data_vocabulary > vocabulary:
        raise ConfigError(
            f"model.hparams.vocabulary={vocabulary}: is smaller than the {data_vocabulary:,} tokens of dataset={name}."
            f" Next: give {data_vocabulary} or more, or null for the data's"
        )
    return vocabulary
