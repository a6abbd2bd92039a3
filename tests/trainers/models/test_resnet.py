"""The ResNet workload: its size, schedule, loss and metrics, its options, and that it learns."""

import logging
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import torchvision
import yaml
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from conf.schema import ConfigError
from tests.trainers import synchronization
from trainers.data.crop import SquareView
from trainers.data.synthetic_images import SyntheticImages, synthetic
from trainers.models.resnet import WORKLOAD, Classifier, ResNet, evaluate, training_loss
from trainers.ops.stem import NormReluPool, SpaceToDepthConv
from trainers.workload import Batch, Shard, bind, viewed

CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")
CONF = Path(__file__).parents[3] / "conf"


def resnet(data: SyntheticImages | None = None, **options: Any) -> ResNet:
    torch.manual_seed(1)
    given = {"epochs": 4, "image_size": 32, "eval_resize": 36, "depth": 18} | options
    return ResNet(data or synthetic(10, num_classes=7), learning_rate=0.1, weight_decay=5e-5, **given)


# torchvision's own figures, of https://pytorch.org/vision/stable/models.html
@pytest.mark.parametrize(("depth", "num_parameters"), [(18, 11_689_512), (34, 21_797_672), (50, 25_557_032)])
def test_number_of_parameters(depth: int, num_parameters: int) -> None:
    with torch.device("meta"):
        network = Classifier(depth, 1000, zero_init_gamma=True)
        assert network(torch.empty(2, 3, 224, 224, dtype=torch.uint8)).shape == (2, 1000)
    assert sum(parameter.numel() for parameter in network.parameters()) == num_parameters


@pytest.mark.parametrize("depth", [18, 34, 50])
def test_the_counted_flops_are_the_published_ones(depth: int) -> None:
    """torchvision's count is of multiply-adds, in units of 1e9, to three digits behind the point."""
    weights = torchvision.models.get_model_weights(f"resnet{depth}").IMAGENET1K_V1
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        Classifier(depth, 1000, zero_init_gamma=True)(torch.empty(1, 3, 224, 224, dtype=torch.uint8))
    assert counter.get_total_flops() / 2e9 == pytest.approx(weights.meta["_ops"], abs=5e-4)


def test_it_is_version_1_5() -> None:
    with torch.device("meta"):
        block = Classifier(50, 10, zero_init_gamma=False).resnet.layer2[0]
    assert (block.conv1.stride, block.conv2.stride) == ((1, 1), (2, 2))


def test_images_are_normalised_as_torchvision_s_weights_expect() -> None:
    torch.manual_seed(0)
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)
    network = Classifier(18, 5, zero_init_gamma=False).eval()
    preset = torchvision.transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    with torch.no_grad():
        torch.testing.assert_close(network(images), network.resnet(preset(images / 255)), rtol=1e-4, atol=1e-5)


def test_every_residual_branch_can_start_at_zero() -> None:
    last = "layer1.1.bn2.weight"
    assert not resnet(zero_init_gamma=True).net.resnet.state_dict()[last].any()
    assert resnet().net.resnet.state_dict()[last].all()


def test_the_rate_rises_and_falls_along_a_half_cosine() -> None:
    module = resnet(epochs=10, warmup_epochs=2)
    rates = [module.schedule.at(epoch) for epoch in (0, 0.5, 1, 2, 4, 6, 10, 11)]
    quarter = (1 + math.cos(math.pi / 4)) / 2
    assert rates == pytest.approx([0, 0.025, 0.05, 0.1, 0.1 * quarter, 0.05, 0, 0])
    steps = resnet(epochs=10, warmup_epochs=1, decay_epochs=[3, 6.5])
    assert [steps.schedule.at(epoch) for epoch in (0.5, 1, 2.9, 3, 6.4, 6.5, 9)] == pytest.approx(
        [0.05, 0.1, 0.1, 0.01, 0.01, 0.001, 0.001]
    )


