"""NeuMF as a workload: loss, evaluation and optimizer of MLPerf Training v0.5's recommendation benchmark.

Positives and negatives both count as samples, and the loss is the mean of their binary cross entropies.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from trainers.data.ratings import RatingsData, SyntheticRatings, movielens, ratings
from trainers.models.ncf import fused
from trainers.models.ncf.network import NeuMF
from trainers.models.schedule import check_above_zero, is_count, is_number, require
from trainers.ops.compiling import compiled
from trainers.ops.distributed_sum import DistributedSum
from trainers.workload import Batch, TrialModule, Workload

TOP = 10


def training_loss(net: NeuMF, users: torch.Tensor, items: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return the weighted sum of the groups' mean cross entropies; a group's first item is the positive."""
    logits = net(users, items)
    labels = torch.zeros_like(logits)
    labels[:, 0] = 1.0
    losses = F.binary_cross_entropy_with_logits(logits, labels, reduction="none")
    return (losses.mean(dim=1) * weights).sum()


def fused_training_loss(net: NeuMF, users: torch.Tensor, items: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Compute `training_loss` by our kernels, in a 16-bit dtype and for batches with at least as many samples as users.

    Other batches are computed by `training_loss` itself.
    """
    rows = net.rows()
    if items.numel() < len(rows[0]) or rows[0].dtype == torch.float32:
        return training_loss(net, users, items, weights)
    return fused.loss(net, rows, users, items, weights)


def evaluate(
    net: NeuMF, users: torch.Tensor, candidates: torch.Tensor, positions: torch.Tensor, weights: torch.Tensor
) -> torch.Tensor:
    """Return weighted sums over a batch, float32 [3]: users, hits, gains."""
    valid = candidates >= 0
    scores = net(users, candidates.clamp(min=0)).sigmoid()  # Its rounding creates ties, as in the published figures.
    return hits_and_gains(ranks(scores, valid, positions), weights)


class Predictor(nn.Module):
    """Maps users and items, int64 [n, 2], to the probability of interest, float32 [n]."""

    def __init__(self, net: NeuMF) -> None:
        super().__init__()
        self.net = net

    def forward(self, pairs: torch.Tensor) -> torch.Tensor:
        probabilities: torch.Tensor = self.net(pairs[:, 0], pairs[:, 1:])[:, 0].sigmoid()
        return probabilities


class Ncf(TrialModule):
    """Trains by Adam with dense gradients of all embeddings, at a constant rate.

    Raises ConfigError for an invalid option.
    """

    same_kernels = True

    def __init__(
        self,
        data: RatingsData | SyntheticRatings,
        learning_rate: float,
        weight_decay: float,
        epochs: int,
        factors: int = 64,
        layers: list[int] = [256, 256, 128, 64],  # noqa: B006  It is never changed.
        beta1: float = 0.9,
        beta2: float = 0.999,
        eps: float = 1e-8,
    ) -> None:
        super().__init__()
        check_options(epochs, factors, layers, {"beta1": beta1, "beta2": beta2}, eps)
        self.max_epochs = epochs
        self.learning_rate, self.weight_decay = learning_rate, weight_decay
        self.betas, self.eps = (float(beta1), float(beta2)), eps  # Adam takes no int.
        self.net = NeuMF(data.num_users, data.num_items, factors, list(layers))
        self._training_loss, self._evaluate = training_loss, evaluate
        self._sums = DistributedSum()

    def compile_hot_path(self) -> None:
        """Compile the paths from indices to loss and to hits; shapes never change, so each compiles once."""
        fuses = fused.has_kernels(self.net, self.device)
        loss = fused_training_loss if fuses else training_loss
        self._training_loss = compiled(loss, self.device, cuda_graphs=not self.captured)
        self._evaluate = compiled(evaluate, self.device)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(
            self.parameters(), lr=self.learning_rate, betas=self.betas, eps=self.eps, weight_decay=self.weight_decay,
            fused=True,
        )  # fmt: skip

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        return self._training_loss(self.net, batch["users"], batch["items"], batch["weights"])

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        of_users = (batch[name] for name in ("eval_users", "candidates", "positions", "eval_weights"))
        self._sums.add(self._evaluate(self.net, *of_users))

    def metrics(self) -> dict[str, float]:
        users, hits, gains = self._sums.reduce()
        return {"hit_rate_10": hits / users, "ndcg_10": gains / users}

    def predictor(self, batch: Batch) -> tuple[nn.Module, torch.Tensor]:
        items = batch["items"]
        users = batch["users"][:, None].expand_as(items)
        return Predictor(self.net), torch.stack((users.flatten(), items.flatten()), dim=1)


def check_options(epochs: Any, factors: Any, layers: Any, betas: dict[str, Any], eps: Any) -> None:
    """Raise ConfigError for an invalid option."""
    require("epochs", epochs, is_count(epochs) and epochs >= 1, "a whole number of epochs, 1 or more")
    require("factors", factors, is_count(factors) and factors >= 1, "a whole number, 1 or more")
    sizes = isinstance(layers, list | tuple) and len(layers) >= 2 and all(is_count(size) and size for size in layers)
    require("layers", layers, sizes and layers[0] % 2 == 0, "two or more whole numbers, the first one even")
    for name, beta in betas.items():
        require(name, beta, is_number(beta) and 0 <= beta < 1, "from 0 to below 1")
    check_above_zero(eps=eps)


WORKLOAD = Workload(
    module=Ncf, data={"ratings": ratings, "movielens": movielens, "synthetic": SyntheticRatings}, unit="samples"
)


def ranks(scores: torch.Tensor, valid: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return how many candidates rank before the held-out one, int64 [E].

    A candidate ranks before it with a higher score, or with the same score at an earlier place. A score of NaN ranks
    before all, but a held-out item with such a score ranks last.

    Args:
        scores: float [E, K]
        valid: bool [E, K], False for candidates that do not count
        positions: int64 [E], the places of the held-out items
    """
    held_out = scores.gather(1, positions[:, None])
    place = torch.arange(scores.shape[1], device=scores.device)
    behind = (scores < held_out) | ((scores == held_out) & (place >= positions[:, None]))
    return (valid & ~behind).sum(dim=1)


def hits_and_gains(ranks: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return weighted sums over E users, float32 [3]: users, hits, normalised discounted cumulative gains at TOP."""
    hits = (ranks < TOP).float()
    gains = hits * math.log(2) / torch.log(ranks + 2.0)
    return (torch.stack([torch.ones_like(hits), hits, gains]) * weights).sum(dim=1)
