"""SSD300: its size, loss, detections and options, and that it learns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torchvision.models import resnet18, resnet34

from conf.schema import ConfigError
from trainers.boxes import encode
from trainers.ssd import Ssd, forward_loss, hard_negatives, multibox_loss
from trainers.ssd_boxes import CODING, MAP_SIZES, default_boxes, match
from trainers.ssd_network import BACKBONES, Ssd300, build_backbone
from trainers.workload import Batch

DEFAULTS = default_boxes()
NUM_CLASSES = 3  # colours
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Batches this small gain little from a second thread, which spins, and costs most where cores are shared."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


class Recorder:
    """Stands for DetectionEvaluator: keeps what it is given."""

    def __init__(self) -> None:
        self.added: list[tuple[np.ndarray, ...]] = []

    def add(self, *columns: np.ndarray) -> None:
        self.added.append(columns)

    def compute(self) -> dict[str, float]:
        return {"box_map": 0.25, "box_map_50": 0.5}


def ssd(recorder: Recorder | None = None, **options: Any) -> Ssd:
    torch.manual_seed(1)
    data: Any = SimpleNamespace(num_classes=NUM_CLASSES, view=None, evaluator=lambda iou_types: recorder)
    small = {"epochs": 2, "decay_epochs": [1], "backbone": "resnet18", "width": 0.125}
    return Ssd(data, **{"learning_rate": 1e-3, "weight_decay": 0.0, **small, **options})


def made_batch(num_images: int = 2) -> Batch:
    """Noise, on which each object is a rectangle of its class's colour."""
    rng = np.random.RandomState(3)
    images = rng.randint(100, 130, (num_images, 3, 300, 300)).astype(np.uint8)
    corners = np.array([[20, 30], [160, 140]]) + rng.randint(0, 40, (num_images, 2, 2))
    boxes = np.concatenate((corners, corners + rng.randint(40, 90, (num_images, 2, 2))), axis=2)
    labels = rng.randint(1, NUM_CLASSES + 1, (num_images, 2))
    for image in range(num_images):
        for (x0, y0, x1, y1), label in zip(boxes[image], labels[image], strict=True):
            images[image, label - 1, y0:y1, x0:x1] = 255
    padding = ((0, 0), (0, 3))
    return {
        "images": torch.from_numpy(images).contiguous(memory_format=torch.channels_last),
        "boxes": torch.from_numpy(np.pad(boxes, (*padding, (0, 0))).astype(np.float32)),
        "labels": torch.from_numpy(np.pad(labels, padding)),
        "sizes": torch.full((num_images, 2), 300.0),
        "weights": torch.full((num_images,), 1 / num_images),
        "image_index": torch.arange(num_images),
        "crops": torch.tensor([0.0, 0.0, 640.0, 480.0]).repeat(num_images, 1),
        "num_samples": num_images,
    }


# By hand. ResNet-34: stem 9,408 + 128; stages 221,952, 1,116,416 and 6,822,400: 8,170,304. Extras, with biases:
# 65,792 + 1,180,160; 131,328 + 1,180,160; 65,664 + 295,168; twice 32,896 + 295,168: 3,574,400. Heads: channels times
# boxes a cell are 1,024 + 3,072 + 3,072 + 1,536 + 1,024 + 1,024 = 10,752, each with 9 * (4 + 81) weights, and
# 30 * 85 biases: 8,227,830.
def test_number_of_parameters_and_of_outputs() -> None:
    with torch.device("meta"):
        network = Ssd300(80)
        deltas, logits = network(torch.empty(2, 3, 300, 300, dtype=torch.uint8), torch.empty(4, 2))
    assert sum(parameter.numel() for parameter in network.parameters()) == 19_972_534
    assert (deltas.shape, logits.shape) == ((2, 8732, 4), (2, 8732, 81))


def test_sizes_of_the_maps() -> None:
    network = Ssd300(NUM_CLASSES, "resnet18", width=0.125)
    maps = [network.backbone(torch.zeros(1, 3, 300, 300))]
    for extra in network.extras:
        maps.append(extra(maps[-1]))
    assert [tuple(one.shape[2:]) for one in maps] == [(size, size) for size in MAP_SIZES]


def test_a_default_box_is_answered_for_by_the_cell_that_it_lies_on() -> None:
    network = Ssd300(NUM_CLASSES, "resnet18", width=0.125).eval()
    head = network.heads[1]
    features = torch.zeros(1, head.conv.in_channels, 19, 19)
    features[0, :, 5, 11] = 1  # row, column
    with torch.no_grad():
        changed = (head(features)[1] != head(torch.zeros_like(features))[1]).any(dim=2)[0]
    centres = (DEFAULTS[:, :2] + DEFAULTS[:, 2:])[5776 : 5776 + 6 * 19 * 19] / 2
    near = ((centres - torch.tensor([11.5, 5.5]) * 16).abs() <= 16).all(dim=1)  # the convolution is 3x3
    assert changed.tolist() == near.tolist()


