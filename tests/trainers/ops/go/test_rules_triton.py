"""The rules' kernels are PyTorch's operators in each bit, by Triton's interpreter and on a GPU."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch

from tests.trainers import synchronization, triton_on_cpu
from tests.trainers.ops.go import go_triton_on_cpu
from trainers.ops.go import Rules

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


@pytest.mark.exhaustive
@pytest.mark.slow
@needs_triton
def test_the_kernels_are_pytorchs_operators_by_the_interpreter() -> None:
    for size, wrong in triton_on_cpu.results("tests.trainers.ops.go.go_triton_on_cpu").items():
        assert wrong.tolist() == [0, 0, 0, 0], f"size {size}: legal, planes, area, play"


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("size", "batch"), [(2, 1000), (3, 1000), (4, 500), (5, 1000), (9, 3000), (13, 50), (19, 30)])
def test_the_kernels_are_pytorchs_operators_on_a_gpu(size: int, batch: int) -> None:
    assert go_triton_on_cpu.differences(Rules(size), batch, "cuda").tolist() == [0, 0, 0, 0]


@pytest.mark.gpu
@needs_gpu
def test_a_move_does_not_wait_for_the_gpu() -> None:
    rules = Rules()
    boards = rules.start(64, "cuda")
    moves = torch.arange(64, device="cuda")
    rules.play(boards, moves)  # compiles
    with synchronization.refused():
        for _ in range(3):
            legal, planes = rules.legal(boards), rules.planes(boards, torch.bfloat16)
            boards = rules.play(boards, moves)
            scores = rules.area_score(boards)
            moves = moves + 1
    assert legal.shape == (64, 82)
    assert planes.dtype == torch.bfloat16
    assert scores.shape == (64,)
    assert boards.moves.tolist() == [3] * 64
