"""Trains GNMT: Adam with clipped gradients, an exponential warm-up, halvings at the end, smoothed labels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from trainers.data.text import TextData, TextView, numbers, synthetic, wmt
from trainers.models.gnmt.network import Decoding, Gnmt, Sizes, classified_loss
from trainers.models.schedule import check_above_zero, check_below_one, checked_betas, is_count, is_number, require
from trainers.models.translator import Translator
from trainers.ops.beam import Scoring
from trainers.ops.compiling import raise_recompile_limit
from trainers.workload import Batch, Workload

WARMUP_START = 0.01  # share of the rate at the first step


class GnmtTranslator(Translator):
    """Trains for `epochs` epochs by Adam with the rate of HalvingSchedule. Raises ConfigError for an invalid option.

    Training pairs have up to `max_length` tokens, and those of a batch have similar lengths. `clip_norm` bounds the
    norm of the gradients of the loss per sentence, which MLPerf's reference minimises. With `graph_steps` the loop
    captures compiled steps on a GPU as CUDA graphs. The graph of each shape holds gradients of its own. In a large
    network launches take no longer than kernels, so graphs gain nothing there.
    """

    def __init__(
        self,
        data: TextData,
        learning_rate: float,
        weight_decay: float,
        epochs: int,
        warmup_steps: int = 200,
        remain: float = 0.666,
        num_decays: int = 4,
        max_length: int = 50,
        num_shapes: int = 64,
        layers: int = 4,
        width: int = 1024,
        dropout: float = 0.2,
        initial: float = 0.1,
        label_smoothing: float = 0.1,
        betas: tuple[float, float] = (0.9, 0.999), epsilon: float = 1e-8,
        clip_norm: float = 5.0, graph_steps: bool = False,
        beam: int = 5, alpha: float = 0.6, coverage: float = 0.1, extra_length: int = 50,
        eval_batch_size: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(data, beam, Scoring(alpha, coverage), extra_length, eval_batch_size)
        for name, value in {"epochs": epochs, "width": width, "num_shapes": num_shapes}.items():
            require(name, value, is_count(value) and value >= 1, "a whole number, 1 or more")
        require("layers", layers, is_count(layers) and layers >= 2, "a whole number, 2 or more")
        for name, value in {"warmup_steps": warmup_steps, "num_decays": num_decays}.items():
            require(name, value, is_count(value), "a whole number, 0 or more")
        require("remain", remain, is_number(remain) and 0 <= remain <= 1, "a share of all steps, 0 to 1")
        require("max_length", max_length, is_count(max_length) and max_length >= 2, "a whole number, 2 or more")
        check_below_one(dropout=dropout, label_smoothing=label_smoothing)
        check_above_zero(initial=initial, clip_norm=clip_norm, epsilon=epsilon)
        require("graph_steps", graph_steps, isinstance(graph_steps, bool), "true or false")
        self.learning_rate, self.weight_decay, self.max_epochs = learning_rate, weight_decay, epochs
        self.warmup_steps, self.remain, self.num_decays = warmup_steps, remain, num_decays
        self.label_smoothing, self.clip_norm = label_smoothing, clip_norm
        self.betas, self.epsilon = checked_betas(betas), epsilon
        self.view = TextView(max_length, num_shapes=num_shapes, eval_batch_size=eval_batch_size)
        self.net = Gnmt(data.num_tokens, Sizes(layers, width, dropout, initial))
        self._loss, self.same_kernels = classified_loss, graph_steps
        self._mean_lengths = data.viewed(self.view).mean_lengths()

    def compile_hot_path(self) -> None:
        """Compile all but the LSTMs, for all shapes at once."""
        raise_recompile_limit(64)  # A graph of a shape with two equal sizes is specialised to that equality.
        self._loss = torch.compile(classified_loss, dynamic=True)
        self.net.compile_between()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(
            self.parameters(), lr=self.learning_rate, betas=self.betas, eps=self.epsilon,
            weight_decay=self.weight_decay, fused=True,
        )  # fmt: skip

    def configure_gradient_clipping(self, optimizer: Any, gradient_clip_val: Any = None, *_: Any, **__: Any) -> None:
        """Clip by the norm of all gradients, without waiting for the device.

        The loss is a mean over tokens, MLPerf's a mean over sentences. So the gradients, and here the bound, are
        MLPerf's divided by the mean length of a sentence.
        """
        norm = nn.utils.get_total_norm([p.grad for p in self.parameters() if p.grad is not None])
        scaler = getattr(self.trainer.precision_plugin, "scaler", None)
        if scaler is not None:  # The gradients are still scaled: a fused optimizer unscales them itself.
            norm = norm / scaler._get_scale_async()
        nn.utils.clip_grads_with_norm_(self.parameters(), self.clip_norm / self._mean_lengths[1], norm)

    def schedule(self, num_steps: int) -> HalvingSchedule:
        return HalvingSchedule(self.learning_rate, self.warmup_steps, self.remain, self.num_decays, num_steps)

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        num_batches = int(self.trainer.num_training_batches)
        rate = self.schedule(self.max_epochs * num_batches).at(self.trainer.current_epoch * num_batches + batch_idx)
        for optimizer in self.trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        x = self.net(batch["source"], batch["inputs"])
        return self._loss(self.net.classifier, x, batch["labels"], batch["weights"], self.label_smoothing)

    def stepper(self, source: torch.Tensor, beam: int) -> Decoding:
        return Decoding(self.net, source)

    def flops_per_sample(self) -> float:
        """Return three times the forward pass's FLOPs of a mean pair, without padding."""
        return 3 * forward_flops(self.net.sizes, self.net.embedding.num_embeddings, self._mean_lengths)


def forward_flops(sizes: Sizes, num_tokens: int, lengths: tuple[float, ...]) -> float:
    """Return the forward FLOPs of a mean pair of S source and T target tokens.

    `lengths` are the means of S, T, S * S, S * T and T * T. A multiply-add counts as two. An LSTM's step has
    8 * width * (inputs + width) FLOPs.
    """
    source, target, _, source_target, _ = lengths
    width, square = sizes.width, sizes.width**2
    of_source = (2 * 16 + 24 + 16 * (sizes.layers - 2) + 2) * square
    of_target = (16 + 24 * (sizes.layers - 1) + 2) * square + 2 * width * num_tokens
    return source * of_source + target * of_target + 4 * width * source_target


DATA: Any = {"numbers": numbers, "wmt": wmt, "synthetic": synthetic}
WORKLOAD = Workload(module=GnmtTranslator, data=DATA, unit="sentences")


@dataclass(frozen=True)
class HalvingSchedule:
    """An exponential warm-up from a hundredth of the rate, then the full rate, then `num_decays` halvings.

    The first halving is at the share `remain` of all `num_steps`; the others follow evenly in the remaining steps.
    """

    learning_rate: float
    warmup_steps: int
    remain: float
    num_decays: int
    num_steps: int

    @property
    def remain_steps(self) -> int:
        return int(self.num_steps * self.remain)

    @property
    def decay_interval(self) -> int:
        return max(1, (self.num_steps - self.remain_steps) // max(1, self.num_decays))

    def at(self, step: int) -> float:
        """Return the rate of a step, counted from 0."""
        if step < self.warmup_steps:
            return float(self.learning_rate * WARMUP_START ** (1 - step / self.warmup_steps))
        if step < self.remain_steps:
            return self.learning_rate
        halvings = min(self.num_decays, (step - self.remain_steps) // self.decay_interval + 1)
        return float(self.learning_rate * 0.5**halvings)
