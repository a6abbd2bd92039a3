"""A network to play against that is trained no more: a file, known by a digest of its weights."""

from __future__ import annotations

import hashlib
import pickle
import struct
from pathlib import Path

import torch

from conf.schema import ConfigError
from trainers.models.minigo.network import GoNet, Sizes

CHAMPION = "champion."  # how the names begin in a model.pt


# what torch.load and the look into what it gives raise for a file that no run has written
UNREADABLE = (
    OSError, EOFError, LookupError, TypeError, AttributeError, RuntimeError, ValueError, struct.error,
    pickle.UnpicklingError,
)  # fmt: skip


def load_frozen(file: str, digest: str | int | None, sizes: Sizes) -> GoNet:
    """The champion of a run's model.pt. Raises ConfigError where there is none of these sizes or of this digest."""
    try:
        weights = torch.load(Path(file), map_location="cpu", weights_only=True)["state_dict"]
    except UNREADABLE as error:
        raise ConfigError(
            f"model.hparams.frozen={file}: {str(error) or 'it is empty'}; give the model.pt of a run of model=minigo"
            " with save_model=final"
        ) from error
    net = GoNet(sizes)
    try:
        net.load_state_dict({key.removeprefix(CHAMPION): weights[key] for key in weights if key.startswith(CHAMPION)})
    except (RuntimeError, TypeError, AttributeError) as error:
        raise ConfigError(f"model.hparams.frozen={file}: is no network of {sizes}") from error
    there = digest_of(net)
    if digest is not None and not there.startswith(str(digest)):
        raise ConfigError(
            f"model.hparams.frozen_digest={digest}: the network in {file} has the digest {there}; give its file, or"
            " leave the digest out"
        )
    return net.requires_grad_(False).eval()


def digest_of(net: GoNet) -> str:
    """16 hexadecimal digits of all weights and running statistics, as float32."""
    content = hashlib.sha256()
    for name, tensor in sorted(net.state_dict().items()):
        content.update(name.encode())
        content.update(tensor.detach().cpu().contiguous().float().numpy().tobytes())
    return content.hexdigest()[:16]
