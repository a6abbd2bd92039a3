"""Muon for matrices and AdamW for all other parameters, as one optimizer; processes share the work on matrices.

K. Jordan et al. 2024, https://kellerjordan.github.io/posts/muon/. Muon orthogonalises the momentum of a matrix: the
singular vectors stay, and all singular values become about 1. torch.optim.Muon does this matrix by matrix, in thousands
of small kernels, and every process repeats all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.adamw import adamw

from trainers.ops.sharding import sharded

# Of x, x^3 and x^5, by iteration: "Polar Express" of N. Amsel et al. 2025 (arXiv:2505.16932). These polynomials bring
# singular values from 0.001 to 1 closest to 1. In bf16 seven are about as accurate as twelve steps (2, -1.5, 0.5).
POLYNOMIALS = (
    (8.28721201814563, -23.595886519098837, 17.300387312530933),
    (4.107059111542203, -2.9478499167379106, 0.5448431082926601),
    (3.9486908534822946, -2.908902115962949, 0.5518191394370137),
    (3.3184196573706015, -2.488488024314874, 0.51004894012372),
    (2.300652019954817, -1.6689039845747493, 0.4188073119525673),
    (1.891301407787398, -1.2679958271945868, 0.37680408948524835),
    (1.8750014808534479, -1.2500016453999487, 0.3750001645474248),
)
# Rounding may lift a value above the range of the next polynomial, where it would grow. Dividing by this leaves room.
MARGIN = 1.01
COEFFICIENTS = (*((a / MARGIN, b / MARGIN**3, c / MARGIN**5) for a, b, c in POLYNOMIALS[:-1]), POLYNOMIALS[-1])
EPSILON = 1e-7
NO_FACTOR = 1.0


def orthogonal(matrices: torch.Tensor) -> torch.Tensor:
    """Return the nearest orthogonal matrices to [n, rows, columns], rows <= columns, by polynomials of x x^T.

    The iteration runs in bf16 on a GPU, as published, and in float32 on a CPU. Singular values below a thousandth of
    the matrix's norm stay below 1.
    """
    x: torch.Tensor = matrices / (MARGIN * matrices.norm(dim=(1, 2), keepdim=True) + EPSILON)  # below 1
    x = x.bfloat16() if x.is_cuda else x
    for first, third, fifth in COEFFICIENTS:
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=third, alpha=fifth), x, beta=first)
    return x


@dataclass(frozen=True)
class AdamWGroup:
    """Parameters with one learning rate."""

    params: list[nn.Parameter]
    lr: float


class MuonAdamW(torch.optim.Optimizer):
    """Muon for matrices, AdamW for the other groups. A matrix parameter is [rows, columns] or [n, rows, columns].

    Each process orthogonalises its share of the matrices and receives the others. Gradients must be equal on all
    processes. Each process keeps the whole momentum, so the state of rank 0 is complete. Parameters are all sharded or
    all whole; if sharded, each process keeps its part of the momentum. A step overwrites the gradients.
    """

    def __init__(
        self, matrices: Iterable[nn.Parameter], others: Iterable[AdamWGroup], lr: float, weight_decay: float,
        momentum: float = 0.95, betas: tuple[float, float] = (0.8, 0.95), eps: float = 1e-10,
        others_weight_decay: float = 0.001,
    ) -> None:  # fmt: skip
        decays = {"weight_decay": others_weight_decay, "betas": betas, "eps": eps}
        groups: list[dict[str, Any]] = [
            {"params": list(matrices), "lr": lr, "weight_decay": weight_decay, "momentum": momentum}
        ]
        groups += [{"params": group.params, "lr": group.lr, **decays, "fused": True} for group in others]
        super().__init__(groups, {})

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        muon, *others = self.param_groups
        exchange = _Exchanged if any(map(sharded.is_sharded, muon["params"])) else _Shared
        shared = exchange(muon["params"], self._updates(muon))
        for group in others:  # This overlaps with the exchange of the matrices.
            self._adamw(group)
        for parameter, update in shared.received():
            local = sharded.local(parameter)
            local.mul_(1 - muon["lr"] * muon["weight_decay"])
            local.add_(update.view_as(local), alpha=-muon["lr"] * scale(parameter))
        return loss

    def _updates(self, group: dict[str, Any]) -> list[torch.Tensor]:
        """Update the momenta, and return the gradients with Nesterov momentum, computed in place."""
        gradients = [sharded.local(parameter.grad) for parameter in group["params"]]
        momenta = []
        for parameter in group["params"]:
            state = self.state[parameter]
            if not state:
                state["momentum"] = torch.zeros_like(parameter)
            momenta.append(sharded.local(state["momentum"]))
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        torch._foreach_lerp_(gradients, momenta, group["momentum"])
        return gradients

    def _adamw(self, group: dict[str, Any]) -> None:
        parameters = group["params"]
        for parameter in parameters:
            state = self.state[parameter]
            if not state:
                state["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
                state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        states = [self.state[parameter] for parameter in parameters]
        gradients = [sharded.local(parameter.grad) for parameter in parameters]
        first, second = ([sharded.local(state[name]) for state in states] for name in ("exp_avg", "exp_avg_sq"))
        weights = [sharded.local(parameter) for parameter in parameters]
        adamw(
            weights, gradients, first, second, [], [state["step"] for state in states], fused=True, amsgrad=False,
            beta1=group["betas"][0], beta2=group["betas"][1], lr=group["lr"], weight_decay=group["weight_decay"],
            eps=group["eps"], maximize=False,
        )  # fmt: skip


def scale(parameter: torch.Tensor) -> float:
    """Return the factor of the learning rate, which is above 1 for tall matrices, as published."""
    rows, columns = parameter.shape[-2:]
    return float(max(1.0, rows / columns) ** 0.5)


def _sizes(tensor: torch.Tensor) -> tuple[int, int]:
    rows, columns = tensor.shape[-2:]
    return min(rows, columns), max(rows, columns)


class _Shared:
    """Sends updates to all processes: each process orthogonalises its share of the matrices of each size."""

    def __init__(self, parameters: Sequence[torch.Tensor], updates: Sequence[torch.Tensor]) -> None:
        several = dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1
        self._rank, self._world_size = (dist.get_rank(), dist.get_world_size()) if several else (0, 1)
        pairs = sorted(zip(parameters, updates, strict=True), key=lambda pair: _sizes(pair[0]))
        self._sent = []
        for _, of_size in groupby(pairs, key=lambda pair: _sizes(pair[0])):
            owners, turned = zip(*((owner, wide(update)) for owner, update in of_size), strict=True)
            self._sent.append((owners, *self._send([matrix for part in turned for matrix in part])))

    def _send(self, matrices: list[torch.Tensor]) -> tuple[torch.Tensor, Any]:
        """Return orthogonalised matrices [n, rows, columns], and the work to wait for before using them, or None."""
        if self._world_size == 1:
            return orthogonal(torch.stack(matrices)), None
        most = -(-len(matrices) // self._world_size)
        share = matrices[self._rank * most : (self._rank + 1) * most]
        share += [torch.zeros_like(matrices[0])] * (most - len(share))
        part = orthogonal(torch.stack(share))
        whole = part.new_empty((most * self._world_size, *part.shape[1:]))
        return whole, dist.all_gather_into_tensor(whole, part.contiguous(), async_op=True)

    def received(self) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
        """Yield each parameter with its update, in the parameter's orientation."""
        for owners, whole, work in self._sent:
            if work is not None:
                work.wait()
            start = 0
            for owner in owners:
                number = owner.numel() // (owner.shape[-1] * owner.shape[-2])
                update = whole[start : start + number]
                yield owner, (update.mT if owner.shape[-2] > owner.shape[-1] else update).reshape(owner.shape)
                start += number


