"""Trains a language model: Muon for matrices, AdamW for the rest, at a rate that is constant and then falls.

A step trains one global batch. Each process splits its part into micro-batches and sums their gradients, and the
processes exchange the sums once.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch
from torch import nn

from conf.schema import ConfigError
from tracking.request.batch_checks import check_micro_batch, largest_divisor
from trainers.data.language import LanguageData, code, grammar, synthetic, text, tokens
from trainers.models.gpt import fp8
from trainers.models.gpt.layers import Sizes
from trainers.models.gpt.network import GPT, flops_per_token
from trainers.models.gpt.option_checks import (
    check_counts,
    check_decays,
    check_network,
    check_training,
    vocabulary_size,
)
from trainers.models.schedule import checked_betas
from trainers.ops.distributed_sum import DistributedSum
from trainers.ops.muon import AdamWGroup, MuonAdamW
from trainers.ops.sharding import clip
from trainers.workload import Batch, TrialModule, Workload

NATS_PER_BIT = 0.6931471805599453


class LanguageModel(TrialModule):
    """Trains for `steps` steps; in the last share `cooldown` of them the rates fall linearly to zero.

    The learning rate is that of the matrices; `embedding_rate`, `head_rate` and `vector_rate` (norms and biases) are
    factors of it. `vocabulary` null means that of the data, rounded up. `micro_batch_size` is in tokens. The norm of a
    step's gradients is clipped to `clip_norm`. Raises ConfigError for an invalid option, and for a vocabulary smaller
    than that of the data.
    """

    max_epochs = 1
    max_steps: int
    sharded_methods = ("summed_loss",)
    made_on_device = True  # so that all strategies draw the weights of large models there

    def __init__(
        self,
        data: LanguageData,
        learning_rate: float,
        weight_decay: float,
        steps: int,
        cooldown: float = 0.7,
        micro_batch_size: int = 65_536,
        layers: int = 12,
        width: int = 768,
        heads: int = 6,
        hidden: float = 4,
        vocabulary: int | None = 50_304,
        attention_scale: float | None = 0.12,
        cap: float | None = 15.0,
        architecture: str = "gpt",
        kv_heads: int | None = None,
        activation_checkpointing: bool = False,
        clip_norm: float | None = None,
        momentum: float = 0.95,
        embedding_rate: float = 28.0,
        head_rate: float = 0.16,
        vector_rate: float = 0.6,
        betas: tuple[float, float] = (0.8, 0.95),
        epsilon: float = 1e-10,
        adamw_weight_decay: float = 0.001,
    ) -> None:
        super().__init__()
        rates = {"embedding_rate": embedding_rate, "head_rate": head_rate, "vector_rate": vector_rate}
        check_counts(steps=steps, micro_batch_size=micro_batch_size, layers=layers, heads=heads)
        check_network(width, heads, hidden, cap, attention_scale, architecture, kv_heads, activation_checkpointing)
        check_training(cooldown, momentum, clip_norm, rates | {"epsilon": epsilon})
        check_decays(adamw_weight_decay, weight_decay)
        self.max_steps, self.cooldown, self.micro_batch_size = steps, cooldown, micro_batch_size
        self.ends_at_zero, self.clip_norm = cooldown > 0, clip_norm
        self.same_kernels = not activation_checkpointing  # Who recomputes lacks memory, and a graph takes more.
        self.learning_rate, self.weight_decay, self.momentum, self.rates = learning_rate, weight_decay, momentum, rates
        self.betas, self.epsilon, self.adamw_weight_decay = checked_betas(betas), epsilon, adamw_weight_decay
        self.length, self.bytes_per_token, self.data_name = data.sequence_length, data.bytes_per_token, data.name
        sizes = Sizes(layers, width, heads, vocabulary_size(vocabulary, data.vocabulary, data.name), hidden, kv_heads)
        self.net = GPT(sizes, self.length, attention_scale, cap, activation_checkpointing, architecture)
        self._sums = DistributedSum()

    def check_batch(self, batch_size: int) -> None:
        """Raise ConfigError if sequences or micro-batches do not divide the batch size of a device, in tokens."""
        check_micro_batch(self.micro_batch_size, batch_size, self.length)

    def check_targets(self, metrics: Collection[str]) -> None:
        if "bits_per_byte" in metrics and not self.bytes_per_token:
            raise ConfigError(
                f"model.targets.{self.data_name}.bits_per_byte: for dataset={self.data_name} the bytes of text of a"
                " token are not known. Next: give a target on loss"
                + (", or the dataset.tokenizer of the files" if self.data_name == "tokens" else "")
            )

    def held_at_once(self, batch_size: int) -> tuple[str, int]:
        return "model.hparams.micro_batch_size", min(self.micro_batch_size, batch_size)

    def largest_held(self, most: int, batch_size: int) -> int:
        return largest_divisor(most, batch_size, self.length)

    def compile_hot_path(self) -> None:
        self.net.compile_parts()

    def drop_compiled(self) -> None:
        self.net.drop_compiled()

    def use_fp8(self) -> None:
        """Compute the layers' products in fp8, but not the head's. Raises ConfigError for sides of unfit size."""
        sizes = self.net.sizes
        of_keys = sizes.width * (sizes.kv_heads or sizes.heads) // sizes.heads
        sides = {"model.hparams.width": sizes.width, "model.hparams.hidden * width": sizes.hidden_units}
        sides |= {"model.hparams.kv_heads * width / heads": of_keys, "dataset.sequence_length": self.length}
        for name, side in sides.items():
            if side % fp8.MULTIPLE:
                raise ConfigError(f"{name}={side}: precision=fp8 needs a multiple of {fp8.MULTIPLE}")
        self.multiply = self.net.multiply = fp8.linear
        self.net.cast = fp8.kept
        self.net.drop_compiled()

    def sharded_parts(self) -> list[nn.Module]:
        return [self.net, *self.net.layers]

    def configure_gradient_clipping(self, optimizer: Any, gradient_clip_val: Any = None, *_: Any, **__: Any) -> None:
        """Clip by the norm of all gradients, without waiting for the device. Gradients keep their loss scale."""
        if self.clip_norm is not None:
            scaler = getattr(self.trainer.precision_plugin, "scaler", None)
            scale = 1.0 if scaler is None else scaler._get_scale_async()
            clip([parameter.grad for parameter in self.parameters()], self.clip_norm * scale)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        net, lr = self.net, self.learning_rate
        blocks: list[Any] = list(net.layers)
        matrices = [matrix for block in blocks for matrix in block.matrices()]
        known = {id(parameter) for parameter in (*matrices, net.embedding, net.head)}
        vectors = [parameter for parameter in net.parameters() if id(parameter) not in known]
        of_rates = {"embedding_rate": [net.embedding], "head_rate": [net.head], "vector_rate": vectors}
        groups = [AdamWGroup(parameters, lr * self.rates[name]) for name, parameters in of_rates.items()]
        optimizer = MuonAdamW(
            matrices, groups, lr, self.weight_decay, self.momentum, self.betas, self.epsilon, self.adamw_weight_decay
        )
        for group in optimizer.param_groups:
            group["full_lr"] = group["lr"]
        return optimizer

    def share_of_rate(self, step: int) -> float:
        """Return the factor of the rates at a step, counted from 0."""
        left = max(0.0, 1 - step / self.max_steps)
        return min(1.0, left / self.cooldown) if self.cooldown else 1.0

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> None:
        share = self.share_of_rate(self.trainer.current_epoch * int(self.trainer.num_training_batches) + batch_idx)
        for optimizer in self.trainer.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["full_lr"] * share

    def optimizer_zero_grad(self, epoch: int, batch_idx: int, optimizer: torch.optim.Optimizer) -> None:
        """Do nothing: Lightning calls this after the first micro-batches' gradients; `training_step` zeroes them."""

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        """Run the backward pass of all micro-batches but the last; return the step's mean loss.

        Its gradient is that of the last micro-batch: Lightning runs that backward pass.
        """
        self.zero_grad(set_to_none=True)
        inputs, targets = batch["inputs"], batch["targets"]
        rows = max(1, min(self.micro_batch_size, inputs.numel()) // inputs.shape[1])
        *firsts, final = zip(inputs.split(rows), targets.split(rows), strict=True)
        share = 1 / targets.numel()
        before = torch.zeros((), device=inputs.device)
        with self.net.kept_casts():
            for piece in firsts:
                loss = self.net.summed_loss(*piece) * share
                self._scaled(loss).backward()
                before += loss.detach()
            mean: torch.Tensor = self.net.summed_loss(*final) * share + before
        return mean

    def _scaled(self, loss: torch.Tensor) -> torch.Tensor:
        """Multiply by the loss scale, if there is one. Lightning does the same with the last micro-batch's loss."""
        plugin = getattr(self._trainer, "precision_plugin", None)
        scaler = getattr(plugin, "scaler", None)
        scaled: torch.Tensor = loss if scaler is None else scaler.scale(loss)
        return scaled

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        inputs, targets = batch["inputs"], batch["targets"]
        rows = max(1, min(self.micro_batch_size, inputs.numel()) // inputs.shape[1])
        for piece in zip(inputs.split(rows), targets.split(rows), strict=True):
            self._sums.add(torch.stack((self.net.summed_loss(*piece), (piece[1] >= 0).sum().float())))

    def metrics(self) -> dict[str, float]:
        """Return the mean loss in nats a token and, if known for the data, in bits per byte of text."""
        total, number = self._sums.reduce()
        loss = total / number
        if not self.bytes_per_token:
            return {"loss": loss}
        return {"loss": loss, "bits_per_byte": loss / NATS_PER_BIT / self.bytes_per_token}

    def flops_per_sample(self) -> float:
        """Return the FLOPs of a token, which is a sample here."""
        return flops_per_token(self.net.sizes, self.length, self.net.architecture)

    def predictor(self, batch: Batch) -> tuple[nn.Module, torch.Tensor]:
        inputs = batch["inputs"].long()
        return Predictor(self.net), torch.cat((inputs, inputs))  # Exported with one sequence, it would take only one.


class Predictor(nn.Module):
    """Maps ids, int64 [n, length], to logits of the next token, float32 [n, length, vocabulary]."""

    def __init__(self, net: GPT) -> None:
        super().__init__()
        self.net = net

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.net.logits(inputs)


DATA: Any = {"grammar": grammar, "tokens": tokens, "text": text, "code": code, "synthetic": synthetic}
WORKLOAD = Workload(module=LanguageModel, data=DATA, unit="tokens")