def test_the_backbone_is_torchvisions_with_a_stride_less() -> None:
    torch.manual_seed(1)
    whole = resnet18().eval()
    whole.layer3[0].conv1.stride = whole.layer3[0].downsample[0].stride = (1, 1)
    own = build_backbone(BACKBONES["resnet18"], 1.0).eval()
    own.load_state_dict({name: tensor for name, tensor in whole.state_dict().items() if name in own.state_dict()})
    images = torch.randn(1, 3, 64, 64)
    with torch.no_grad():
        expected = whole.maxpool(whole.relu(whole.bn1(whole.conv1(images))))
        for stage in (whole.layer1, whole.layer2, whole.layer3):
            expected = stage(expected)
        torch.testing.assert_close(own(images), expected)


def loss_plainly(
    deltas: torch.Tensor, logits: torch.Tensor, boxes: torch.Tensor, labels: torch.Tensor
) -> list[torch.Tensor]:
    """Image by image, negatives by their ranks, as the reference does it."""
    losses = []
    for image in range(len(deltas)):
        matched = labels[image] > 0
        num = int(matched.sum())
        if not num:
            losses.append(deltas[image].sum() * 0)
            continue
        wanted = encode(boxes[image, matched], DEFAULTS[matched], CODING)
        place = F.smooth_l1_loss(deltas[image, matched], wanted, reduction="sum")
        errors = F.cross_entropy(logits[image], labels[image], reduction="none")
        hardest = errors[~matched].sort(descending=True).values[: 3 * num]
        losses.append((place + errors[matched].sum() + hardest.sum()) / num)
    return losses


def test_loss_and_gradients_are_those_of_the_rule_written_plainly() -> None:
    torch.manual_seed(2)
    batch = made_batch(3)
    batch["labels"][1] = 0  # an image without objects
    boxes, labels = match(DEFAULTS, batch["boxes"], batch["labels"])
    assert (labels > 0).sum(dim=1).tolist()[1] == 0
    deltas = torch.randn(3, 8732, 4, requires_grad=True)
    logits = torch.randn(3, 8732, NUM_CLASSES + 1, requires_grad=True)
    weights = torch.tensor([0.5, 0.3, 0.2])
    expected = torch.stack(loss_plainly(deltas, logits, boxes, labels))
    losses = multibox_loss(deltas, logits, DEFAULTS, boxes, labels)
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-5)
    for found, wanted in zip(
        torch.autograd.grad((losses * weights).sum(), (deltas, logits)),
        torch.autograd.grad((expected * weights).sum(), (deltas, logits)),
        strict=True,
    ):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_negatives_that_tie_for_the_end_share_what_is_left() -> None:
    errors = torch.tensor([[9.0, 5.0, 2.0, 2.0, 2.0, 2.0, 1.0, 0.5]])
    matched = torch.tensor([[True] + [False] * 7])  # three negatives: the 5, and two of four times 2
    assert hard_negatives(errors, matched).tolist() == [[0, 1, 0.5, 0.5, 0.5, 0.5, 0, 0]]
    all_but_one = torch.tensor([[True] * 7 + [False]])  # nine are wanted, one is there
    assert hard_negatives(errors, all_but_one).tolist() == [[0] * 7 + [1]]


def test_filler_has_no_influence() -> None:
    net = ssd().net.eval()  # batch statistics are those of all images; running ones are nobody's
    batch, draws = made_batch(3), torch.rand(4, 3)
    batch["weights"] = torch.tensor([0.5, 0.5, 0.0])

    def run(changed: dict[str, torch.Tensor], num: int) -> list[torch.Tensor]:
        inputs = {**batch, **changed}
        tensors = [inputs[key][:num] for key in ("images", "boxes", "labels", "weights")]
        loss = forward_loss(net, tensors[0], draws[:, :num], *tensors[1:])
        return [loss, *torch.autograd.grad(loss, list(net.parameters()))]

    real_only = run({}, 2)
    assert real_only[0] > 0
    black = {key: batch[key].index_fill(0, torch.tensor([2]), 0) for key in ("images", "labels")}
    for changed in ({}, black):
        for found, expected in zip(run(changed, 3), real_only, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-5)


def test_it_learns() -> None:
    module, batch = ssd(), made_batch(3)
    optimizer = torch.optim.SGD(module.parameters(), lr=5e-3, momentum=0.9)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        loss = module.training_step(batch, 0)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert np.mean(losses[-3:]) < 0.6 * losses[0]


def test_nothing_between_the_images_and_the_loss_keeps_them_from_being_compiled_as_one() -> None:
    module, batch = ssd(), made_batch(2)
    inputs = (batch["images"], torch.rand(4, 2), batch["boxes"], batch["labels"], batch["weights"])
    module.net.eval()
    with torch.no_grad():
        whole = torch.compile(forward_loss, fullgraph=True, dynamic=False, backend="eager")
        torch.testing.assert_close(whole(module.net, *inputs), forward_loss(module.net, *inputs))


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
    batch["labels"][1, 0] = 0  # as padding between objects
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
    found = [(int(i), int(label), *box.tolist()) for i, label, box in zip(index, labels, boxes, strict=True)]
    np.testing.assert_allclose(sorted(found), sorted(expected), atol=0.05)
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


