"""Estimates the GPU memory of a language model's training, before anything is trained.

It is arithmetic on the shapes of `trainers.models.gpt`, so that a refusal takes a second. The sizes of the tensors that
a layer keeps for its backward pass were counted by autograd's saved-tensor hooks, in bf16, with PyTorch 2.15.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from conf.schema import ConfigError, RunConfig
from tracking.request.node_options import VisibleGpu
from tracking.request.strategy_checks import STRATEGIES

WORKLOAD_PREFIX = "trainers.models.gpt:"  # prefix of the workloads with known shapes
FP32_SIZE, FP16_SIZE = 4, 2  # bytes
MAX_LOGITS = 2**30  # in a chunk: trainers.models.gpt.cross_entropy
MAX_GPUS = 4096
SEQUENCE_LENGTH = 1024  # default of dataset.sequence_length
USABLE_SHARE = 0.95  # usable share of a GPU's memory; CUDA and the allocator's fragmentation take the rest


class SavedValues(NamedTuple):
    """Values that a layer keeps for a token, as multiples of its width, its shared (key and value) width and its
    hidden units."""

    width: float
    shared: float
    hidden: float


SAVED_COMPILED = {"gpt": SavedValues(10, 0, 2), "llama": SavedValues(6, 3, 3)}
SAVED_EAGER = {"gpt": SavedValues(20, 0, 2), "llama": SavedValues(12, 3, 4)}
FP8_SAVING = 0.5  # saved multiples of width and hidden units: in fp8 a product keeps its inputs in half the bytes


@dataclass(frozen=True)
class Shapes:
    """Numbers of weights: `layer` in a layer's matrices, `table` in the embedding, and in the head."""

    layers: int
    width: int
    layer: int
    table: int
    hidden_units: int
    shared: float  # key heads / query heads
    vocabulary: int
    architecture: str

    @property
    def matrices(self) -> int:
        return self.layers * self.layer


@dataclass(frozen=True)
class Memory:
    """Bytes on a GPU, by purpose."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    copies: float  # weights in the compute type, gathered parts of a sharded model, the exchange's buffer

    @property
    def total(self) -> float:
        return float(sum(dataclasses.astuple(self)))

    def __str__(self) -> str:
        parts = ", ".join(f"{key} {value / 1e9:,.1f}" for key, value in dataclasses.asdict(self).items() if value)
        return f"{self.total / 1e9:,.1f} GB a GPU ({parts})"


def shapes_of(hparams: Mapping[str, Any], vocabulary: int) -> Shapes:
    width, heads, architecture = hparams["width"], hparams["heads"], hparams["architecture"]
    shared, hidden = (hparams["kv_heads"] or heads) / heads, round(hparams["hidden"] * width)
    layer = round((2 + 2 * shared) * width**2) + (3 if architecture == "llama" else 2) * hidden * width
    return Shapes(hparams["layers"], width, layer, vocabulary * width, hidden, shared, vocabulary, architecture)


def estimated_memory(config: RunConfig, strategy: str, num_gpus: int, tokens: int | None = None) -> Memory | None:
    """Bytes of a GPU at the peak of a step; None if the model's shapes are not known or an option is missing.

    `tokens` are those of a GPU in a step; default: its share of the batch.
    """
    hparams = config.model.hparams
    vocabulary: Any = hparams.get("vocabulary") or config.dataset.vocabulary
    try:
        shapes = shapes_of(hparams, vocabulary)
        tokens = tokens or config.samples_per_step() // num_gpus
        saved = (SAVED_COMPILED if config.compiled() else SAVED_EAGER)[shapes.architecture]
        if config.precision.name == "fp8":
            saved = SavedValues(saved.width - FP8_SAVING, saved.shared, saved.hidden - FP8_SAVING)
        itemsize = FP32_SIZE if config.precision.name in ("fp32", "tf32") else FP16_SIZE
        return _estimated(shapes, hparams, tokens, strategy, num_gpus, itemsize, saved)
    except (KeyError, TypeError, ZeroDivisionError):
        return None


def _estimated(
    shapes: Shapes,
    hparams: Mapping[str, Any],
    tokens: int,
    strategy: str,
    num_gpus: int,
    itemsize: int,
    saved: SavedValues,
) -> Memory:
    parts = num_gpus if strategy == "fsdp" else 1
    weights = shapes.matrices + 2 * shapes.table
    parameters = FP32_SIZE * weights / parts
    optimizer = FP32_SIZE * (shapes.matrices + 4 * shapes.table) / parts
    micro_batch = max(1, min(hparams["micro_batch_size"], tokens))
    # At the loss, gradients exist only of earlier micro-batches.
    gradients_at_loss = parameters if tokens > micro_batch else 0.0
    checkpointing = hparams["activation_checkpointing"]
    activations = _activations(shapes, micro_batch, checkpointing, itemsize, saved)
    copies = _gathered(shapes, parts, itemsize) if parts > 1 else _copied(shapes, num_gpus, checkpointing, itemsize)
    loss_bytes = activations + _loss(shapes, micro_batch, itemsize)
    step_bytes = _orthogonalising(shapes, num_gpus, parts)
    # Two candidates for the peak: the loss, with all activations, and the end of a step, with all gradients.
    if gradients_at_loss + loss_bytes >= parameters + step_bytes:
        return Memory(parameters, gradients_at_loss, optimizer, loss_bytes, copies)
    return Memory(parameters, parameters, optimizer, step_bytes, copies)


def _activations(shapes: Shapes, tokens: int, checkpointing: bool, itemsize: int, saved: SavedValues) -> float:
    """Bytes of activations of all layers; with `checkpointing`: their inputs, and one whole layer."""
    layer_values = (saved.width + saved.shared * shapes.shared) * shapes.width + saved.hidden * shapes.hidden_units
    layer_inputs = 2 * shapes.width
    all_values = shapes.layers * layer_inputs + layer_values if checkpointing else shapes.layers * layer_values
    return itemsize * tokens * all_values


def _loss(shapes: Shapes, tokens: int, itemsize: int) -> float:
    """Bytes of a chunk of logits and their gradients, and of the head's gradient with the product added to it."""
    logits = min(tokens * shapes.vocabulary, MAX_LOGITS)
    return 2 * itemsize * logits + (2 * FP32_SIZE + itemsize) * shapes.table + 2 * itemsize * tokens * shapes.width


