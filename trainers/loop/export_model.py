"""Exports the trained network where `log_model` asks for it: torch.export's program, which needs no code of ours.

It happens when the clock has stopped and the run has its result. The program computes on a CPU, in the weights' own
type, and takes batches of any number of samples.
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

NUM_SAMPLES = 2  # PyTorch takes a dimension of one for a constant


def check_predictor(config: RunConfig, made_by: object) -> None:
    """Raise ConfigError where a model is asked for and a module of this class does not say how it predicts.

    A workload may name a function that makes its module: then only the module itself tells.
    """
    if config.log_model and getattr(made_by, "predictor", None) is TrialModule.predictor:
        raise ConfigError(
            f"log_model=true: model={config.model.name} cannot be exported, since {made_by.__name__} has no"  # type: ignore[attr-defined]
            " predictor(); write one (docs/adding-a-workload.md), or keep the weights alone with save_model=final"
            " tracking.upload_model=true"
        )


def export(
    config: RunConfig, run_dir: Path, log: Journal, module: TrialModule, data: Data, best: BestWeights | None,
) -> None:  # fmt: skip
    """Write the model, and journal that it is there or why not. Raises OSError of the journal alone."""
    try:
        model = write(config, run_dir, module, data, best)
    except Exception as error:  # whatever PyTorch cannot export, or the disk not hold: the run has its result
        for name in exported_model.FILES:
            files.remove(run_dir / name)
        # PyTorch makes a RuntimeError of what the file raises.
        cause = error.__context__ if isinstance(error.__context__, OSError) else error
        log.event("model_exported", error=f"{type(cause).__name__}: {cause}".strip().partition("\n")[0])
        return
    log.event("model_exported", file=exported_model.PROGRAM, name=model.name)


def write(
    config: RunConfig, run_dir: Path, module: TrialModule, data: Data, best: BestWeights | None
) -> ExportedModel:  # fmt: skip
    if best is not None and not best.evaluation:
        raise ValueError("no evaluation had a value of its metric")
    if best is not None:
        module.load_state_dict(best.weights)
    network, images = module.predictor(data.example_batches(NUM_SAMPLES, torch.device("cpu"))[0])
    network = copy.deepcopy(network).cpu().eval().requires_grad_(False)
    dynamic = ({0: torch.export.Dim("batch", min=1)},)
    program = torch.export.export(network, (images,), dynamic_shapes=dynamic)
    outputs = program.module()(images[:1])  # This shows, too, that any number of samples is taken.
    with documents.replacing(run_dir / exported_model.PROGRAM) as file:
        torch.export.save(program, file)
    with documents.replacing(run_dir / exported_model.EXAMPLE) as file:
        file.write(json.dumps(images[:1].tolist()).encode())
    step = module.trainer.global_step if best is None else best.evaluation["step"]
    model = ExportedModel(
        f"{config.model.name}-{config.dataset.name}".replace(".", "_"), "final" if best is None else "best", step,
        torch.__version__, platform.python_version(), described(images), described(outputs),
    )  # fmt: skip
    documents.write_json(run_dir / exported_model.ABOUT, model)
    return model


def described(batch: torch.Tensor) -> exported_model.Array:
    return exported_model.Array(str(batch.dtype).removeprefix("torch."), [-1, *batch.shape[1:]])
