"""Weights that were trained before: what images they expect, and how they are loaded from a local file."""

from __future__ import annotations

import logging
import pickle
import reprlib
from pathlib import Path

import torch
from torch import nn

from conf.schema import ConfigError

# Of ImageNet's red, green and blue, from 0 to 1: what torchvision's weights expect images to be normalised by.
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)

log = logging.getLogger(__name__)


def load_pretrained(net: nn.Module, path: str, head: str) -> None:
    """Load a state dict, as torchvision publishes them, into `net`.

    The layer named `head` is left as it is, with a note in the log, where the file's has another shape or is missing:
    it was trained for other classes. Raises ConfigError where the file cannot be read or is of another network.
    """
    state, own = read_state(path), net.state_dict()
    own_head = {name for name in own if name.startswith(f"{head}.")}
    if any(name not in state or state[name].shape != own[name].shape for name in own_head):
        log.warning("model.hparams.pretrained=%s: the layer %s is not loaded: it is for other classes", path, head)
        state = {name: value for name, value in state.items() if name not in own_head}
        own = {name: value for name, value in own.items() if name not in own_head}
    # Weights from before 2018 lack the counter, which matters only to batch normalisation without momentum.
    missing = sorted(name for name in own.keys() - state.keys() if not name.endswith(".num_batches_tracked"))
    unknown = sorted(state.keys() - own.keys())
    other = sorted(name for name in own.keys() & state.keys() if state[name].shape != own[name].shape)
    problems = (("it lacks", missing), ("it has the unknown", unknown), ("of another shape is", other))
    reasons = [f"{what} {', '.join(names[:3])} ({len(names)} in all)" for what, names in problems if names]
    if reasons:
        raise ConfigError(
            f"model.hparams.pretrained={path}: these are weights of another network: {'; '.join(reasons)}; give a file"
            " of torchvision's for this one"
        )
    net.load_state_dict(state, strict=False)


def read_state(path: str) -> dict[str, torch.Tensor]:
    """The tensors by name in a file that torch.save wrote. Raises ConfigError where it holds anything else."""
    try:
        state = torch.load(Path(path).expanduser(), map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ConfigError(
            f"model.hparams.pretrained={path}: cannot be read ({reason}); give a file of weights on this machine"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(value, torch.Tensor) for value in state.values()):
        raise ConfigError(
            f"model.hparams.pretrained={path}: holds no plain state dict of tensors; give a file as torchvision"
            " publishes them"
        )
    if unnamed := [key for key in state if not isinstance(key, str)]:
        raise ConfigError(
            f"model.hparams.pretrained={path}: holds a tensor under the key {reprlib.repr(unnamed[0])}, which is no"
            f" name of a parameter ({len(unnamed)} such in all); give a state dict as torchvision publishes them"
        )
    return state
