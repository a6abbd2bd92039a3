"""Mask R-CNN gives torchvision's losses and detections, batched and in fixed shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pycocotools import mask as coco_mask
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models.detection import MaskRCNN

from conf.schema import ConfigError
from trainers.data.detection.synthetic import CORNERS, OBJECTS, SyntheticDetection, generated_batch
from trainers.models.maskrcnn import roi_heads, rpn
from trainers.models.maskrcnn.module import MaskRcnn
from trainers.models.maskrcnn.network import build_network
from trainers.workload import Batch

# pycocotools makes arrays by a protocol that NumPy 2 warns of.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")

SIZE, ROOM, CLASSES, IMAGES = 128, 8, 3, 2
OPTIONS: dict[str, Any] = {
    "learning_rate": 0.01, "weight_decay": 1e-4, "epochs": 1, "decay_epochs": [], "warmup_steps": 0,
    "min_size": SIZE, "max_size": SIZE, "num_proposals": 100, "num_regions": 64, "backbone": "resnet18",
    "channels": 32,
}  # fmt: skip


@pytest.fixture(scope="module")
def module() -> MaskRcnn:
    torch.manual_seed(0)
    data = SyntheticDetection(size=4, num_classes=CLASSES)
    module = MaskRcnn(data, **OPTIONS)
    for name in ("box_predictor", "mask_predictor"):  # predictions that differ from each other, as trained ones do
        for parameter in getattr(module.net.roi_heads, name).parameters():
            torch.nn.init.normal_(parameter, std=0.05)
    return module


@pytest.fixture(scope="module")
def batch() -> Batch:
    return generated_batch(IMAGES, (SIZE, SIZE), ROOM, CLASSES, True, torch.device("cpu"))


def reference(module: MaskRcnn) -> MaskRCNN:
    """torchvision's own model around the same layers, set to use every sample instead of drawing some."""
    heads = module.net.roi_heads
    net = MaskRCNN(
        module.net.backbone, min_size=SIZE, max_size=SIZE, box_head=heads.box_head, box_predictor=heads.box_predictor,
        mask_head=heads.mask_head, mask_predictor=heads.mask_predictor,
        rpn_pre_nms_top_n_train=100, rpn_post_nms_top_n_train=100,
        rpn_pre_nms_top_n_test=50, rpn_post_nms_top_n_test=50,
        rpn_batch_size_per_image=10**6, box_batch_size_per_image=10**6, box_positive_fraction=0.9,
    )  # fmt: skip
    net.load_state_dict(module.net.state_dict())
    return net


def targets(batch: Batch) -> list[dict[str, torch.Tensor]]:
    """The batch's objects as torchvision wants them, with masks of whole pixels."""
    points = batch["edges"][: IMAGES * OBJECTS * CORNERS, :2].reshape(IMAGES, OBJECTS, CORNERS * 2).double().numpy()
    objects = []
    for image in range(IMAGES):
        masks = [
            coco_mask.decode(coco_mask.frPyObjects([polygon.tolist()], SIZE, SIZE)[0]) for polygon in points[image]
        ]
        real = batch["labels"][image] > 0
        objects.append(
            {
                "boxes": batch["boxes"][image][real],
                "labels": batch["labels"][image][real],
                "masks": torch.from_numpy(np.stack(masks)),
            }
        )
    return objects


def pixels(batch: Batch) -> list[torch.Tensor]:
    return list(batch["images"].float() / 255)


