"""The GPU memory of a language model: its shapes by count, and the refusals."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from conf.schema import ConfigError, RunConfig
from tests.support.composing import EIGHT_GPUS, composed
from tracking.machine.environment.nvml import Gpu
from tracking.request import checks, gpu_memory
from trainers.models.gpt.layers import Sizes
from trainers.models.gpt.network import GPT

H100S = [Gpu(index, "NVIDIA H100 80GB HBM3", f"GPU-{index}", 85_000_000_000, 9.0) for index in range(8)]
SIZED = ("layers", "width", "heads", "vocabulary", "hidden", "kv_heads")


def asked(*options: str) -> RunConfig:
    return composed(["dataset=synthetic", "precision=bf16", *options])


def checked(*options: str, gpus: list[Gpu] = H100S) -> RunConfig:
    return checks.check_run(asked(*options), gpus)


@pytest.mark.parametrize("recipe", ["gpt_124m", "gpt_774m", "gpt_1.5b", "llama_1b", "llama_8b", "llama_70b"])
def test_weights_are_counted_as_the_network_has_them(recipe: str) -> None:
    config = asked(f"model={recipe.partition('_')[0]}", f"recipe={recipe}", "gpus=8")
    hparams = config.model.hparams
    with torch.device("meta"):
        net = GPT(Sizes(**{name: hparams[name] for name in SIZED}), 16, architecture=hparams["architecture"])
    shapes = gpu_memory.shapes_of(hparams, hparams["vocabulary"])
    counted = sum(parameter.numel() for parameter in net.parameters())
    assert shapes.matrices + 2 * shapes.table == pytest.approx(counted, rel=2e-3)  # without norms and biases


def test_a_sharded_training_takes_a_part_of_what_is_kept_and_the_same_activations() -> None:
    config = dataclasses.replace(asked("model=gpt", "recipe=gpt_1.5b", "gpus=4"), batch_size=131_072)
    whole, sharded = (gpu_memory.estimated_memory(config, way, 4) for way in ("ddp", "fsdp"))
    assert whole is not None
    assert sharded is not None
    for part in ("parameters", "gradients", "optimizer"):
        assert getattr(sharded, part) == getattr(whole, part) / 4
    assert whole.activations == sharded.activations
    assert sharded.total < whole.total
    again = dataclasses.replace(config.model, hparams=config.model.hparams | {"activation_checkpointing": True})
    less = gpu_memory.estimated_memory(dataclasses.replace(config, model=again), "fsdp", 4)
    assert less is not None
    assert less.activations < sharded.activations / 2


def test_a_size_that_fits_is_let_through_and_says_what_it_takes_by_either_strategy() -> None:
    config = checked("model=gpt", "recipe=gpt_124m", "gpus=2")
    words = gpu_memory.memory_words(config)
    assert "GB a GPU (parameters 0.6, gradients 0.6, optimizer " in words
    assert "by strategy=ddp; fsdp: " in words
    assert gpu_memory.memory_words(checks.check_run(composed(["model=vgg", "gpus=1"]), EIGHT_GPUS)) == ""
    assert gpu_memory.memory_words(checks.check_run(composed(["model=gpt", "recipe=gpt_cpu", "gpus=0"]), [])) == ""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["model=llama", "recipe=llama_8b", "gpus=4"], r"85\.0 GB. Next: give strategy=fsdp, which takes \d"),
        (["model=llama", "recipe=llama_8b", "gpus=1"], r"strategy=fsdp on \d such GPUs, the fewest"),
        (["model=llama", "recipe=llama_70b", "gpus=8", "strategy=fsdp"], r"strategy=fsdp on \d\d such GPUs, the few"),
        (
            ["model=llama", "recipe=llama_70b", "gpus=8", "strategy=fsdp", "global_batch_size=65536"],
            r"strategy=fsdp on \d\d such GPUs, the fewest that it fits on, with global_batch_size=\d{6}\b",
        ),
        (
            ["model=llama", "recipe=llama_8b", "gpus=8", "strategy=fsdp", "dataset.sequence_length=65536",
             "model.hparams.micro_batch_size=65536", "model.hparams.activation_checkpointing=false"],
            r"give model\.hparams\.activation_checkpointing=true; more GPUs are not enough",
        ),
    ],
)  # fmt: skip
def test_a_size_that_does_not_fit_is_refused_with_the_fewest_gpus_that_do(options: list[str], words: str) -> None:
    with pytest.raises(ConfigError, match=rf"takes [\d.]+ GB a GPU \(parameters .*{words}"):
        checked(*options)


@pytest.mark.parametrize(("model", "recipe", "number"), [("gpt", "gpt_1.5b", 2), ("llama", "llama_8b", 3)])
def test_all_matrices_of_a_layers_hidden_units_are_stacked(model: str, recipe: str, number: int) -> None:
    hparams = asked(f"model={model}", f"recipe={recipe}", "gpus=2").model.hparams
    shapes = gpu_memory.shapes_of(hparams, hparams["vocabulary"])
    stacked = 10.0 * number * shapes.hidden_units * shapes.width * shapes.layers / 2
    assert gpu_memory._orthogonalising(shapes, 2, 1) == stacked + gpu_memory.FP16_SIZE * shapes.matrices


def test_a_gpu_that_tells_no_memory_refuses_nothing() -> None:
    unknown = [dataclasses.replace(gpu, memory_bytes=None) for gpu in H100S]
    checked("model=llama", "recipe=llama_8b", "gpus=1", gpus=unknown)
