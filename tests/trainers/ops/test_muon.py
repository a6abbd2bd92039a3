"""Muon against singular values, PyTorch's own, and itself on several processes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn

from tests.trainers import processes
from trainers.ops import muon
from trainers.ops.muon import AdamWGroup, MuonAdamW, orthogonal

SHAPES = ((8, 8), (3, 8, 8), (24, 8), (8, 24), (8, 8))


def test_singular_vectors_stay_and_singular_values_become_one() -> None:
    torch.manual_seed(1)
    matrices = torch.randn(5, 6, 9)
    left, _, right = torch.linalg.svd(matrices, full_matrices=False)
    torch.testing.assert_close(orthogonal(matrices), left @ right, rtol=0, atol=5e-3)
    torch.testing.assert_close(orthogonal(1e-3 * matrices), orthogonal(matrices), rtol=0, atol=1e-3)
    assert orthogonal(torch.zeros(1, 6, 9)).equal(torch.zeros(1, 6, 9))


def with_values(values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Matrices with these singular values, and the orthogonal ones nearest to them."""
    torch.manual_seed(4)
    left, _, right = torch.linalg.svd(torch.randn(2, 48, 96), full_matrices=False)
    return left * values @ right, left @ right


def test_values_from_a_thousandth_of_the_norm_become_one() -> None:
    matrices, nearest = with_values(torch.logspace(-2.6, 0, 48))
    smallest = torch.linalg.svdvals(matrices).min() / matrices[0].norm()
    assert 1e-3 < smallest < 1.2e-3
    made = orthogonal(matrices)
    torch.testing.assert_close(made, nearest, rtol=0, atol=1e-3)
    torch.testing.assert_close(torch.linalg.svdvals(made), torch.ones(2, 48), rtol=0, atol=1e-3)


@pytest.mark.parametrize("lowest", [-1, -2, -4])
def test_in_bf16_it_is_about_as_accurate_as_twelve_equal_steps(lowest: float) -> None:
    matrices, nearest = with_values(torch.logspace(lowest, 0, 48))

    def error(of: torch.Tensor) -> float:
        return float((of.float() - nearest).norm() / nearest.norm())

    x = (matrices / matrices.norm(dim=(1, 2), keepdim=True)).bfloat16()
    for _ in range(12):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=-1.5, alpha=0.5), x, beta=2.0)
    assert error(orthogonal(matrices.bfloat16())) < error(x) + 0.01


def parameters() -> tuple[list[nn.Parameter], nn.Parameter]:
    generator = torch.Generator().manual_seed(2)
    matrices = [nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]
    return matrices, nn.Parameter(torch.randn(7, generator=generator))


def steps(
    number: int = 4, change: Callable[[MuonAdamW], MuonAdamW] = lambda optimizer: optimizer
) -> list[torch.Tensor]:
    """Parameters after so many steps; in the middle the optimizer is changed."""
    matrices, vector = parameters()

    def made() -> MuonAdamW:
        return MuonAdamW(matrices, [AdamWGroup([vector], 0.01)], lr=0.05, weight_decay=0.1)

    optimizer = made()
    generator = torch.Generator().manual_seed(3)
    for step in range(number):
        if step == number // 2:
            state = change(optimizer).state_dict()
            optimizer = made()
            optimizer.load_state_dict(state)
        for parameter in (*matrices, vector):
            parameter.grad = torch.randn(parameter.shape, generator=generator)
        optimizer.step()
    return [parameter.detach() for parameter in (*matrices, vector)]


@pytest.mark.skipif(not hasattr(torch.optim, "Muon"), reason="PyTorch 2.9 has it")
def test_a_matrix_changes_as_by_pytorchs_muon_and_a_vector_as_by_its_adamw() -> None:
    matrices, vector = parameters()
    pieces = [[nn.Parameter(part.detach().clone()) for part in m.view(-1, *m.shape[-2:])] for m in matrices]
    flat = [piece for part in pieces for piece in part]
    other = torch.optim.Muon(
        flat, lr=0.05, weight_decay=0.1, momentum=0.95, ns_coefficients=(2.0, -1.5, 0.5), ns_steps=12
    )
    adamw = torch.optim.AdamW([vector], lr=0.01, betas=(0.8, 0.95), eps=1e-10, weight_decay=0.001)
    generator = torch.Generator().manual_seed(3)
    for _ in range(4):
        for matrix, parts in zip(matrices, pieces, strict=True):
            gradient = torch.randn(matrix.shape, generator=generator).view(-1, *matrix.shape[-2:])
            for part, own in zip(parts, gradient, strict=True):
                part.grad = own.clone()
        vector.grad = torch.randn(vector.shape, generator=generator)
        other.step()
        adamw.step()
    *ours, our_vector = steps()
    torch.testing.assert_close(our_vector, vector.detach())
    for own, parts in zip(ours, pieces, strict=True):
        expected = torch.stack([part.detach() for part in parts]).view(own.shape)
        torch.testing.assert_close(own, expected, rtol=0, atol=5e-3)  # PyTorch's is computed in bf16.
        assert (own - parameters()[0][0].mean()).abs().max() > 0.1


def test_a_state_that_is_saved_and_loaded_goes_on_as_if_nothing_had_been() -> None:
    def through_a_file(optimizer: MuonAdamW) -> MuonAdamW:
        return optimizer

    torch.testing.assert_close(steps(4, through_a_file), steps(4), rtol=0, atol=0)


def shared(rank: int, world_size: int, folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=world_size)
    orthogonalised: list[int] = []
    whole = muon.orthogonal

    def counted(matrices: torch.Tensor) -> torch.Tensor:
        orthogonalised.append(len(matrices))
        return whole(matrices)

    muon.orthogonal = counted
    result: Any = steps(4), orthogonalised[:2]
    torch.save(result, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_processes_share_the_work_and_have_the_parameters_of_one(tmp_path: Path, world_size: int) -> None:
    processes.ranks(shared, world_size, str(tmp_path), number=world_size)
    alone = steps(4)
    for rank in range(world_size):
        parameters_of_rank, orthogonalised = torch.load(tmp_path / f"{rank}.pt")
        torch.testing.assert_close(parameters_of_rank, alone, rtol=0, atol=1e-5)
        # Of 5 square matrices and 2 oblong ones.
        assert orthogonalised == [-(-5 // world_size), -(-2 // world_size)]