def test_each_step_has_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    module = resnet(epochs=2, warmup_epochs=1)
    optimizer = module.configure_optimizers()
    rates = []
    for epoch in range(2):
        trainer = type("Trainer", (), {"num_training_batches": 2, "optimizers": [optimizer], "current_epoch": epoch})()
        module.trainer = trainer
        for index in range(2):
            module.on_train_batch_start({}, index)
            assert len({group["lr"] for group in optimizer.param_groups}) == 1
            rates.append(optimizer.param_groups[0]["lr"])
    quarter = math.cos(math.pi / 4)
    assert rates == pytest.approx([0.025, 0.075, 0.05 * (1 + quarter), 0.05 * (1 - quarter)])


def test_weight_decay_spares_batch_normalisation_and_biases() -> None:
    module = resnet()
    decayed, spared = module.configure_optimizers().param_groups
    assert (decayed["weight_decay"], spared["weight_decay"]) == (5e-5, 0.0)
    kinds = {parameter: type(layer) for layer in module.modules() for parameter in layer.parameters(recurse=False)}
    assert {kinds[parameter] for parameter in decayed["params"]} == {SpaceToDepthConv, nn.Conv2d, nn.Linear}
    assert {kinds[parameter] for parameter in spared["params"]} == {NormReluPool, nn.BatchNorm2d, nn.Linear}
    assert [parameter.shape for parameter in spared["params"] if kinds[parameter] is nn.Linear] == [(7,)]
    assert len(decayed["params"]) + len(spared["params"]) == len(list(module.parameters()))


def test_the_module_says_how_it_wants_its_images() -> None:
    data = synthetic(10, num_classes=7)
    module = resnet(data, image_size=64, eval_resize=80, min_crop_area=0.5)
    assert module.view == SquareView(image_size=64, eval_resize=80, min_crop_area=0.5)
    assert viewed(data, module).example_batches(2, CPU)[0]["images"].shape == (2, 3, 64, 64)
    assert data.image_size == (224, 224)  # what was given is left as it was


@pytest.mark.parametrize("label_smoothing", [0.0, 0.1])
def test_filler_has_no_part_in_the_loss(label_smoothing: float) -> None:
    module = resnet(label_smoothing=label_smoothing).eval()  # batch statistics would see the filler
    (batch,) = synthetic(10, num_classes=7).example_batches(4, CPU)
    images, labels = batch["images"], batch["labels"]
    loss = training_loss(module.net, images, labels, torch.tensor([0.5, 0.5, 0, 0]), label_smoothing)
    logits = module.net(images[:2])
    smooth = F.one_hot(labels[:2], 7) * (1 - label_smoothing) + label_smoothing / 7
    torch.testing.assert_close(loss, -(smooth * logits.log_softmax(dim=1)).sum(dim=1).mean())
    batch["weights"] = torch.tensor([0.5, 0.5, 0, 0])
    torch.testing.assert_close(module.training_step(batch, 0), loss)


class Fixed(nn.Module):
    """Gives the logits that it is told, whatever it sees."""

    def __init__(self, logits: torch.Tensor) -> None:
        super().__init__()
        self.logits = logits

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.logits


def test_evaluation_counts_what_is_first_and_what_is_among_the_first_five() -> None:
    logits = torch.arange(7.0).flip(0).expand(6, 7)
    labels = torch.tensor([0, 1, 4, 5, 0, 0])
    weights = torch.tensor([1.0, 1, 1, 1, 1, 0])
    losses = F.cross_entropy(logits, labels, reduction="none")
    with torch.autocast("cpu", torch.bfloat16):
        sums = evaluate(Fixed(logits), torch.empty(0), labels, weights)
    torch.testing.assert_close(sums, torch.tensor([5.0, 2, 4, losses[:5].sum()]))


