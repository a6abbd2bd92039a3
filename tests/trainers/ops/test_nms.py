"""Non-maximum suppression of many problems at once is torchvision's of each of them."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchvision.ops import box_iou, nms

from tests.trainers import triton_on_cpu
from tests.trainers.triton_on_cpu import IOU, problems
from trainers.ops.nms import nms_mask

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")


def slowly(boxes: torch.Tensor, valid: torch.Tensor, iou_threshold: float) -> torch.Tensor:
    """Greedy, by the definition."""
    keep = torch.zeros_like(valid)
    for problem, (own, real) in enumerate(zip(boxes, valid, strict=True)):
        overlaps = box_iou(own, own).tolist()
        kept: list[int] = []
        for box in real.nonzero()[:, 0].tolist():
            if all(overlaps[box][before] <= iou_threshold for before in kept):
                kept.append(box)
        keep[problem, kept] = True
    return keep


@settings(max_examples=25)
@given(st.integers(0, 2**32 - 1), st.integers(4, 40), st.sampled_from([0.2, 0.5, 0.7]))
def test_it_is_the_greedy_definition(seed: int, num_boxes: int, iou_threshold: float) -> None:
    boxes, valid = problems(2, num_boxes, seed)
    assert torch.equal(nms_mask(boxes, valid, iou_threshold), slowly(boxes, valid, iou_threshold))


def test_each_problem_is_torchvisions() -> None:
    boxes, valid = problems(3, 200)
    valid[:] = True
    valid[1] = False  # a problem without boxes among the others
    keep = nms_mask(boxes, valid, IOU)
    scores = torch.linspace(1, 0, 200)
    assert not keep[1].any()
    for problem in (0, 2):
        assert keep[problem].nonzero()[:, 0].tolist() == nms(boxes[problem], scores, IOU).tolist()
        assert 10 < keep[problem].sum() < 150


def test_invalid_boxes_are_neither_kept_nor_suppress() -> None:
    boxes = torch.tensor([[0.0, 0, 10, 10], [0, 0, 10, 10], [0, 0, 10, 9], [50, 50, 60, 60]])[None]
    valid = torch.tensor([[False, True, True, False]])
    assert nms_mask(boxes, valid, IOU).tolist() == [[False, True, False, False]]
    boxes[0, 0] = float("nan")
    assert nms_mask(boxes, valid, IOU).tolist() == [[False, True, False, False]]


def test_the_threshold_itself_suppresses_nothing() -> None:
    boxes, valid = problems()
    assert nms_mask(boxes, valid, IOU)[:, :4].tolist() == [[True, True, True, False]] * 2


@pytest.mark.slow
def test_exported_it_is_the_same_for_any_number_of_problems() -> None:
    class Kept(torch.nn.Module):
        def forward(self, boxes: torch.Tensor, valid: torch.Tensor) -> torch.Tensor:
            return nms_mask(boxes, valid, IOU)

    batch = {0: torch.export.Dim("batch", min=1)}
    program = torch.export.export(Kept(), problems(2, 100), dynamic_shapes=(batch, batch)).module()
    for num_problems in (1, 5):
        boxes, valid = problems(num_problems, 100)
        boxes[0, 7] = boxes[0, 7, 0]  # it is empty
        assert torch.equal(program(boxes, valid), nms_mask(boxes, valid, IOU))


@pytest.mark.slow
@needs_triton
def test_the_kernels_give_the_same_in_triton_s_interpreter() -> None:
    assert torch.equal(triton_on_cpu.results()["keep"], nms_mask(*problems(), IOU))


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("num_boxes", [4, 32, 33, 1000, 2048])
def test_on_a_gpu_it_is_the_same(num_boxes: int) -> None:
    boxes, valid = problems(5, num_boxes)
    boxes[::2] += (torch.arange(num_boxes) // 50 * 80.0)[:, None]  # crowds side by side
    valid[3] = False
    boxes[2, ~valid[2]] = float("nan")
    on_gpu = nms_mask(boxes.cuda(), valid.cuda(), IOU)
    assert on_gpu.device.type == "cuda"
    assert torch.equal(on_gpu.cpu(), nms_mask(boxes, valid, IOU))
