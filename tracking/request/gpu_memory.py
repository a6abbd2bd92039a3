"""Estimates the GPU memory of a language model's training, before anything is trained.

It is arithmetic on the shapes of `trainers.models.gpt`, so that a refusal takes a second. Memory is highest at one of
four moments: in the loss, in its backward pass, in the last layer's backward pass, or in the optimizer's step. Tensors
of different moments do not add up. Tests count the tensors that a layer keeps, and compare the peaks with measured
ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from conf.schema import RunConfig

WORKLOAD_PREFIX = "trainers.models.gpt:"  # prefix of the workloads with known shapes
FP32_SIZE, FP16_SIZE = 4, 2  # bytes
MAX_LOGITS = 2**30  # in a chunk: trainers.models.gpt.cross_entropy
SEQUENCE_LENGTH = 1024  # default of dataset.sequence_length


class SavedValues(NamedTuple):
    """Values that a layer keeps for a token: multiples of its width, its key-value width and its hidden units."""

    width: float
    shared: float
    hidden: float


# By architecture, compiled or not, fp8 or not. A compiled layer keeps less; in fp8 most kept values take one byte.
SAVED = {
    ("gpt", False, False): SavedValues(20, 0, 2),
    ("gpt", False, True): SavedValues(19.5, 0, 1.5),
    ("gpt", True, False): SavedValues(10, 0, 2),
    ("gpt", True, True): SavedValues(8.5, 0, 1),
    ("llama", False, False): SavedValues(12, 3, 4),
    ("llama", False, True): SavedValues(12, 3, 3.5),
    ("llama", True, False): SavedValues(6, 3, 3),
    ("llama", True, True): SavedValues(4.5, 3, 2),
}
INPUTS = 2  # multiples of the width that a recomputed layer keeps: the stream, and what is added to it
EMBEDDING_AND_HEAD = 5  # multiples of the width that embedding and head keep
EAGER_LOGIT = 4 * FP32_SIZE + 1  # bytes of a logit's tensors if the loss is not compiled; a cap adds one in float32


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
    """Bytes on a GPU at one moment of a step, by purpose."""

    parameters: float
    gradients: float
    optimizer: float
    activations: float
    loss: float  # logits, and gradients of head and logits
    copies: float  # weights in the compute type, gathered parts of a sharded model, buffers of exchange and optimizer

    @property
    def total(self) -> float:
        return float(sum(dataclasses.astuple(self)))

    @property
    def gigabytes(self) -> str:
        return f"{self.total / 1e9:,.1f} GB"

    def __str__(self) -> str:
        parts = ", ".join(f"{key} {value / 1e9:,.1f}" for key, value in dataclasses.asdict(self).items() if value)
        return f"{self.gigabytes} a GPU ({parts})"


def shapes_of(hparams: Mapping[str, Any], vocabulary: int) -> Shapes:
    width, heads, architecture = hparams["width"], hparams["heads"], hparams["architecture"]
    shared, hidden = (hparams["kv_heads"] or heads) / heads, round(hparams["hidden"] * width)
    layer = round((2 + 2 * shared) * width**2) + (3 if architecture == "llama" else 2) * hidden * width
    return Shapes(hparams["layers"], width, layer, vocabulary * width, hidden, shared, vocabulary, architecture)


def estimated_memory(config: RunConfig, strategy: str, num_gpus: int, tokens: int | None = None) -> Memory | None:
    """Bytes of a GPU at the peak of a step; None if the model's shapes are not known or an option is missing.

    `tokens` is the number on each GPU in a step; default: its share of the batch.
    """
    hparams = config.model.hparams
    vocabulary: Any = hparams.get("vocabulary") or config.dataset.vocabulary
    try:
        shapes = shapes_of(hparams, vocabulary)
        tokens = tokens or config.samples_per_step() // num_gpus
        itemsize = FP32_SIZE if config.precision.name in ("fp32", "tf32") else FP16_SIZE
        parts = num_gpus if strategy == "fsdp" else 1
        fp8 = config.precision.name == "fp8"
        return _estimated(shapes, hparams, tokens, parts, num_gpus, itemsize, config.compiled(), fp8)
    except (KeyError, TypeError, ZeroDivisionError):
        return None


def _estimated(
    shapes: Shapes, hparams: Mapping[str, Any], tokens: int, parts: int, num_gpus: int, itemsize: int,
    compiled: bool, fp8: bool,
) -> Memory:  # fmt: skip
    saved = SAVED[shapes.architecture, compiled, fp8]
    parameters = FP32_SIZE * (shapes.matrices + 2 * shapes.table) / parts
    optimizer = FP32_SIZE * (shapes.matrices + 4 * shapes.table) / parts
    micro_batch = max(1, min(hparams["micro_batch_size"], tokens))
    checkpointing = hparams["activation_checkpointing"]
    # Before the first micro-batch's backward pass there are no gradients.
    earlier = parameters if tokens > micro_batch else 0.0
    of_layer, kept = _activations(shapes, micro_batch, checkpointing, itemsize, saved)
    uncompiled = 0 if compiled else EAGER_LOGIT + (0 if hparams["cap"] is None else FP32_SIZE)
    in_loss, in_head = _loss(shapes, micro_batch, itemsize, parts > 1, uncompiled)
    buffer = parameters if parts == 1 < num_gpus else 0.0  # of the gradient exchange
    copies = _narrow(shapes, parts, checkpointing and not fp8, itemsize) + buffer
    recomputing = kept + of_layer if checkpointing else kept
    moments = [
        Memory(parameters, earlier, optimizer, kept, max(in_loss, in_head), copies),
        Memory(parameters, earlier, optimizer, recomputing, 0.0, copies + _layer_backward(shapes, parts, itemsize)),
        Memory(parameters, parameters, optimizer, 0.0, 0.0, buffer + _orthogonalising(shapes, num_gpus, parts)),
    ]
    return max(moments, key=lambda moment: moment.total)


def _activations(
    shapes: Shapes, tokens: int, checkpointing: bool, itemsize: int, saved: SavedValues
) -> tuple[float, float]:  # fmt: skip
    """Bytes of one layer's activations, and of all kept until the loss (with `checkpointing`: the layers' inputs)."""
    layer_values = (saved.width + saved.shared * shapes.shared) * shapes.width + saved.hidden * shapes.hidden_units
    kept_values = INPUTS * shapes.width if checkpointing else layer_values
    outside = EMBEDDING_AND_HEAD * shapes.width
    return itemsize * tokens * layer_values, itemsize * tokens * (shapes.layers * kept_values + outside)


def _loss(shapes: Shapes, tokens: int, itemsize: int, sharded: bool, uncompiled: int) -> tuple[float, float]:
    """Bytes at the peaks of the loss and of its backward pass: trainers.models.gpt.cross_entropy.

    `uncompiled` is the size of a logit's tensors in float32, which the compiler does not make.
    """
    chunks = -(-tokens // max(1, MAX_LOGITS // shapes.vocabulary))
    values = -(-tokens // chunks) * shapes.vocabulary
    logits, of_weight = itemsize * values, FP32_SIZE * shapes.table
    product = itemsize * shapes.table if itemsize < FP32_SIZE else 0.0  # before it is cast or added
    half = 0.0 if sharded else product  # FSDP has gathered the weight in 16 bits.
    in_chunk = logits + max(logits, uncompiled * values)
    # The last chunk's gradients live until the next ones replace them.
    peak = in_chunk + logits + product + of_weight if chunks > 1 else max(in_chunk, logits + product + of_weight)
    return peak + half, 2 * of_weight + (product if sharded else 0.0)


def _narrow(shapes: Shapes, parts: int, recomputed: bool, itemsize: int) -> float:
    """Bytes of weights in the compute type at the loss.

    Sharded: embedding, head, and the last layer's gather buffer, which the next layer will use. Otherwise: the layers'
    copies, which are kept for the backward pass unless `recomputed`. In fp8 there are two copies, of one byte each.
    """
    if parts > 1:
        return itemsize * (2 * shapes.table + shapes.layer)
    return 0.0 if itemsize == FP32_SIZE or recomputed else itemsize * shapes.matrices


def _layer_backward(shapes: Shapes, parts: int, itemsize: int) -> float:
    """Bytes that a layer's backward pass adds, and the head's gradient, which is still held.

    Two sharded layers are gathered at once. A sharded layer's gradients are cast to a wider type to be reduced.
    Gradients of activations are not counted: they replace activations that are no longer needed.
    """
    if parts > 1:
        return itemsize * (shapes.table + 2 * shapes.layer) + FP32_SIZE * shapes.layer
    return (FP32_SIZE + itemsize) * shapes.layer


def _orthogonalising(shapes: Shapes, num_gpus: int, parts: int) -> float:
    """Bytes of Muon's orthogonalisation: its largest group of matrices, and the updates of all others."""
    matrix = shapes.hidden_units * shapes.width
    if parts > 1:  # Each process computes one parameter at a time.
        return 10.0 * 2 * matrix
    hidden = (3 if shapes.architecture == "llama" else 2) * matrix  # of one shape, so stacked
    largest = max(hidden, shapes.layer - hidden) * shapes.layers / num_gpus
    return 10.0 * largest + FP16_SIZE * shapes.matrices


def sequence_length(config: RunConfig) -> int:
    return config.dataset.sequence_length or SEQUENCE_LENGTH


def is_language_model(config: RunConfig) -> bool:
    """Whether the run trains our language model, whose batches count tokens."""
    return config.model.workload.startswith(WORKLOAD_PREFIX)


def is_known(config: RunConfig) -> bool:
    return is_language_model(config) and config.on_gpu()
