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

MODULE = "trainers.models.gpt:"  # prefix of the workloads with known shapes
FLOAT, HALF = 4, 2  # bytes
MOST_LOGITS = 2**30  # in a chunk: trainers.models.gpt.cross_entropy
MOST_GPUS = 4096
SEQUENCE_LENGTH = 1024  # default of dataset.sequence_length
FREE = 0.95  # usable share of a GPU's memory; CUDA and the allocator's fragmentation take the rest


class Kept(NamedTuple):
    """Values that a layer keeps for a token, as multiples of its width, its shared (key and value) width and its
    hidden units."""

    width: float
    shared: float
    hidden: float


COMPILED = {"gpt": Kept(10, 0, 2), "llama": Kept(6, 3, 3)}
EAGER = {"gpt": Kept(20, 0, 2), "llama": Kept(12, 3, 4)}
SPARED = 0.5  # saved multiples of width and hidden units: in fp8 a product keeps its inputs in half the bytes


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
class Needed:
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


def needed(config: RunConfig, strategy: str, num_gpus: int, tokens: int | None = None) -> Needed | None:
    """Bytes of a GPU at the peak of a step; None if the model's shapes are not known or an option is missing.

    `tokens` are those of a GPU in a step; default: its share of the batch.
    """
    hparams = config.model.hparams
    vocabulary: Any = hparams.get("vocabulary") or config.dataset.vocabulary
    try:
        shapes = shapes_of(hparams, vocabulary)
        tokens = tokens or config.samples_per_step() // num_gpus
        kept = (COMPILED if config.compiled() else EAGER)[shapes.architecture]
        if config.precision.name == "fp8":
            kept = Kept(kept.width - SPARED, kept.shared, kept.hidden - SPARED)
        unit = FLOAT if config.precision.name in ("fp32", "tf32") else HALF
        return _needed(shapes, hparams, tokens, strategy, num_gpus, unit, kept)
    except (KeyError, TypeError, ZeroDivisionError):
        return None


def _needed(
    shapes: Shapes, hparams: Mapping[str, Any], tokens: int, strategy: str, num_gpus: int, unit: int, of_layer: Kept
) -> Needed:
    parts = num_gpus if strategy == "fsdp" else 1
    weights = shapes.matrices + 2 * shapes.table
    kept = FLOAT * weights / parts
    optimizer = FLOAT * (shapes.matrices + 4 * shapes.table) / parts
    micro = max(1, min(hparams["micro_batch_size"], tokens))
    accumulates = tokens > micro  # Gradients of earlier micro-batches exist beside the next one's activations.
    again = hparams["activation_checkpointing"]
    activations = _activations(shapes, micro, again, unit, of_layer)
    copies = _gathered(shapes, parts, unit) if parts > 1 else _copied(shapes, num_gpus, again, unit)
    in_loss = activations + _loss(shapes, micro, unit)
    in_step = _orthogonalising(shapes, num_gpus, parts)
    # Two candidates for the peak: the loss, with all activations, and the end of a step, with all gradients.
    at_loss = (kept if accumulates else 0.0) + in_loss
    at_end = kept + in_step
    if at_loss >= at_end:
        return Needed(kept, kept if accumulates else 0.0, optimizer, in_loss, copies)
    return Needed(kept, kept, optimizer, in_step, copies)


def _activations(shapes: Shapes, tokens: int, again: bool, unit: int, kept: Kept) -> float:
    """Bytes of activations of all layers; with `again` (checkpointing): their inputs, and one whole layer."""
    of_layer = (kept.width + kept.shared * shapes.shared) * shapes.width + kept.hidden * shapes.hidden_units
    between = 2 * shapes.width
    of_all = shapes.layers * between + of_layer if again else shapes.layers * of_layer
    return unit * tokens * of_all


def _loss(shapes: Shapes, tokens: int, unit: int) -> float:
    """Bytes of a chunk of logits and their gradients, and of the head's gradient with the product added to it."""
    logits = min(tokens * shapes.vocabulary, MOST_LOGITS)
    return 2 * unit * logits + (2 * FLOAT + unit) * shapes.table + 2 * unit * tokens * shapes.width