def test_the_rate_follows_the_schedule() -> None:
    module = ssd(epochs=3, decay_epochs=[2], warmup_steps=1, learning_rate=0.1)
    optimizer = module.configure_optimizers()
    assert isinstance(optimizer, torch.optim.SGD)
    trainer: Any = SimpleNamespace(num_training_batches=2, current_epoch=0, optimizers=[optimizer])
    module.__dict__["_trainer"] = trainer
    rates = []
    for epoch in range(3):
        trainer.current_epoch = epoch
        for step in range(2):
            module.on_train_batch_start({}, step)
            rates.append(optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([0.05, 0.1, 0.1, 0.1, 0.01, 0.01])
    assert module.max_epochs == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backbone": "resnet50"}, r"backbone=resnet50: allowed: resnet18, resnet34"),
        ({"width": 0}, r"width=0: "),
        ({"width": "half"}, r"width=half: "),
        ({"momentum": 1.0}, r"momentum=1\.0: "),
        ({"epochs": 0}, r"epochs=0: "),
        ({"warmup_steps": -1}, r"warmup_steps=-1: "),
        ({"decay_epochs": [2, 1]}, r"decay_epochs=\[2, 1\]: "),
        ({"pretrained": "weights.pth"}, r"pretrained=weights\.pth: .*width=1, not 0\.125"),
        ({"pretrained": "/nowhere/weights.pth", "width": 1}, r"pretrained=/nowhere/weights\.pth: cannot be read"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"model\.hparams\.{message}"):
        ssd(**options)


def test_pretrained_weights_are_torchvisions(tmp_path: Path) -> None:
    path = tmp_path / "resnet18.pth"
    state = {name: torch.full_like(tensor, 2) for name, tensor in resnet18().state_dict().items()}
    del state["bn1.num_batches_tracked"]  # which older files lack
    torch.save(state, path)
    module = ssd(pretrained=str(path), width=1)
    loaded = module.net.backbone.state_dict()
    assert all((tensor == 2).all() for name, tensor in loaded.items() if name != "bn1.num_batches_tracked")
    assert not any((parameter == 2).all() for parameter in module.net.heads.parameters())
    with torch.device("meta"):
        own = build_backbone(BACKBONES["resnet34"], 1.0).state_dict()
        theirs = resnet34().state_dict()
    assert {name: tensor.shape for name, tensor in own.items()}.items() <= {
        name: tensor.shape for name, tensor in theirs.items()
    }.items()


def test_files_that_hold_something_else_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"

    def refused(message: str) -> None:
        with pytest.raises(ConfigError, match=rf"model\.hparams\.pretrained=.*weights\.pth: {message}"):
            ssd(pretrained=str(path), width=1)

    path.write_bytes(b"no weights")
    refused("cannot be read")
    own = build_backbone(BACKBONES["resnet18"], 1.0).state_dict()
    torch.save({name: tensor for name, tensor in own.items() if name != "layer3.1.conv2.weight"}, path)
    refused(r".*another network: layer3\.1\.conv2\.weight \(1 in all\)")
    torch.save(own | {"conv1.weight": torch.zeros(64, 1, 7, 7)}, path)
    refused(r".*another network: conv1\.weight \(1 in all\)")


@pytest.mark.gpu
@needs_gpu
@pytest.mark.filterwarnings("ignore:(?s).*Online softmax is disabled:UserWarning")  # what the compiler does is its own
@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")  # PyTorch's own, when it sets its graphs up
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_compiled_on_a_gpu_it_is_what_it_is_on_the_cpu() -> None:
    recorder = Recorder()
    module, batch = ssd(recorder), made_batch(2)
    module.net.eval()
    tensors = {name: value for name, value in batch.items() if isinstance(value, torch.Tensor)}
    inputs = [batch["images"], torch.rand(4, 2), batch["boxes"], batch["labels"], batch["weights"]]
    expected = forward_loss(module.net, *inputs)
    module.validation_step(batch, 0)
    module.to("cuda")
    module.compile_hot_path()
    for _ in range(3):  # the third replays the graph
        loss = module._forward_loss(module.net, *(tensor.cuda() for tensor in inputs))
        loss.backward()
    torch.testing.assert_close(loss.cpu(), expected, rtol=2e-2, atol=1e-2)
    with torch.no_grad():
        for _ in range(3):
            module.validation_step({name: tensor.cuda() for name, tensor in tensors.items()}, 0)
    (on_cpu, _), *on_gpu = module._found
    for found, _ in on_gpu:  # also those that later replays must have left alone
        torch.testing.assert_close(found[..., 4].cpu(), on_cpu[..., 4], rtol=2e-2, atol=1e-2)
