"""Trains the Transformer: Adam with a linear warm-up and a rate that falls as step ** -0.5, smoothed labels.

A. Vaswani et al. 2017, arXiv:1706.03762, as in MLPerf Training v0.5 to v0.7.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from trainers.data.text import TextData, TextView, numbers, synthetic, wmt
from trainers.models.schedule import check_above_zero, check_below_one, checked_betas, is_count, require
from trainers.models.transformer.network import Decoding, Sizes, Transformer
from trainers.models.translator import Translator
from trainers.ops.beam import Scoring
from trainers.ops.compiling import compiled
from trainers.workload import Batch, Workload


@dataclass(frozen=True)
class RootSchedule:
    """`learning_rate` * width ** -0.5 * min(1, step / warm-up) / max(step, warm-up) ** 0.5; steps count from 1."""

    learning_rate: float
    width: int
    warmup_steps: int

    def at(self, step: int) -> float:
        rise = min(1.0, step / self.warmup_steps)
        return float(self.learning_rate * self.width**-0.5 * rise * max(step, self.warmup_steps) ** -0.5)


def training_loss(
    net: nn.Module, source: torch.Tensor, inputs: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor,
    places: tuple[torch.Tensor, ...], label_smoothing: float,
) -> torch.Tensor:  # fmt: skip
    """Return the weighted sum of the smoothed cross entropies of labels [n, T], a scalar."""
    logits = net(source, inputs, *places).flatten(0, 1).float()
    losses = F.cross_entropy(logits, labels.flatten(), reduction="none", label_smoothing=label_smoothing)
    return (losses * weights.flatten()).sum()


class TransformerTranslator(Translator):
    """Trains for `epochs` epochs by Adam with the rate of RootSchedule. Raises ConfigError for an invalid option.

    Training pairs of up to `max_length` tokens are packed into rows of `pack_length` tokens.
    """

    def __init__(
        self,
        data: TextData,
        learning_rate: float,
        weight_decay: float,
        epochs: int,
        warmup_steps: int = 16_000,
        max_length: int = 256,
        pack_length: int = 3456,
        layers: int = 6,
        width: int = 1024,
        hidden: int = 4096,
        heads: int = 16,
        dropout: float = 0.1,
        label_smoothing: float = 0.1,
        betas: tuple[float, float] = (0.9, 0.997),
        epsilon: float = 1e-9,
        beam: int = 4,
        alpha: float = 0.6,
        extra_length: int = 50,
        eval_batch_size: int | None = None,
    ) -> None:
        super().__init__(data, beam, Scoring(alpha), extra_length, eval_batch_size)
        sizes = {"epochs": epochs, "warmup_steps": warmup_steps, "layers": layers, "hidden": hidden, "heads": heads}
        for name, value in sizes.items():
            require(name, value, is_count(value) and value >= 1, "a whole number, 1 or more")
        require(
            "width", width, is_count(width) and width % (2 * heads) == 0 < width, f"a multiple of 2 * heads={heads}"
        )
        require("max_length", max_length, is_count(max_length) and max_length >= 2, "a whole number, 2 or more")
        fits = is_count(pack_length) and pack_length >= max_length
        require("pack_length", pack_length, fits, f"max_length={max_length} or more")
        check_below_one(dropout=dropout, label_smoothing=label_smoothing)
        check_above_zero(epsilon=epsilon)
        self.schedule = RootSchedule(learning_rate, width, warmup_steps)
        self.max_epochs, self.weight_decay, self.label_smoothing = epochs, weight_decay, label_smoothing
        self.betas, self.epsilon = checked_betas(betas), epsilon
        self.view = TextView(max_length, pack_length, eval_batch_size=eval_batch_size)
        self.net = Transformer(data.num_tokens, Sizes(layers, width, hidden, heads, dropout))
        self._training_loss = training_loss
        self._mean_lengths = data.viewed(self.view).mean_lengths()

    def compile_hot_path(self) -> None:
        """Compile network and loss for training, which has one shape; a beam search has many and is not compiled.

        The trace is not kept: a GPU has not shown that the steps stay as fast.
        """
        self._training_loss = compiled(training_loss, self.device, autotune=True, keep=False)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(
            self.parameters(), lr=self.schedule.at(1), betas=self.betas, eps=self.epsilon,
            weight_decay=self.weight_decay, fused=True,
        )  # fmt: skip

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        step = self.trainer.current_epoch * int(self.trainer.num_training_batches) + batch_idx + 1
        for optimizer in self.trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = self.schedule.at(step)

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        names = ("source_place", "source_sentence", "target_place", "target_sentence")
        places = tuple(batch[name] for name in names)
        tensors = (batch["source"], batch["inputs"], batch["labels"], batch["weights"])
        return self._training_loss(self.net, *tensors, places, self.label_smoothing)

    def stepper(self, source: torch.Tensor, beam: int) -> Decoding:
        return Decoding(self.net, source, beam)

    def flops_per_sample(self) -> float:
        """Return three times the forward pass's FLOPs of a mean pair, without padding."""
        return 3 * forward_flops(self.net.sizes, self.net.embedding.num_embeddings, self._mean_lengths)


def forward_flops(sizes: Sizes, num_tokens: int, lengths: tuple[float, ...]) -> float:
    """Return the forward FLOPs of a mean pair of S source and T target tokens.

    `lengths` are the means of S, T, S * S, S * T and T * T. A multiply-add counts as two; attention counts in full, as
    if it were not causal.
    """
    source, target, source_2, source_target, target_2 = lengths
    matrix, dense = 2 * sizes.width**2, 4 * sizes.width * sizes.hidden
    of_source = source * (4 * matrix + dense + 2 * matrix)  # includes the decoder's keys and values of the source
    of_target = target * (6 * matrix + dense)
    attention = 4 * sizes.width * (source_2 + source_target + target_2)
    return sizes.layers * (of_source + of_target + attention) + target * 2 * sizes.width * num_tokens


DATA: Any = {"numbers": numbers, "wmt": wmt, "synthetic": synthetic}
WORKLOAD = Workload(module=TransformerTranslator, data=DATA, unit="sentences")
