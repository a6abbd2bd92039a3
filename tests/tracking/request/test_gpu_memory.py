"""The GPU memory of a language model: measured peaks, shapes and tensors by count, and the refusals."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch.distributed._tools.mem_tracker import MemTracker

from conf.schema import ConfigError, RunConfig
from tests.support.composing import EIGHT_GPUS, composed
from tracking.machine.environment.nvml import Gpu
from tracking.request import checks, gpu_memory
from tracking.request.strategy_checks import memory_words
from trainers.models.gpt import cross_entropy, fp8
from trainers.models.gpt.layers import Sizes, linear
from trainers.models.gpt.network import GPT, Parts

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


# Peaks in GB, by torch.cuda.max_memory_allocated: docs/results/2026-11-26-h200-x2-larger.md, and for 124m
# docs/results/2026-11-26-h100-gpt.md (28.2 and 28.8 GiB).
MEASURED = [
    ("gpt_1.5b", "fp8", "ddp", 1, 131_072, 41.1),
    ("gpt_1.5b", "bf16", "ddp", 1, 131_072, 48.8),
    ("gpt_1.5b", "bf16", "ddp", 2, 131_072, 55.2),
    ("gpt_1.5b", "bf16", "fsdp", 2, 131_072, 35.6),
    ("llama_8b", "bf16", "fsdp", 2, 131_072, 62.8),
    ("llama_8b", "fp8", "fsdp", 2, 131_072, 62.8),
    ("llama_8b", "bf16", "fsdp", 4, 131_072, 37.6),
    ("llama_8b", "fp8", "fsdp", 4, 131_072, 37.6),
    ("llama_8b model.hparams.activation_checkpointing=false", "bf16", "fsdp", 4, 131_072, 70.5),
    ("gpt_124m", "bf16", "ddp", 1, 524_288, 30.28),
    ("gpt_124m", "bf16", "ddp", 2, 524_288, 30.92),
    ("gpt_124m", "bf16", "ddp", 4, 524_288, 30.92),
]


@pytest.mark.parametrize(("recipe", "precision", "strategy", "num_gpus", "tokens", "measured"), MEASURED)
def test_the_peak_is_forecast_as_measured(
    recipe: str, precision: str, strategy: str, num_gpus: int, tokens: int, measured: float
) -> None:
    recipe, *more = recipe.split()
    options = [f"model={recipe.partition('_')[0]}", f"recipe={recipe}", f"precision={precision}", f"gpus={num_gpus}"]
    config = dataclasses.replace(asked(*options, *more), batch_size=tokens // num_gpus)
    estimate = gpu_memory.estimated_memory(config, strategy, num_gpus)
    assert estimate is not None
    assert estimate.total / 1e9 == pytest.approx(measured, rel=0.025)


def kept_bytes(architecture: str, parts: Parts, layers: int, length: int) -> int:
    """Bytes of the tensors, without parameters, that a forward pass of `length` tokens keeps for its backward pass."""
    net = GPT(Sizes(layers, 256, 4, 256, 4, 2 if architecture == "llama" else None), length, architecture=architecture)
    net._parts = parts
    own = {parameter.untyped_storage().data_ptr() for parameter in net.parameters()}
    kept: list[torch.Tensor] = []

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept.append(tensor)
        return tensor

    with torch.autocast("cpu", torch.bfloat16), torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        net(torch.zeros(1, length, dtype=torch.int64))
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in kept}
    return sum(size for place, size in storages.items() if place not in own)


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # The compiler reads it.
@pytest.mark.parametrize(
    ("architecture", "compiled", "narrow"),
    [
        pytest.param(
            *key,
            marks=[pytest.mark.slow] * key[1] + [pytest.mark.exhaustive] * (key[1] and key != ("gpt", True, False)),
        )
        for key in gpu_memory.SAVED
    ],
)
def test_a_layer_keeps_as_much_for_its_backward_pass_as_is_forecast(
    architecture: str, compiled: bool, narrow: bool
) -> None:
    torch._dynamo.reset()
    parts = GPT(Sizes(1, 256, 4, 256), 64, architecture=architecture)._plain(fp8.linear if narrow else linear)
    if compiled:  # With the compiler's choice of what is kept, but without its kernels.
        backend = "aot_eager_decomp_partition"
        made: list[Any] = [torch.compile(part, dynamic=False, backend=backend) for part in parts[:3]]
        parts = Parts(*made, parts.multiply)
    kept = {
        (layers, length): kept_bytes(architecture, parts, layers, length) for layers in (2, 3) for length in (64, 96)
    }
    # The second difference: of a layer and a token, without copies of weights.
    counted = (kept[3, 96] - kept[3, 64] - kept[2, 96] + kept[2, 64]) / 32 / gpu_memory.FP16_SIZE / 256
    saved = gpu_memory.SAVED[architecture, compiled, narrow]
    shared = 0.5 if architecture == "llama" else 1
    # Norms and attention keep a few numbers more.
    assert counted == pytest.approx(saved.width + shared * saved.shared + 4 * saved.hidden, rel=0.01)


@pytest.mark.parametrize("cap", [None, 15.0])
@pytest.mark.parametrize("tokens", [256, 1024])
@pytest.mark.parametrize("sharded", [False, True])
def test_the_uncompiled_loss_takes_as_much_as_is_forecast(
    cap: float | None, tokens: int, sharded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gpu_memory.MAX_LOGITS == cross_entropy.CHUNK_ELEMENTS
    for module, name in ((gpu_memory, "MAX_LOGITS"), (cross_entropy, "CHUNK_ELEMENTS")):
        monkeypatch.setattr(module, name, 2**20)
    shapes = gpu_memory.Shapes(0, 128, 0, 4000 * 128, 0, 1.0, 4000, "llama")
    weight = torch.zeros(4000, 128, dtype=torch.bfloat16 if sharded else torch.float32, requires_grad=True)
    inputs = torch.zeros(tokens, 128, dtype=torch.bfloat16, requires_grad=True)
    tracker = MemTracker()
    tracker.track_external(weight, inputs)
    with tracker:
        cross_entropy.CrossEntropy(cap)(inputs, weight, None, torch.zeros(tokens, dtype=torch.int64)).backward()
    peak = tracker.get_tracker_snapshot("peak")[inputs.device]["Total"] - weight.nbytes - inputs.nbytes
    uncompiled = gpu_memory.EAGER_LOGIT + (0 if cap is None else gpu_memory.FP32_SIZE)
    forecast = max(gpu_memory._loss(shapes, tokens, gpu_memory.FP16_SIZE, sharded, uncompiled))
    assert peak == pytest.approx(forecast, rel=0.05)


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


def test_recomputing_a_large_layer_may_take_more_than_the_loss() -> None:
    hparams = {"vocabulary": 1024, "activation_checkpointing": True, "layers": 2}
    config = asked("model=llama", "recipe=llama_8b", "gpus=4", "strategy=fsdp")
    small = dataclasses.replace(config.model, hparams=config.model.hparams | hparams)
    estimate = gpu_memory.estimated_memory(dataclasses.replace(config, model=small), "fsdp", 4)
    assert estimate is not None
    inputs = 2 * 8192 * 4096 * (2 * 2 + 5)
    of_layer = 2 * 8192 * (7.5 - 0.75 * 1) * 4096 + 2 * 8192 * 3 * 14_336
    assert estimate.activations == inputs + of_layer
    assert estimate.loss == 0


def test_a_size_that_fits_is_let_through_and_says_what_it_takes_by_either_strategy() -> None:
    config = checked("model=gpt", "recipe=gpt_124m", "gpus=2")
    words = memory_words(config)
    assert "GB a GPU (parameters 0.6, gradients 0.6, optimizer " in words
    assert "by strategy=ddp; fsdp: " in words
    assert memory_words(checks.check_run(composed(["model=vgg", "gpus=1"]), EIGHT_GPUS)) == ""
    assert memory_words(checks.check_run(composed(["model=gpt", "recipe=gpt_cpu", "gpus=0"]), [])) == ""


def test_it_says_where_activation_checkpointing_is_not_needed() -> None:
    options = ["model=llama", "recipe=llama_8b", "strategy=fsdp"]
    hint = "; it fits without activation checkpointing, too (70.3 GB): model.hparams.activation_checkpointing=false"
    assert f"{hint} recomputes nothing" in memory_words(checked(*options, "gpus=4"), H100S)
    for gpus, seen in ((4, []), (2, H100S)):  # not known, and 95.5 GB
        assert "it fits without" not in memory_words(checked(*options, f"gpus={gpus}"), seen)
    already = checked(*options, "gpus=4", "model.hparams.activation_checkpointing=false")
    assert "it fits without" not in memory_words(already, H100S)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["model=llama", "recipe=llama_8b", "gpus=4"],
            r"80\.8 GB usable \(95 % of its memory\)\. Next: give strategy=fsdp, which takes \d",
        ),
        (
            ["model=llama", "recipe=llama_8b", "gpus=2", "strategy=fsdp",
             "model.hparams.activation_checkpointing=false"],
            r"give model\.hparams\.activation_checkpointing=true, which takes 62\.\d GB and is slower",
        ),
        (
            ["model=llama", "recipe=llama_8b", "gpus=2", "model.hparams.activation_checkpointing=false"],
            r"give strategy=fsdp model\.hparams\.activation_checkpointing=true, which takes 62\.\d GB and is slower",
        ),
        (["model=llama", "recipe=llama_8b", "gpus=1"], r"strategy=fsdp on \d such GPUs, the fewest"),
        (["model=llama", "recipe=llama_70b", "gpus=8", "strategy=fsdp"], r"strategy=fsdp on \d\d such GPUs, the few"),
        (
            ["model=llama", "recipe=llama_70b", "gpus=8", "strategy=fsdp", "global_batch_size=65536"],
            r"strategy=fsdp on \d\d such GPUs, the fewest that it fits on, with global_batch_size=\d{6}\b",
        ),
        (
            ["model=llama", "recipe=llama_8b", "gpus=8", "strategy=fsdp", "dataset.sequence_length=65536",
             "model.hparams.micro_batch_size=65536", "model.hparams.activation_checkpointing=false"],
            r"give model\.hparams\.activation_checkpointing=true, which takes \d\d\.\d GB and is slower",
        ),
        (
            ["model=llama", "recipe=llama_8b", "gpus=1", "dataset.sequence_length=65536",
             "model.hparams.micro_batch_size=65536", "model.hparams.activation_checkpointing=false"],
            r"give strategy=fsdp with model\.hparams\.activation_checkpointing=true on 4 such GPUs, the fewest that it"
            r" fits on$",
        ),
        (
            ["model=llama", "recipe=llama_8b", "gpus=1", "model.hparams.activation_checkpointing=false"],
            r"give strategy=fsdp with model\.hparams\.activation_checkpointing=true on 2 such GPUs, the fewest that it"
            r" fits on, or without it on 4$",
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