def test_the_counted_flops_are_those_of_the_layers(module: MaskRcnn, batch: Batch) -> None:
    """Two for each multiply-add: forward, and for the gradients of a layer's weights and of its input, where it has to
    give them. None goes through the layers that stay as they were pretrained."""
    products: list[int] = []

    def count(layer: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
        # Weights are [out, in, ...]; a transposed convolution's are [in, out, ...], and its input goes to all of them.
        places = inputs[0] if isinstance(layer, torch.nn.ConvTranspose2d) else output
        gradients = int(layer.weight.requires_grad) + int(inputs[0].requires_grad)
        products.append(places.numel() * layer.weight[0].numel() * (1 + gradients))

    kinds = (torch.nn.Conv2d, torch.nn.ConvTranspose2d, torch.nn.Linear)
    hooks = [layer.register_forward_hook(count) for layer in module.net.modules() if isinstance(layer, kinds)]
    module.train()
    with FlopCounterMode(display=False) as counter:
        module.training_step(batch, 0).backward()  # type: ignore[union-attr]
    for hook in hooks:
        hook.remove()
    module.zero_grad()
    assert 2 * sum(products) == pytest.approx(counter.get_total_flops(), rel=0.01)


def test_losses_are_torchvisions(module: MaskRcnn, batch: Batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rpn, "NUM_SAMPLES", 10**6)
    monkeypatch.setattr(roi_heads, "POSITIVE_SHARE", 1.0)
    monkeypatch.setattr(module, "num_regions", 10**6)
    module.eval()  # the same statistics of batch normalisation in both; the losses do not depend on it
    net = reference(module)
    net.eval()
    for part in (net.rpn, net.roi_heads):
        part.training = True
    features = net.backbone(net.transform(pixels(batch))[0].tensors)
    images, own = net.transform(pixels(batch), targets(batch))
    proposals, rpn_losses = net.rpn(images, features, own)
    _, head_losses = net.roi_heads(features, proposals, images.image_sizes, own)
    ours = module.losses(batch)
    expected = {
        "objectness": rpn_losses["loss_objectness"],
        "rpn_box": rpn_losses["loss_rpn_box_reg"],
        "classification": head_losses["loss_classifier"],
        "box": head_losses["loss_box_reg"],
    }
    for name, value in expected.items():
        assert float(ours[name].detach()) == pytest.approx(float(value.detach()), rel=1e-4), name
    # Outlines are drawn more finely here than in whole pixels.
    assert float(ours["mask"].detach()) == pytest.approx(float(head_losses["loss_mask"].detach()), rel=0.02)


def test_detections_are_torchvisions(module: MaskRcnn, batch: Batch) -> None:
    module.eval()
    net = reference(module).eval()
    with torch.no_grad():
        expected = net(pixels(batch))
        module.validation_step({**batch, "image_index": torch.arange(IMAGES)}, 0)
    (detections,) = module._detections
    module._detections.clear()
    for image in range(IMAGES):
        own = detections["image"] == image
        assert int(own.sum()) == len(expected[image]["scores"]) > 10
        torch.testing.assert_close(detections["scores"][own], expected[image]["scores"], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(detections["boxes"][own], expected[image]["boxes"], rtol=1e-3, atol=1e-2)
        assert torch.equal(detections["labels"][own], expected[image]["labels"])


def test_rows_that_the_compiler_padded_are_detected_alike() -> None:
    images, regions, classes = 2, 5, 3
    torch.manual_seed(1)
    logits, deltas = torch.randn(images, regions, classes), torch.randn(images, regions, 4 * classes)
    corners = 50 * torch.rand(images, regions, 2)
    rois, valid = torch.cat((corners, corners + 40), dim=2), torch.ones(images, regions, dtype=torch.bool)
    padded = torch.cat((deltas, torch.zeros(images, regions, 4)), dim=2)[:, :, : 4 * classes]
    results = [roi_heads.detect(logits, given, rois, valid, torch.full((images, 2), 100)) for given in (deltas, padded)]
    assert all(map(torch.equal, *results))


def gradients(module: MaskRcnn, batch: Batch) -> dict[str, torch.Tensor]:
    module.zero_grad()
    torch.manual_seed(1)
    module.training_step(batch, 0).backward()
    return {name: parameter.grad.clone() for name, parameter in module.named_parameters() if parameter.grad is not None}


def test_an_image_that_fills_up_the_batch_changes_nothing(
    module: MaskRcnn, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    module.eval()  # batch normalisation looks at all images of a batch
    monkeypatch.setattr(rpn, "NUM_SAMPLES", 10**6)
    monkeypatch.setattr(roi_heads, "POSITIVE_SHARE", 1.0)
    monkeypatch.setattr(module, "num_regions", 10**6)
    filled = {**batch, "weights": torch.tensor([1.0, 0.0])}
    other = {**filled, "images": filled["images"].clone(), "boxes": filled["boxes"].clone()}
    other["images"][1] = 255 - other["images"][1]
    other["boxes"][1] *= 0.5
    first, second = gradients(module, filled), gradients(module, other)
    assert first.keys() == {name for name, parameter in module.named_parameters() if parameter.requires_grad}
    for name, gradient in first.items():
        torch.testing.assert_close(gradient, second[name], rtol=1e-4, atol=1e-6, msg=name)


def test_images_without_objects_train_on_background_alone(module: MaskRcnn, batch: Batch) -> None:
    empty = {**batch, "labels": torch.zeros_like(batch["labels"]), "boxes": torch.zeros_like(batch["boxes"])}
    losses = {name: float(loss.detach()) for name, loss in module.losses(empty).items()}
    assert 0 < losses["objectness"] < float("inf")
    assert 0 < losses["classification"] < float("inf")
    assert losses["box"] == losses["rpn_box"] == losses["mask"] == 0


def test_what_only_graphs_need_is_left_out_without_them(
    module: MaskRcnn, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It loads the compiler, which takes seconds."""

    def load() -> None:
        raise AssertionError("the compiler is loaded")

    monkeypatch.setattr(torch.compiler, "cudagraph_mark_step_begin", load)
    module.train().training_step(batch, 0)
    with torch.no_grad():
        module.eval().validation_step(batch, 0)
    module._detections.clear()


@pytest.mark.slow
def test_every_canvas_may_be_compiled() -> None:
    """PyTorch gives up after eight, and leaves further ones as they are; nothing is compiled before the first step."""
    num_compiled = 0

    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        nonlocal num_compiled
        num_compiled += 1
        return graph.forward

    def double(tensor: torch.Tensor) -> torch.Tensor:
        return tensor * 2

    config = torch._dynamo.config
    limit = "recompile_limit" if hasattr(config, "recompile_limit") else "cache_size_limit"  # the second before 2.7
    with config.patch({limit: 8}):
        MaskRcnn(SyntheticDetection(size=4, num_classes=CLASSES), **OPTIONS).compile_hot_path()
        function = torch.compile(double, backend=backend, dynamic=False)
        for size in range(2, 14):
            function(torch.ones(size))
    torch._dynamo.reset()
    assert num_compiled == 12


@pytest.mark.slow
def test_a_few_steps_lower_the_loss(batch: Batch) -> None:
    torch.manual_seed(0)
    data = SyntheticDetection(size=4, num_classes=CLASSES)
    module = MaskRcnn(data, **{**OPTIONS, "learning_rate": 0.001})
    optimizer = module.configure_optimizers()
    losses = []
    for _ in range(6):
        optimizer.zero_grad()
        loss = module.training_step(batch, 0)
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < 0.8 * losses[0]


def test_parameters_are_torchvisions() -> None:
    net = build_network(90, "resnet50", 256, None)
    assert sum(parameter.numel() for parameter in net.parameters()) == 44_454_513


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ({"backbone": "vgg"}, "model.hparams.backbone=vgg: no such network. Allowed: resnet18, resnet34, resnet50"),
        ({"min_size": 0}, "model.hparams.min_size=0"),
        ({"min_size": 300}, "model.hparams.max_size=128: must be min_size=300 or more"),
        ({"decay_epochs": [3, 2]}, "model.hparams.decay_epochs"),
        ({"epochs": 0}, "model.hparams.epochs=0"),
        ({"momentum": -1}, "model.hparams.momentum=-1: must be from 0 to below 1"),
        ({"momentum": 1.5}, "model.hparams.momentum=1.5: must be from 0 to below 1"),
        ({"pretrained": "no/such/file"}, "model.hparams.pretrained=no/such/file"),
    ],
    ids=str,
)
def test_wrong_options_are_named(option: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words.replace(".", r"\.")):
        MaskRcnn(SyntheticDetection(), **{**OPTIONS, **option})


def test_weights_of_another_network_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "weights.pt"
    torch.save({"conv1.weight": torch.zeros(64, 3, 7, 7)}, file)
    with pytest.raises(ConfigError, match="weights of another network"):
        MaskRcnn(SyntheticDetection(), **{**OPTIONS, "pretrained": str(file)})
