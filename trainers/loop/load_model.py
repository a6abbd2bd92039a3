"""Loads a trained model from the file that `save_model` wrote (see trainers.loop.trained_model)."""

from __future__ import annotations

from pathlib import Path

import torch

from conf import schema
from tracking.base import old_paths
from tracking.request import stored_config
from trainers.loop.build import make_data, make_module
from trainers.workload import Data, TrialModule, load_workload


def load_model(path: Path | str, data: Data | None = None) -> TrialModule:
    """Return the module with its trained weights, on the CPU and in evaluation mode.

    Its constructor gets `data`; without it, the dataset of the training, read from where its configuration says.
    Raises FileNotFoundError for a missing file, and ConfigError for a missing workload or dataset.
    """
    saved = torch.load(path, map_location="cpu", weights_only=True)
    config = stored_config.from_dict(schema.RunConfig, saved["config"])
    workload = load_workload(config)
    module = make_module(workload, make_data(workload, config.dataset) if data is None else data, config)
    module.on_load_checkpoint(saved)
    module.load_state_dict(saved["state_dict"])
    module.eval()
    return module


old_paths.watch(__name__)
