"""Exports the trained network for `log_model`, as a torch.export program, which runs without timetrial's code.

The export runs after the clock has stopped and the result is written. The program computes on a CPU, in the weights'
dtype, and takes batches of any size.
"""

from __future__ import annotations

import copy
import json
import platform
from pathlib import Path

import torch

from conf.schema import ConfigError, RunConfig
from tracking.record import ExportedModel, Journal, documents, exported_model, files
from trainers.loop.trained_model import BestWeights
from trainers.workload import Data, TrialModule

NUM_SAMPLES = 2  # torch.export treats a dimension of size one as a constant.


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
        model = write(config, run_dir, module, data, best)
    except Exception as error:  # A network that PyTorch cannot export, or a full disk, must not fail a finished run.
        for name in exported_model.FILES:
            files.remove(run_dir / name)
        # PyTorch wraps the file's OSError in a RuntimeError.
        cause = error.__context__ if isinstance(error.__context__, OSError) else error
        log.event("model_exported", error=f"{type(cause).__name__}: {cause}".strip().partition("\n")[0])
        return
    log.event("model_exported", file=exported_model.PROGRAM, name=model.name)


def write(
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