def _gathered(shapes: Shapes, parts: int, unit: int) -> float:
    """Bytes of gathered weights: embedding, head, and three layers (one computing, one arriving, one leaving)."""
    return unit * (2 * shapes.table + 3 * shapes.layer) + FLOAT * shapes.layer * (1 + 1 / parts)


def _copied(shapes: Shapes, num_gpus: int, again: bool, unit: int) -> float:
    """Bytes of weights in 16 bits, which stay for the backward pass, and of the exchange's buffer."""
    narrow = 0.0 if unit == FLOAT else unit * (shapes.layer if again else shapes.matrices)
    return narrow + (FLOAT * (shapes.matrices + 2 * shapes.table) if num_gpus > 1 else 0.0)


def _orthogonalising(shapes: Shapes, num_gpus: int, parts: int) -> float:
    """Bytes of Muon's orthogonalisation: its largest group of matrices, and its copies of all others."""
    matrix = shapes.hidden_units * shapes.width
    if parts > 1:  # Each process computes one parameter at a time.
        return 10.0 * 2 * matrix
    hidden = (3 if shapes.architecture == "llama" else 2) * matrix  # They have the same shape and are stacked.
    largest = max(hidden, shapes.layer - hidden) * shapes.layers / num_gpus
    return 10.0 * largest + HALF * shapes.matrices


def fewest(config: RunConfig, memory: float) -> int | None:
    """The fewest GPUs that divide the batch's sequences and that a sharded training fits on; None if it never fits."""
    sequences = config.samples_per_step() // sequence_length(config)
    for number in range(2, MOST_GPUS + 1):
        need = needed(config, "fsdp", number) if sequences % number == 0 else None
        if need is not None and need.total <= FREE * memory:
            return number
    return None


def fewest_of_another_batch(config: RunConfig, memory: float) -> int | None:
    """The fewest GPUs that a sharded training fits on with one sequence on each; None if it never fits."""
    for number in range(2, MOST_GPUS + 1):
        need = needed(config, "fsdp", number, sequence_length(config))
        if need is not None and need.total <= FREE * memory:
            return number
    return None


def sequence_length(config: RunConfig) -> int:
    return config.dataset.sequence_length or SEQUENCE_LENGTH


def words(config: RunConfig) -> str:
    """The estimated memory as text, for the run's strategy and the other one; empty if it is not known."""
    if not known(config):
        return ""
    number, estimate = config.world_size(), needed(config, config.strategy, config.world_size())
    if estimate is None:
        return ""
    others = [strategy for strategy in STRATEGIES if strategy != config.strategy and number > 1]
    alternatives = "".join(f"; {strategy}: {needed(config, strategy, number)}" for strategy in others)
    return f"{estimate} by strategy={config.strategy}{alternatives}"


def known(config: RunConfig) -> bool:
    return config.model.workload.startswith(MODULE) and config.on_gpu()


def check_memory(config: RunConfig, gpus: Sequence[VisibleGpu]) -> None:
    """Raise ConfigError if the training does not fit on the chosen GPUs. It names the fewest that it fits on."""
    sizes = [size for gpu in config.chosen(gpus) if (size := getattr(gpu, "memory_bytes", None))]
    estimate = needed(config, config.strategy, config.world_size()) if known(config) and sizes else None
    if estimate is None or estimate.total <= min(sizes):
        return
    memory = min(sizes)
    sharded = needed(config, "fsdp", config.world_size()) if config.world_size() > 1 else None
    hparams = config.model.hparams
    if config.strategy != "fsdp" and sharded is not None and sharded.total <= FREE * memory:
        advice = f"give strategy=fsdp, which takes {sharded.total / 1e9:,.1f} GB"
    elif number := fewest(config, memory):
        advice = f"give strategy=fsdp on {number} such GPUs, the fewest that it fits on"
    elif number := fewest_of_another_batch(config, memory):
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
