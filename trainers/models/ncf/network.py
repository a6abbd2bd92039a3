"""Neural matrix factorisation: a product of factors and a perceptron, each with its own embeddings.

X. He et al. 2017, arXiv:1708.05031; sizes and initialization are those of MLPerf Training v0.5's reference.
"""

from __future__ import annotations

import math
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

EMBEDDING_SD = 0.01


class NeuMF(nn.Module):
    """NeuMF. The product has `factors` dimensions; the perceptron has `layers`, with half of its input each for user
    and item."""

    def __init__(self, num_users: int, num_items: int, factors: int, layers: list[int]) -> None:
        super().__init__()
        half, self.factors = layers[0] // 2, factors
        self.mf_user = embedding(num_users, factors)
        self.mf_item = embedding(num_items, factors)
        self.mlp_user = embedding(num_users, half)
        self.mlp_item = embedding(num_items, half)
        self.first, *others = (glorot_linear(*sizes) for sizes in pairwise(layers))
        self.others = nn.ModuleList(others)
        self.final = nn.Linear(layers[-1] + factors, 1)
        limit = math.sqrt(3 / self.final.in_features)  # Y. LeCun et al. 1998, "Efficient BackProp"
        nn.init.uniform_(self.final.weight, -limit, limit)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        """Return logits, float32 [n, K], of the interest of users, int64 [n], in K items each, int64 [n, K].

        A user goes through embedding and first layer once for all K items. If the batch has more items than the table,
        the whole table goes through the first layer once.
        """
        product = self.mf_user(users)[:, None] * self.mf_item(items)
        of_user, of_item = self.first.weight.tensor_split(2, dim=1)
        user = F.linear(self.mlp_user(users), of_user, self.first.bias)
        if items.shape[1] > 1 and items.numel() > self.mlp_item.num_embeddings:
            item = F.embedding(items, F.linear(self.mlp_item.weight, of_item))
        else:
            item = F.linear(self.mlp_item(items), of_item)
        hidden = user[:, None] + item
        for layer in self.others:
            hidden = layer(F.relu(hidden))
        features = torch.cat((product, F.relu(hidden).float()), dim=2)
        # Avoid a matrix product: autocast would round it, and items with close scores would tie.
        return (features * self.final.weight[0]).sum(dim=2) + self.final.bias

    def rows(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the first layer's output for all users and for all items; a pair's first hidden layer is their sum."""
        of_user, of_item = self.first.weight.tensor_split(2, dim=1)
        user_rows = F.linear(self.mlp_user.weight, of_user, self.first.bias)
        return user_rows, F.linear(self.mlp_item.weight, of_item)


def embedding(num: int, size: int) -> nn.Embedding:
    table = nn.Embedding(num, size)
    nn.init.normal_(table.weight, 0.0, EMBEDDING_SD)
    return table


def glorot_linear(inputs: int, outputs: int) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.xavier_uniform_(layer.weight)
    return layer