def test_metrics_do_not_depend_on_how_the_batches_are_cut() -> None:
    data = synthetic(10, num_classes=7).viewed(SquareView(32))
    module = resnet(data).eval()
    (batch,) = data.example_batches(10, CPU)
    with torch.no_grad():
        logits = module.net(batch["images"])
    expected = {
        "accuracy": (logits.argmax(dim=1) == batch["labels"]).double().mean().item(),
        "accuracy_top5": (logits.topk(5).indices == batch["labels"][:, None]).any(dim=1).double().mean().item(),
        "loss": F.cross_entropy(logits, batch["labels"]).item(),
    }
    assert 0 < expected["accuracy_top5"] < 1
    for size in (10, 4):
        for first in range(0, 10, size):
            # The last batch is filled up.
            places = torch.arange(first, first + size)
            part: Batch = {key: batch[key][places.clamp(max=9)] for key in ("images", "labels")}
            with torch.inference_mode():  # Lightning's evaluation loop may do so.
                module.validation_step(part | {"weights": (places < 10) / 3}, 0)
        assert module.metrics() == pytest.approx(expected, rel=1e-5)
    with pytest.raises(AssertionError, match="nothing was evaluated"):
        module.metrics()


def test_fewer_than_five_classes() -> None:
    counts = evaluate(Fixed(torch.eye(3)), torch.empty(0), torch.tensor([0, 1, 0]), torch.ones(3))
    assert counts[:3].tolist() == [3, 2, 3]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs=0: must be a whole number"),
        ({"epochs": 1.5}, "epochs=1.5: must be a whole number"),
        ({"warmup_epochs": 4}, "warmup_epochs=4: must be from 0 to below epochs=4"),
        ({"warmup_epochs": -1}, "warmup_epochs=-1"),
        ({"decay_epochs": [3, 2]}, r"decay_epochs=\[3, 2\]: must be ascending"),
        ({"decay_epochs": [1], "warmup_epochs": 2}, r"decay_epochs=\[1\]: .*warmup_epochs=2"),
        ({"momentum": 1.0}, "momentum=1.0: must be from 0"),
        ({"label_smoothing": -0.1}, "label_smoothing=-0.1: must be from 0"),
        ({"label_smoothing": "much"}, "label_smoothing=much: must be from 0"),
        ({"warmup_epochs": "two"}, "warmup_epochs=two: must be from 0 to below epochs=4"),
        ({"decay_epochs": ["x", 2]}, r"decay_epochs=\['x', 2\]: must be ascending"),
        ({"image_size": "32"}, "image_size=32: must be 32 pixels or more"),
        ({"min_crop_area": "x"}, "min_crop_area=x: must be a share"),
        ({"image_size": 31}, "image_size=31: must be 32 pixels or more"),
        ({"eval_resize": 31}, "eval_resize=31: must be image_size=32"),
        ({"min_crop_area": 0.0}, "min_crop_area=0.0: must be a share"),
        ({"depth": 101}, "depth=101: must be 18 or 34 or 50"),
    ],
)
def test_options_that_cannot_be_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=rf"model\.hparams\.{message}"):
        resnet(**options)


def save(tmp_path: Path, state: Any) -> str:
    torch.save(state, tmp_path / "weights.pth")
    return str(tmp_path / "weights.pth")


def test_weights_of_torchvision_are_loaded(tmp_path: Path) -> None:
    torch.manual_seed(5)
    state = torchvision.models.resnet18(weights=None, num_classes=7).state_dict()
    module = resnet(pretrained=save(tmp_path, state))
    for name, value in module.net.resnet.state_dict().items():
        assert torch.equal(value, state[name])
    # Old files hold no counters of batches.
    old = {name: value for name, value in state.items() if not name.endswith("num_batches_tracked")}
    assert torch.equal(resnet(pretrained=save(tmp_path, old)).net.resnet.fc.weight, state["fc.weight"])


def test_a_layer_for_other_classes_stays_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    state = torchvision.models.resnet18(weights=None).state_dict()
    with caplog.at_level(logging.WARNING):
        module = resnet(pretrained=save(tmp_path, state))
    assert "layer fc is not loaded" in caplog.text
    own = module.net.resnet.state_dict()
    assert own["fc.weight"].shape == (7, 512)
    assert all(torch.equal(own[name], state[name]) for name in own if not name.startswith("fc."))