class _Exchanged:
    """Exchanges updates of sharded matrices: a process gathers a whole matrix, and scatters the result.

    Each process holds one whole matrix at a time: parameters of one shape are handled in batches of the world size.
    """

    def __init__(self, parameters: Sequence[torch.Tensor], updates: Sequence[torch.Tensor]) -> None:
        self._updates = list(zip(parameters, updates, strict=True))
        self._rank, self._world_size = dist.get_rank(), dist.get_world_size()

    def received(self) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
        """Yield each parameter with this process's part of its update."""

        def alike(pair: tuple[torch.Tensor, torch.Tensor]) -> tuple[int, ...]:
            return (sharded.dimension(pair[0]), *pair[0].shape)

        for _, group in groupby(sorted(self._updates, key=alike), key=alike):
            pairs = list(group)
            for start in range(0, len(pairs), self._world_size):
                yield from self._in_turn(pairs[start : start + self._world_size])

    def _in_turn(
        self, pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]
    ) -> Iterable[tuple[torch.Tensor, torch.Tensor]]:
        first, update = pairs[0]
        dim, rows = sharded.dimension(first), first.shape[sharded.dimension(first)]
        padded = list(first.shape)
        padded[dim] = -(-rows // self._world_size)  # The last processes may have fewer rows and send zeros after them.
        sent = update.new_zeros((self._world_size, *padded))
        for to, (_, part) in zip(sent, pairs, strict=False):
            to.narrow(dim, 0, part.shape[dim]).copy_(part)
        parts = self._traded(sent)
        results = torch.zeros_like(parts, dtype=torch.bfloat16 if parts.is_cuda else parts.dtype)
        if self._rank < len(pairs):
            whole = torch.cat(parts.unbind(0), dim).narrow(dim, 0, rows)
            turned = orthogonal(wide(whole))
            result = (turned.mT if whole.shape[-2] > whole.shape[-1] else turned).reshape(whole.shape)
            for to, part in zip(results, result.split(padded[dim], dim), strict=False):
                to.narrow(dim, 0, part.shape[dim]).copy_(part)
        for (parameter, part), result in zip(pairs, self._traded(results), strict=False):
            yield parameter, result.narrow(dim, 0, part.shape[dim]).to(part.dtype)

    def _traded(self, sent: torch.Tensor) -> torch.Tensor:
        """Send row i to process i; return the rows received, by process."""
        received = torch.empty_like(sent)
        dist.all_to_all_single(received, sent)
        return received


def wide(matrices: torch.Tensor) -> torch.Tensor:
    """Return matrices as [n, rows, columns] with rows <= columns, transposed if necessary."""
    stacked = matrices.reshape(-1, *matrices.shape[-2:])
    return stacked.mT if stacked.shape[-2] > stacked.shape[-1] else stacked