def _gathered(shapes: Shapes, parts: int, itemsize: int) -> float:
    """Bytes of gathered weights: embedding, head, and three layers (one computing, one arriving, one leaving)."""
    return itemsize * (2 * shapes.table + 3 * shapes.layer) + FP32_SIZE * shapes.layer * (1 + 1 / parts)


def _copied(shapes: Shapes, num_gpus: int, checkpointing: bool, itemsize: int) -> float:
    """Bytes of weights in 16 bits, which stay for the backward pass, and of the exchange's buffer."""
    narrow_copies = 0.0 if itemsize == FP32_SIZE else itemsize * (shapes.layer if checkpointing else shapes.matrices)
    return narrow_copies + (FP32_SIZE * (shapes.matrices + 2 * shapes.table) if num_gpus > 1 else 0.0)


def _orthogonalising(shapes: Shapes, num_gpus: int, parts: int) -> float:
    """Bytes of Muon's orthogonalisation: its largest group of matrices, and its copies of all others."""
    matrix = shapes.hidden_units * shapes.width
    if parts > 1:  # Each process computes one parameter at a time.
        return 10.0 * 2 * matrix
    hidden = (3 if shapes.architecture == "llama" else 2) * matrix  # They have the same shape and are stacked.
    largest = max(hidden, shapes.layer - hidden) * shapes.layers / num_gpus
    return 10.0 * largest + FP16_SIZE * shapes.matrices


def fewest_gpus(config: RunConfig, memory: float) -> int | None:
    """The fewest GPUs that divide the batch's sequences and that a sharded training fits on; None if it never fits."""
    sequences = config.samples_per_step() // sequence_length(config)
    for number in range(2, MAX_GPUS + 1):
        estimate = estimated_memory(config, "fsdp", number) if sequences % number == 0 else None
        if estimate is not None and estimate.total <= USABLE_SHARE * memory:
            return number
    return None


def fewest_gpus_of_a_sequence(config: RunConfig, memory: float) -> int | None:
    """The fewest GPUs that a sharded training fits on with one sequence on each; None if it never fits."""
    for number in range(2, MAX_GPUS + 1):
        estimate = estimated_memory(config, "fsdp", number, sequence_length(config))
        if estimate is not None and estimate.total <= USABLE_SHARE * memory:
            return number
    return None


def sequence_length(config: RunConfig) -> int:
    return config.dataset.sequence_length or SEQUENCE_LENGTH


def memory_words(config: RunConfig) -> str:
    """The estimated memory as text, for the run's strategy and the other one; empty if it is not known."""
    if not is_known(config):
        return ""
    number, estimate = config.world_size(), estimated_memory(config, config.strategy, config.world_size())
    if estimate is None:
        return ""
    others = [strategy for strategy in STRATEGIES if strategy != config.strategy and number > 1]
    alternatives = "".join(f"; {strategy}: {estimated_memory(config, strategy, number)}" for strategy in others)
    return f"{estimate} by strategy={config.strategy}{alternatives}"


def is_known(config: RunConfig) -> bool:
    return config.model.workload.startswith(WORKLOAD_PREFIX) and config.on_gpu()


def check_memory(config: RunConfig, gpus: Sequence[VisibleGpu]) -> None:
    """Raise ConfigError if the training does not fit on the chosen GPUs. It names the fewest that it fits on."""
    sizes = [size for gpu in config.chosen(gpus) if (size := getattr(gpu, "memory_bytes", None))]
    estimate = estimated_memory(config, config.strategy, config.world_size()) if is_known(config) and sizes else None
    if estimate is None or estimate.total <= min(sizes):
        return
    memory = min(sizes)
    sharded = estimated_memory(config, "fsdp", config.world_size()) if config.world_size() > 1 else None
    hparams = config.model.hparams
    if config.strategy != "fsdp" and sharded is not None and sharded.total <= USABLE_SHARE * memory:
        advice = f"give strategy=fsdp, which takes {sharded.total / 1e9:,.1f} GB"
    elif number := fewest_gpus(config, memory):
        advice = f"give strategy=fsdp on {number} such GPUs, the fewest that it fits on"
    elif number := fewest_gpus_of_a_sequence(config, memory):
        batch = number * sequence_length(config)
        advice = f"give strategy=fsdp on {number} such GPUs, the fewest that it fits on, with global_batch_size={batch}"
    elif not hparams["activation_checkpointing"]:
        advice = "give model.hparams.activation_checkpointing=true; more GPUs are not enough"
    else:
        advice = "give a smaller model.hparams.micro_batch_size, or shorter sequences; more GPUs are not enough"
    raise ConfigError(
        f"model={config.model.name}: takes {estimate} by strategy={config.strategy}, and a GPU here has"
        f" {memory / 1e9:,.1f} GB. Next: {advice}"
    )