def test_weights_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    def refused(path: str, message: str) -> None:
        with pytest.raises(ConfigError, match=rf"model\.hparams\.pretrained={path}: .*{message}"):
            resnet(pretrained=path)

    numbered = {0: torch.zeros(3), "fc.weight": torch.zeros(3), (1, 2): torch.zeros(3)}
    refused(save(tmp_path, numbered), r"the key 0 is not a parameter's name \(2 such in all\)")
    state = torchvision.models.resnet18(weights=None).state_dict()
    refused(str(tmp_path / "nowhere.pth"), "No such file")
    refused(save(tmp_path, {"model": state}), "is not a plain state dict")
    wrapped = {f"module.{name}": value for name, value in state.items()}
    refused(save(tmp_path, wrapped), r"missing: bn1\.bias.*\(100 in all\).*unknown: module\.bn1\.bias.*\(122 in all\)")
    refused(save(tmp_path, torchvision.models.resnet34(weights=None).state_dict()), r"unknown: layer1\.2\.bn1\.bias")
    refused(save(tmp_path, state | {"conv1.weight": torch.zeros(1)}), r"of another shape: conv1\.weight \(1 in all\)")
    (tmp_path / "text.pth").write_text("no weights")
    refused(str(tmp_path / "text.pth"), "cannot be read")


@pytest.mark.slow
def test_learns_a_batch_by_heart() -> None:
    data = synthetic(8, num_classes=7).viewed(SquareView(32))
    module = resnet(data, zero_init_gamma=True)
    (batch,) = data.example_batches(8, CPU)
    optimizer = module.configure_optimizers()
    for group in optimizer.param_groups:
        group["lr"] = 0.01
    losses = []
    for index in range(8):
        optimizer.zero_grad()
        loss = module.training_step(batch, index)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 3


@pytest.mark.parametrize("recipe", [None, *sorted((CONF / "recipe").glob("resnet50_*.yaml"))])
def test_recipes_fit_the_module(recipe: Path | None) -> None:
    model = yaml.safe_load((CONF / "model" / "resnet50.yaml").read_text(encoding="utf-8"))
    hparams, optimizer = model["hparams"], model["optimizer"]
    if recipe is not None:
        own = yaml.safe_load(recipe.read_text(encoding="utf-8"))["model"]
        assert recipe.stem.removeprefix("resnet50_") in {*model["targets"], "cpu"}
        assert set(own) <= {*model, "by_gpus"}
        hparams, optimizer = hparams | own.get("hparams", {}), optimizer | own.get("optimizer", {})
    assert set(model["targets"]) == set(WORKLOAD.data)
    with torch.device("meta"):
        module = bind(
            WORKLOAD.module,
            "model.hparams",
            data=synthetic(10, num_classes=7),
            learning_rate=optimizer["lr"],
            weight_decay=optimizer["weight_decay"],
            **hparams,
        )
    assert module.max_epochs == hparams["epochs"]
    assert module.ends_at_zero == (module.schedule.at(module.max_epochs) == 0)


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_never_waits_for_the_gpu(compiled: bool) -> None:
    device = torch.device("cuda")
    data = synthetic(64).viewed(SquareView(64))
    module = resnet(data, depth=50, image_size=64, eval_resize=64, label_smoothing=0.1, warmup_epochs=1).to(device)
    if compiled:
        module.compile_hot_path()
    batches = list(data.train_loader(16, 1, Shard(0, 1, device)))
    optimizer = module.configure_optimizers()

    def step(index: int) -> None:
        for group in optimizer.param_groups:
            group["lr"] = module.schedule.at(index / 10)
        with torch.autocast("cuda", torch.bfloat16):
            module.train().training_step(batches[index], index).backward()
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                module.eval().validation_step(batches[index], index)

    for index in range(len(batches)):  # compiles, allocates
        step(index)
    with synchronization.refused():
        for index in range(len(batches)):
            step(index)
    metrics = module.metrics()
    assert 0 <= metrics["accuracy"] <= metrics["accuracy_top5"] <= 1
    assert np.isfinite(metrics["loss"])
