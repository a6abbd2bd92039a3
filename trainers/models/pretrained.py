"""Loads pretrained weights from a local file, and names the normalisation of images that they expect."""

from __future__ import annotations

import logging
import pickle
import reprlib

import torch
from torch import nn

from conf.schema import ConfigError
from tracking.base.paths import with_home

# Mean and deviation of ImageNet's red, green and blue, from 0 to 1: torchvision's weights expect this normalisation.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

log = logging.getLogger(__name__)


def load_pretrained(net: nn.Module, path: str, head: str) -> None:
    """Load a state dict, as torchvision publishes them, into `net`.

    If the layer named `head` is missing in the file or has another shape, it was trained for other classes: it is not
    loaded, and the log says so. Raises ConfigError if the file cannot be read or belongs to another network.
    """
    state, current = read_state(path), net.state_dict()
    head_names = {name for name in current if name.startswith(f"{head}.")}
    if any(name not in state or state[name].shape != current[name].shape for name in head_names):
        log.warning("model.hparams.pretrained=%s: layer %s is not loaded: it is for other classes", path, head)
        state = {name: value for name, value in state.items() if name not in head_names}
        current = {name: value for name, value in current.items() if name not in head_names}
    # Weights from before 2018 lack this counter, which matters only to batch normalisation without momentum.
    missing = sorted(name for name in current.keys() - state.keys() if not name.endswith(".num_batches_tracked"))
    unknown = sorted(state.keys() - current.keys())
    reshaped = sorted(name for name in current.keys() & state.keys() if state[name].shape != current[name].shape)
    problems = (("missing", missing), ("unknown", unknown), ("of another shape", reshaped))
    reasons = [f"{problem}: {', '.join(names[:3])} ({len(names)} in all)" for problem, names in problems if names]
    if reasons:
        raise ConfigError(
            f"model.hparams.pretrained={path}: holds weights of another network ({'; '.join(reasons)}). Next: give"
            " torchvision's file for this network"
        )
    net.load_state_dict(state, strict=False)


def read_state(path: str) -> dict[str, torch.Tensor]:
    """Return the tensors, by name, of a file that torch.save wrote. Raises ConfigError if it holds anything else."""
    try:
        state = torch.load(with_home(path), map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(
            f"model.hparams.pretrained={path}: cannot be read ({reason}). Next: give a file of weights on this machine"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ConfigError(
            f"model.hparams.pretrained={path}: is not a plain state dict of tensors. Next: give a file as torchvision"
            " publishes them"
        )
    if unnamed := [key for key in state if not isinstance(key, str)]:
        raise ConfigError(
            f"model.hparams.pretrained={path}: the key {reprlib.repr(unnamed[0])} is not a parameter's name"
            f" ({len(unnamed)} such in all). Next: give a state dict as torchvision publishes them"
        )
    return state
