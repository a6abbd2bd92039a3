"""Loads a frozen network to play against from a file, and computes a digest of its weights."""

from __future__ import annotations

import hashlib
import pickle
import struct
from pathlib import Path

import torch

from conf.schema import ConfigError
from trainers.models.minigo.network import GoNet, Sizes

CHAMPION = "champion."  # prefix of the champion's names in model.pt

# Errors of torch.load, and of reading its result, for a file that no run wrote.
UNREADABLE = (
    OSError, EOFError, LookupError, TypeError, AttributeError, RuntimeError, ValueError, struct.error,
    pickle.UnpicklingError,
)  # fmt: skip


def load_network(file: Path) -> tuple[GoNet, float]:
    """Return the champion in a run's model.pt, of the sizes that the run had, and the run's komi."""
    hparams = torch.load(file, map_location="cpu", weights_only=True)["config"]["model"]["hparams"]
    sizes = Sizes(*(hparams[name] for name in ("board", "filters", "blocks", "dense")))
    return load_frozen(str(file), None, sizes), hparams["komi"]


def load_frozen(file: str, digest: str | int | None, sizes: Sizes) -> GoNet:
    """Return the champion in a run's model.pt. Raises ConfigError for other sizes or another digest."""
    try:
        weights = torch.load(Path(file), map_location="cpu", weights_only=True)["state_dict"]
    except UNREADABLE as error:  # For another file, torch.load may raise "list index out of range".
        why = f"cannot be read ({error.strerror})" if isinstance(error, OSError) else "is not a run's model.pt"
        raise ConfigError(
            f"model.hparams.frozen={file}: {why}. Next: give the model.pt of a run of model=minigo"
            " with save_model=final"
        ) from error
    net = GoNet(sizes)
    try:
        net.load_state_dict({key.removeprefix(CHAMPION): weights[key] for key in weights if key.startswith(CHAMPION)})
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"model.hparams.frozen={file}: holds no network of {sizes}. Next: give a file of these sizes, or the"
            " model.hparams of its training"
        ) from error
    digest_in_file = digest_of(net)
    if digest is not None and not digest_in_file.startswith(str(digest)):
        raise ConfigError(
            f"model.hparams.frozen_digest={digest}: the network in {file} has the digest {digest_in_file}. Next: give"
            " the file with your digest, or leave the digest out"
        )
    return net.requires_grad_(False).eval()


def digest_of(net: GoNet) -> str:
    """Return 16 hexadecimal digits of a digest of all weights and running statistics, as float32."""
    content = hashlib.sha256()
    for name, tensor in sorted(net.state_dict().items()):
        content.update(name.encode())
        content.update(tensor.detach().cpu().contiguous().float().numpy().tobytes())
    return content.hexdigest()[:16]
