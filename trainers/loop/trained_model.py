"""Keeps the trained model where `save_model` asks for it: the weights at the end, or those of the best evaluation.

The file is written when the clock has stopped and the run has its result, which a full disk cannot cost it then. What
is done while the clock runs is a copy of weights to the host, at an evaluation that is better than all before.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from conf.schema import ConfigError, RunConfig
from tracking.measure.training import epochs_trained
from tracking.record import Journal, evaluations, run_folder
from trainers.loop.saving import WholeFiles
from trainers.ops.sharding import sharded
from trainers.workload import TrialModule

COMPILED = "_orig_mod."  # Names in a module that torch.compile wraps begin with it.


class BestWeights(pl.Callback):
    """Holds the weights of the best evaluation so far on the host; a checkpoint has them too.

    Each process has one, and the first one's holds them: all train the same weights, or parts of the same.
    """

    def __init__(self, config: RunConfig, holds: bool) -> None:
        self.evaluation: dict[str, Any] = {}
        self.weights: dict[str, Any] = {}
        self._targets = config.targets()
        self._metric = next(iter(config.model.metrics), "")
        self._directions = config.directions()
        self._score = float("-inf")
        self._holds = holds

    def make_room(self, module: TrialModule) -> None:
        """Take the memory for the weights before the clock starts: pinned memory takes long to come by."""
        if not self._holds:
            return
        of_checkpoint, self.weights = self.weights, {}
        for name, value in module.state_dict().items():
            if isinstance(value, torch.Tensor):
                room = torch.empty if sharded.is_sharded(value) else torch.empty_like
                shape: Any = value.shape if sharded.is_sharded(value) else value
                self.weights[name] = room(shape, dtype=value.dtype, device="cpu", pin_memory=value.is_cuda)
        self._hold(of_checkpoint)

    def _hold(self, weights: Mapping[str, Any]) -> None:
        for name, value in weights.items():
            if isinstance(value, torch.Tensor):
                self.weights[name].copy_(value, non_blocking=True)
            else:
                self.weights[name] = copy.deepcopy(value)

    def evaluated(self, trainer: pl.Trainer, module: TrialModule, metrics: Mapping[str, float]) -> None:
        """Copy the weights if these metrics are the best so far; waits for the device, which is idle anyway."""
        score = evaluations.score(metrics, self._targets, self._metric, self._directions)
        if score <= self._score:
            return
        self._score = score
        weights = whole_weights(module, self._holds)
        if not self._holds:
            return
        values = evaluations.finite(metrics)
        self.evaluation = {"epoch_num": epochs_trained(trainer), "step": trainer.global_step, "metrics": values}
        self._hold(weights)
        if module.device.type == "cuda":
            torch.cuda.current_stream(module.device).synchronize()

    def state_dict(self) -> dict[str, Any]:
        return {"score": self._score, "evaluation": self.evaluation, "weights": self.weights if self.evaluation else {}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._score, self.evaluation = state_dict["score"], state_dict["evaluation"]
        if self._holds:
            self.weights = dict(state_dict["weights"])


def best_weights(config: RunConfig, holds: bool, evaluate: bool) -> BestWeights | None:
    """What holds the best weights where they are asked for. Raises ConfigError where there is no evaluation."""
    if config.save_model != "best":
        return None
    if not evaluate:
        raise ConfigError(
            f"save_model=best: dataset={config.dataset.name} is not evaluated, so no weights are the best; give"
            " save_model=final or leave it out"
        )
    return BestWeights(config, holds)


def save(
    config: RunConfig, run_dir: Path, log: Journal, best: BestWeights | None, versions: Mapping[str, str],
    final: Mapping[str, Any],
) -> None:  # fmt: skip
    """Write the best weights, or the `final` ones, and journal that the file is there or why not.

    Raises OSError of the journal alone.

    The file is a dictionary of tensors and plain values, which torch.load reads with weights_only=True.
    """
    if best is not None and not best.evaluation:
        log.event("model_saved", error="no evaluation had a value of its metric")
        return
    weights = best.weights if best is not None else final
    content = {
        "state_dict": {name.replace(COMPILED, ""): on_host(value) for name, value in weights.items()},
        "model": config.model.name,
        "kept": config.save_model,
        "evaluation": best.evaluation if best is not None else {},
        "config": dataclasses.asdict(config),
        "versions": dict(versions),
    }
    files = WholeFiles()
    files.save_checkpoint(content, run_dir / run_folder.MODEL)
    log.event("model_saved", **({"error": files.error} if files.error else {"file": run_folder.MODEL}))


def whole_weights(module: TrialModule, holds: bool) -> dict[str, Any]:
    """The state of a module, on the process that holds it whole, also where it is sharded: then a collective call."""
    weights: dict[str, Any] = sharded.whole(module.state_dict(), holds)
    return weights


def on_host(value: Any) -> Any:
    """A tensor on the host, with memory of its own: torch.save writes all of what a view is of."""
    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value
