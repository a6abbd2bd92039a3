"""Best overlaps of anchors and objects are those of the matrix of all pairs."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from torchvision.ops import box_iou

from tests.trainers import triton_on_cpu
from tests.trainers.triton_on_cpu import Anchors, anchors
from trainers.ops.overlaps import best_overlaps

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


def slowly(given: Anchors) -> list[torch.Tensor]:
    """Image by image, with the objects that there are."""
    best, matched, is_most = [], [], []
    for boxes, real in zip(given.boxes, given.real, strict=True):
        numbers, iou = real.nonzero()[:, 0], box_iou(given.anchors, boxes[real])
        if not len(numbers):
            iou, numbers = torch.full((len(given.anchors), 1), -1.0), torch.zeros(1, dtype=torch.int64)
        best.append(iou.max(dim=1).values)
        matched.append(numbers[iou.max(dim=1).indices])
        is_most.append(((iou >= iou.max(dim=0).values * (1 - 1e-6)) & (iou.max(dim=0).values > 0)).any(dim=1))
    return [torch.stack(rows) for rows in (best, matched, is_most)]


def assert_same(seen: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    torch.testing.assert_close(seen[0], expected[0])
    assert torch.equal(seen[2], expected[2])
    assert torch.equal(seen[1], expected[1])


def test_they_are_those_of_all_pairs() -> None:
    given = anchors()
    best, matched, is_most = best_overlaps(*given)
    assert_same([best, matched, is_most], slowly(given))
    assert is_most[0, [5, 7]].all()  # a tie
    assert not is_most[2].any()
    assert (best[2] == -1).all()


@pytest.mark.slow
@needs_triton
def test_the_kernels_give_the_same_in_triton_s_interpreter() -> None:
    seen = triton_on_cpu.results()
    assert_same([seen[f"overlaps{number}"] for number in range(3)], slowly(anchors()))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize(("num_anchors", "num_objects"), [(700, 6), (512, 1), (100_000, 96)])
def test_the_kernels_give_the_same_on_a_gpu(num_anchors: int, num_objects: int) -> None:
    given = anchors(num_anchors, max(4, num_objects))
    seen = torch.compile(best_overlaps, fullgraph=True)(*(tensor.cuda() for tensor in given))
    assert_same([tensor.cpu() for tensor in seen], slowly(given))
