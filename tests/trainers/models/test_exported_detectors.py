"""Detectors as programs of torch.export detect as in an evaluation; tests/tracking/store/mirror has classifiers."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.support.commands import HANGS_SEC
from tests.trainers.models.test_maskrcnn import CLASSES, OPTIONS
from trainers.data.detection.synthetic import SyntheticDetection
from trainers.models.maskrcnn.module import MaskRcnn
from trainers.models.ssd.module import Ssd
from trainers.workload import TrialModule

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread"), pytest.mark.filterwarnings("ignore")]

SSD = {"learning_rate": 0.01, "weight_decay": 0.0, "epochs": 1, "decay_epochs": [], "width": 0.25}
ELSEWHERE = """
import sys, torch
program = torch.export.load("exported.pt2").module()
images, wanted = torch.load("expected.pt")
torch.testing.assert_close(program(images), wanted, rtol=1e-4, atol=1e-3)
assert program(images[:1]).shape == wanted[:1].shape
assert not {"torchvision", "trainers"} & set(sys.modules)
"""


@pytest.mark.parametrize(
    ("model", "options", "columns"),
    [
        (Ssd, {**SSD, "backbone": "resnet18"}, 6),
        pytest.param(MaskRcnn, OPTIONS, 6 + 28 * 28, marks=pytest.mark.exhaustive),
    ],
)
def test_it_detects_the_same_where_only_pytorch_is(
    model: type[TrialModule], options: dict[str, object], columns: int, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    data = SyntheticDetection(size=4, num_classes=CLASSES)
    module = model(data, **options)
    network, images = module.predictor(data.viewed(module.view).example_batches(2, torch.device("cpu"))[0])
    network = network.eval().requires_grad_(False)
    dynamic = ({0: torch.export.Dim("batch", min=1)},)
    torch.export.save(torch.export.export(network, (images,), dynamic_shapes=dynamic), tmp_path / "exported.pt2")
    more = torch.cat((images, images.flip(2)[:1]))
    wanted = network(more)
    assert wanted.shape[2] == columns
    assert (wanted[..., 4] > 0).sum() > 10
    torch.save((more, wanted), tmp_path / "expected.pt")
    subprocess.run([sys.executable, "-c", ELSEWHERE], cwd=tmp_path, check=True, timeout=HANGS_SEC)
