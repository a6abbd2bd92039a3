"""What SSD300 detects: boxes in pixels of the image, the best of those that overlap."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.trainers.small_ssd import DEFAULTS, NUM_CLASSES, Recorder, made_batch, ssd
from trainers.models.ssd.default_boxes import CODING, match
from trainers.ops.boxes import encode
from trainers.workload import Batch

pytestmark = pytest.mark.usefixtures("one_thread")


class Perfect(nn.Module):
    """Says what matching would have it say."""

    def __init__(self, batch: Batch) -> None:
        super().__init__()
        self.default_boxes = DEFAULTS
        boxes, labels = match(DEFAULTS, batch["boxes"], batch["labels"])
        self.deltas, self.logits = encode(boxes, DEFAULTS, CODING), 9.0 * F.one_hot(labels, NUM_CLASSES + 1)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.deltas, self.logits


def test_what_a_perfect_network_says_is_found_in_pixels_of_the_image() -> None:
    recorder = Recorder()
    module, batch = ssd(recorder), made_batch(4)
    batch["labels"][1, 0] = 0  # This is padding between objects.
    batch["image_index"] = torch.tensor([7, 8, -1, 9])  # the third is filler
    batch["crops"][3] = torch.tensor([100.0, 50.0, 400.0, 350.0])
    module.net = Perfect(batch)  # type: ignore[assignment]
    module.validation_step(batch, 0)
    assert module.metrics() == {"box_map": 0.25, "box_map_50": 0.5}
    (index, boxes, scores, labels), *more = recorder.added
    assert not more
    assert (boxes.dtype, scores.dtype) == (np.float32, np.float32)
    assert (index.dtype, labels.dtype) == (np.int64, np.int64)
    assert index.tolist() == [7, 7, 8, 9, 9]
    assert (scores > 0.99).all()
    scale = {7: ((640, 480), (0, 0)), 8: ((640, 480), (0, 0)), 9: ((300, 300), (100, 50))}
    expected = [
        (number, int(batch["labels"][image, slot]), *((batch["boxes"][image, slot].view(2, 2).numpy() / 300
         * scale[number][0] + scale[number][1]).ravel().tolist()))
        for image, number in ((0, 7), (1, 8), (3, 9)) for slot in range(2) if batch["labels"][image, slot]
    ]  # fmt: skip
    rows = [(int(i), int(label), *box.tolist()) for i, label, box in zip(index, labels, boxes, strict=True)]
    np.testing.assert_allclose(sorted(rows), sorted(expected), atol=0.05)
    module.metrics()
    assert len(recorder.added) == 1  # what was evaluated counts once


def test_of_detections_that_overlap_the_best_of_each_class_is_left() -> None:
    recorder = Recorder()
    module, batch = ssd(recorder), made_batch(1)
    perfect = Perfect(batch)
    perfect.logits = torch.zeros(1, 8732, NUM_CLASSES + 1)
    perfect.logits[..., 0] = 20
    box = torch.tensor([[50.0, 60.0, 150.0, 160.0], [52.0, 60.0, 152.0, 160.0], [200.0, 200.0, 280.0, 280.0]])
    perfect.deltas = encode(box[torch.arange(8732) % 3], DEFAULTS, CODING)[None]
    for place, label, logit in ((0, 1, 22.0), (1, 1, 23.0), (3, 2, 21.5), (2, 3, 16.0)):
        perfect.logits[0, place, label] = logit
    module.net = perfect  # type: ignore[assignment]
    module.validation_step(batch, 0)
    module.metrics()
    _, boxes, scores, labels = recorder.added[0]
    # Box 0 is suppressed by box 1 of its class; label 2 is another's; the last one's score is 0.018.
    assert labels.tolist() == [1, 2]
    np.testing.assert_allclose(boxes[:, 0] / 640 * 300, [52, 50], atol=0.05)
    np.testing.assert_allclose(scores, 1 / (1 + np.exp([-3, -1.5])), rtol=1e-3)
