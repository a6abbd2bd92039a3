"""SSD300: its size, its loss, that it learns, and that it is the same compiled on a GPU."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.flop_counter import FlopCounterMode
from torchvision.models import resnet18

from tests.trainers.small_ssd import DEFAULTS, NUM_CLASSES, Recorder, made_batch, ssd
from trainers.models.ssd.default_boxes import CODING, MAP_SIZES, match
from trainers.models.ssd.module import forward_loss, hard_negatives, multibox_loss
from trainers.models.ssd.network import BACKBONES, Ssd300, build_backbone
from trainers.ops.boxes import encode

pytestmark = pytest.mark.usefixtures("one_thread")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


# By hand. ResNet-34: stem 9,408 + 128; stages 221,952, 1,116,416 and 6,822,400: 8,170,304. Extras, with biases:
# 65,792 + 1,180,160; 131,328 + 1,180,160; 65,664 + 295,168; twice 32,896 + 295,168: 3,574,400. Heads: channels times
# boxes a cell are 1,024 + 3,072 + 3,072 + 1,536 + 1,024 + 1,024 = 10,752, each with 9 * (4 + 81) weights, and
# 30 * 85 biases: 8,227,830.
def test_number_of_parameters_and_of_outputs() -> None:
    with torch.device("meta"):
        network = Ssd300(80)
        deltas, logits = network(torch.empty(2, 3, 300, 300, dtype=torch.uint8))
    assert sum(parameter.numel() for parameter in network.parameters()) == 19_972_534
    assert (deltas.shape, logits.shape) == ((2, 8732, 4), (2, 8732, 81))


def test_the_counted_flops_are_those_of_the_layers() -> None:
    """Two for each multiply-add. By hand the heads', of cells * boxes a cell: 38 * 38 * 4, 19 * 19 * 6 and so on, each
    with 9 * 85 weights a channel; they compute a few logits that nobody reads, so as to fill a matrix unit."""
    layers: list[int] = []
    with torch.device("meta"):
        network = Ssd300(80)
        for layer in [*network.backbone.modules(), *network.extras.modules()]:
            if isinstance(layer, nn.Conv2d):
                taps = layer.in_channels * layer.kernel_size[0] * layer.kernel_size[1]
                layer.register_forward_hook(lambda _, __, output, taps=taps: layers.append(output.numel() * taps))
        with FlopCounterMode(display=False) as counter:
            network(torch.empty(1, 3, 300, 300, dtype=torch.uint8))
    cells = 5776 * 256 + 2166 * 512 + 600 * 512 + 150 * 256 + 36 * 256 + 4 * 256
    by_hand = 2 * (sum(layers) + cells * 9 * 85)
    assert by_hand <= counter.get_total_flops() < 1.002 * by_hand


def test_sizes_of_the_maps() -> None:
    network = Ssd300(NUM_CLASSES, "resnet18", width=0.125)
    maps = [network.backbone(torch.zeros(1, 3, 300, 300))]
    for extra in network.extras:
        maps.append(extra(maps[-1]))
    assert [tuple(features.shape[2:]) for features in maps] == [(size, size) for size in MAP_SIZES]


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
    parts = [5776, 8732 - 5776]  # of two maps
    losses = multibox_loss(deltas.split(parts, 1), logits.split(parts, 1), DEFAULTS, boxes, labels)
    torch.testing.assert_close(losses, expected, rtol=1e-5, atol=1e-5)
    for gradient, wanted in zip(
        torch.autograd.grad((losses * weights).sum(), (deltas, logits)),
        torch.autograd.grad((expected * weights).sum(), (deltas, logits)),
        strict=True,
    ):
        torch.testing.assert_close(gradient, wanted, rtol=1e-5, atol=1e-6)


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
        for tensor, expected in zip(run(changed, 3), real_only, strict=True):
            torch.testing.assert_close(tensor, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.slow
def test_a_few_steps_lower_the_loss() -> None:
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


@pytest.mark.slow
def test_nothing_between_the_images_and_the_loss_keeps_them_from_being_compiled_as_one() -> None:
    module, batch = ssd(), made_batch(2)
    inputs = (batch["images"], torch.rand(4, 2), batch["boxes"], batch["labels"], batch["weights"])
    module.net.eval()
    with torch.no_grad():
        whole = torch.compile(forward_loss, fullgraph=True, dynamic=False, backend="eager")
        torch.testing.assert_close(whole(module.net, *inputs), forward_loss(module.net, *inputs))


@pytest.mark.gpu
@needs_gpu
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
        module.zero_grad()  # a step's gradients lie where the next step writes its own
        loss = module._forward_loss(module.net, *(tensor.cuda() for tensor in inputs))
        loss.backward()
    torch.testing.assert_close(loss.cpu(), expected, rtol=2e-2, atol=1e-2)
    with torch.no_grad():
        for _ in range(3):
            module.validation_step({name: tensor.cuda() for name, tensor in tensors.items()}, 0)
    (on_cpu, _), *on_gpu = module._detections
    for detections, _ in on_gpu:  # Later replays must have left these alone.
        torch.testing.assert_close(detections[..., 4].cpu(), on_cpu[..., 4], rtol=2e-2, atol=1e-2)
