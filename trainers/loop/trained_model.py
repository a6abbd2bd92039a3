"""Saves the trained model for `save_model`: the final weights, or the weights of the best evaluation.

The file is written after the result, when the clock has stopped. So a full disk cannot fail the run. While the clock
runs, only a new best evaluation copies the weights to the host.

For `log_model` the network is also exported as a torch.export program, which runs without timetrial's code. It computes
on a CPU, in the weights' dtype, and takes batches of any size.
"""

from __future__ import annotations

import copy
import dataclasses
import json
import platform
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch

from conf.schema import ConfigError, RunConfig
from tracking.measure.training import epochs_trained
from tracking.record import ExportedModel, Journal, documents, evaluations, exported_model, files, run_folder
from trainers.loop.saving import WholeFiles
from trainers.ops.sharding import sharded
from trainers.workload import Data, TrialModule

COMPILED = "_orig_mod."  # torch.compile puts this in front of the names of a module that it wraps.
NUM_SAMPLES = 2  # torch.export treats a dimension of size one as a constant.


class BestWeights(pl.Callback):
    """Keeps the weights of the best evaluation so far on the host; checkpoints include them.

    Every process has this callback. Only rank 0's holds weights, because all processes train the same ones.
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
        """Allocate the memory for the weights before the clock starts: pinned memory takes long to allocate."""
        if not self._holds:
            return
        from_checkpoint, self.weights = self.weights, {}
        for name, value in module.state_dict().items():
            if isinstance(value, torch.Tensor):
                room = torch.empty if sharded.is_sharded(value) else torch.empty_like
                shape: Any = value.shape if sharded.is_sharded(value) else value
                self.weights[name] = room(shape, dtype=value.dtype, device="cpu", pin_memory=value.is_cuda)
        self._hold(from_checkpoint)

    def _hold(self, weights: Mapping[str, Any]) -> None:
        for name, value in weights.items():
            if isinstance(value, torch.Tensor):
                self.weights[name].copy_(value, non_blocking=True)
            else:
                self.weights[name] = copy.deepcopy(value)

    def evaluated(self, trainer: pl.Trainer, module: TrialModule, metrics: Mapping[str, float]) -> None:
        """Copy the weights if these metrics are the best so far; waits for the device, which is idle then."""
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


def best_weights(config: RunConfig, holds: bool, evaluates: bool) -> BestWeights | None:
    """Return the callback for save_model=best, else None. Raises ConfigError if nothing is evaluated."""
    if config.save_model != "best":
        return None
    if not evaluates:
        raise ConfigError(
            f"save_model=best: dataset={config.dataset.name} has nothing to evaluate on, so no weights are best. Next:"
            " give save_model=final, or leave it out"
        )
    return BestWeights(config, holds)


def save(
    config: RunConfig, run_dir: Path, log: Journal, best: BestWeights | None, versions: Mapping[str, str],
    final: Mapping[str, Any],
) -> None:  # fmt: skip
    """Write the best weights, or the `final` ones, and journal the file's name or the error.

    The file is a dictionary of tensors and plain values, which torch.load reads with weights_only=True. Raises OSError
    only for the journal.
    """
    if best is not None and not best.evaluation:
        log.event("model_saved", error="no evaluation reported the metric that decides which weights are best")
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
    """Return the module's state in whole tensors, if this process `holds` it. A collective call if it is sharded."""
    weights: dict[str, Any] = sharded.whole(module.state_dict(), holds)
    return weights


def on_host(value: Any) -> Any:
    """Return a copy of a tensor on the host, other values unchanged: torch.save would write a view's whole storage."""
    return value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value


def check_predictor(config: RunConfig, module_class: object) -> None:
    """Raise ConfigError if `log_model` is set and a module of this class has no predictor().

    A workload may name a function instead of a class. Then only the class of the module that it makes can be checked.
    """
    if config.log_model and getattr(module_class, "predictor", None) is TrialModule.predictor:
        raise ConfigError(
            f"log_model=true: model={config.model.name} cannot be exported, because {module_class.__name__} has no"  # type: ignore[attr-defined]
            " predictor(). Next: write one (docs/adding-a-workload.md), or keep the weights alone with save_model=final"
            " tracking.upload_model=true"
        )


def export(
    config: RunConfig, run_dir: Path, log: Journal, module: TrialModule, data: Data, best: BestWeights | None,
) -> None:  # fmt: skip
    """Write the exported model, and journal its name or the error. Raises OSError only for the journal."""
    try:
        model = write_export(config, run_dir, module, data, best)
    except Exception as error:  # A network that PyTorch cannot export, or a full disk, must not fail a finished run.
        for name in exported_model.FILES:
            files.remove(run_dir / name)
        # PyTorch wraps the file's OSError in a RuntimeError.
        cause = error.__context__ if isinstance(error.__context__, OSError) else error
        log.event("model_exported", error=f"{type(cause).__name__}: {cause}".strip().partition("\n")[0])
        return
    log.event("model_exported", file=exported_model.PROGRAM, name=model.name)


def write_export(
    config: RunConfig, run_dir: Path, module: TrialModule, data: Data, best: BestWeights | None
) -> ExportedModel:  # fmt: skip
    if best is not None and not best.evaluation:
        raise ValueError("no evaluation reported the metric that decides which weights are best")
    if best is not None:
        module.load_state_dict(best.weights)
    network, images = module.predictor(data.example_batches(NUM_SAMPLES, torch.device("cpu"))[0])
    network = copy.deepcopy(network).cpu().eval().requires_grad_(False)
    dynamic = ({0: torch.export.Dim("batch", min=1)},)
    program = torch.export.export(network, (images,), dynamic_shapes=dynamic)
    outputs = program.module()(images[:1])  # Another batch size than the export's: this also checks that it may vary.
    with documents.replacing(run_dir / exported_model.PROGRAM) as file:
        torch.export.save(program, file)
    with documents.replacing(run_dir / exported_model.EXAMPLE) as file:
        file.write(json.dumps(images[:1].tolist()).encode())
    step = module.trainer.global_step if best is None else best.evaluation["step"]
    model = ExportedModel(
        f"{config.model.name}-{config.dataset.name}".replace(".", "_"), "final" if best is None else "best", step,
        torch.__version__, platform.python_version(), described(images), described(outputs),
    )  # fmt: skip
    documents.write_json(run_dir / exported_model.DESCRIPTION, model)
    return model


def described(batch: torch.Tensor) -> exported_model.Array:
    return exported_model.Array(str(batch.dtype).removeprefix("torch."), [-1, *batch.shape[1:]])
