"""Makes a trained model again from the file that `save_model` left (see trainers.loop.trained_model)."""

from __future__ import annotations

from pathlib import Path

import torch

from conf import schema
from tracking.base import old_paths
from tracking.request import stored_config
from trainers.loop.build import make_data, make_module
from trainers.workload import Data, TrialModule, load_workload


def load_model(path: Path | str, data: Data | None = None) -> TrialModule:
    """The module with its weights, on the CPU and ready to evaluate.

    Its constructor is given `data`, or else the dataset that the model was trained on, whose index is then read from
    where the configuration says. Raises FileNotFoundError, and ConfigError where workload or dataset are not there.
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
