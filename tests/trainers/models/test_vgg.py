"""The VGG workload: its size, schedule, loss and metrics, and that it learns."""

import csv
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist
import torch.nn.functional as F

from conf.schema import ConfigError
from tests.support.commands import HANGS_SEC
from tests.trainers import synchronization
from trainers.data.images import ImageData
from trainers.models.vgg import WORKLOAD, Vgg, build_network, forward_loss
from trainers.ops.batchnorm import average_running_statistics
from trainers.ops.confusion.matrix import ConfusionCounter, confusion_cells
from trainers.workload import Shard

CPU = torch.device("cpu")
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Batches this small gain little from a second thread, which spins, and costs most where cores are shared."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(num_threads)


def noise(num_train: int = 10, num_eval: int = 7, size: int = 8) -> ImageData:
    def read(source: str) -> tuple[np.ndarray, np.ndarray]:
        rng = np.random.default_rng(1)
        images = rng.integers(0, 256, (num_train + num_eval, size, size), np.uint8)
        return images, rng.integers(0, 10, num_train + num_eval)

    return ImageData("noise", 10, (size, size), tuple("0123456789"), num_train, num_eval, 0, read)


def vgg(data: ImageData | None = None, epochs: Any = (2, 1), augment_epochs: Any = 1) -> Vgg:
    torch.manual_seed(1)
    return Vgg(data or noise(), learning_rate=1e-3, weight_decay=0.0, epochs=epochs, augment_epochs=augment_epochs)


# By hand. Convolutions, without bias: 9 * (1*32 + 32*32 + 32*64 + 64*64 + 64*128 + 128*128 + 128*256 + 2 * 256*256)
# = 9 * 195,616 = 1,760,544. Batch normalisation: 2 * (2*32 + 2*64 + 2*128 + 3*256) = 2 * 1,216 = 2,432.
# Dense: features * 512 + 512, where 28x28 leaves 7*7*256 = 12,544 features (6,423,040) and 8x8 leaves 2*2*256 = 1,024
# (524,800); 512*512 + 512 = 262,656; 512*10 + 10 = 5,130.
@pytest.mark.parametrize(("size", "num_parameters"), [(28, 8_453_802), (8, 2_555_562)])
def test_number_of_parameters(size: int, num_parameters: int) -> None:
    with torch.device("meta"):
        network = build_network((size, size), 10)
        assert network(torch.empty(2, 1, size, size)).shape == (2, 10)
    assert sum(parameter.numel() for parameter in network.parameters()) == num_parameters


def test_the_rate_falls_and_augmentation_begins_at_the_epochs_that_were_asked_for() -> None:
    module = vgg(epochs=[2, 1], augment_epochs=2)
    assert module.max_epochs == 5
    assert [module.schedule.at(epoch) for epoch in range(6)] == [1e-3, 1e-3, 1e-4, 1e-4, 1e-4, 1e-4]
    assert [module.augments_at(epoch) for epoch in range(5)] == [False, False, False, True, True]


@pytest.mark.parametrize("epochs", [[], [-1], ["ten"], 10, [1.5], [True]])
def test_a_schedule_that_cannot_be_is_refused(epochs: Any) -> None:
    with pytest.raises(ConfigError, match=r"model\.hparams\.epochs="):
        vgg(epochs=epochs)


def test_epochs_and_sizes_that_cannot_be_trained_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"model\.hparams\.augment_epochs=-1"):
        vgg(augment_epochs=-1)
    with pytest.raises(ConfigError, match="trains for 0 epochs"):
        vgg(epochs=[0, 0], augment_epochs=0)
    with pytest.raises(ConfigError, match=r"10x10 pixels.*divisible by 4"):
        vgg(noise(size=10))


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_averaged_gradients_are_those_of_the_mean_loss_of_the_global_batch(world_size: int) -> None:
    data = noise(num_train=10)
    torch.manual_seed(1)
    net = build_network((8, 8), 10).eval()  # batch statistics differ between processes; running ones do not

    def gradients(loss: torch.Tensor) -> torch.Tensor:
        return torch.cat([grad.flatten() for grad in torch.autograd.grad(loss, list(net.parameters()))])

    loaders = [data.train_loader(2, 1, Shard(rank, world_size, CPU)) for rank in range(world_size)]
    for batches in zip(*loaders, strict=True):
        # As DDP does: the mean over processes of the gradients of each one's loss.
        shards = [forward_loss(net, batch["images"], batch["labels"], batch["weights"])[1] for batch in batches]
        averaged = torch.stack([gradients(loss) for loss in shards]).mean(dim=0)
        images = torch.cat([batch["images"][batch["weights"] > 0] for batch in batches])
        labels = torch.cat([batch["labels"][batch["weights"] > 0] for batch in batches])
        expected = gradients(F.cross_entropy(net(images * (1 / 255)), labels))
        torch.testing.assert_close(averaged, expected, rtol=1e-3, atol=1e-6)


def evaluated(module: Vgg, data: ImageData, world_size: int, batch_size: int) -> dict[str, float]:
    """Metrics over all shards; the sum of counts is what the all-reduce makes of them."""
    module.eval()
    for rank in range(world_size):
        for index, batch in enumerate(data.eval_loader(batch_size, Shard(rank, world_size, CPU))):
            with torch.inference_mode():  # Lightning's evaluation loop does so.
                module.validation_step(batch, index)
    return module.metrics()


def test_metrics_are_exact_and_do_not_depend_on_the_number_of_processes() -> None:
    data = noise(num_eval=23)
    module = vgg(data)
    samples = data.samples("eval", CPU)
    with torch.no_grad():
        logits = module.net.eval()(samples.images / 255)
    accuracy = (logits.argmax(dim=1) == samples.labels).double().mean().item()
    loss = F.cross_entropy(logits, samples.labels).item()
    for world_size, batch_size in ((1, 23), (1, 4), (2, 4), (3, 5), (4, 8)):
        metrics = evaluated(module, data, world_size, batch_size)
        assert metrics["accuracy"] == accuracy
        assert metrics["loss"] == pytest.approx(loss, rel=1e-5)


def test_metrics_reset_and_need_an_evaluation() -> None:
    data = noise()
    module = vgg(data)
    assert evaluated(module, data, 1, 4) == evaluated(module, data, 1, 4)
    with pytest.raises(AssertionError, match="nothing was evaluated"):
        module.metrics()


def test_filler_is_not_counted() -> None:
    logits = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]])
    cells = confusion_cells(logits, torch.tensor([1, 1, 0]), torch.tensor([0.5, 2.0, 0.0]))
    assert cells.tolist() == [3, 2, 4]
    counter = ConfusionCounter(2)
    counter.add(cells, torch.tensor(1.5))
    counter.add(cells, torch.tensor(1.0))
    matrix, loss = counter.reduce()
    assert (matrix.tolist(), loss) == ([[0, 0], [2, 2]], 2.5)


def reduced(rank: int, store: str) -> list[Any]:
    """The counts of two processes, reduced in one of them."""
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    counter = ConfusionCounter(2)
    counter.add(torch.tensor([[0, 3, 4], [3, 2, 3]][rank]), torch.tensor([0.5, 0.25][rank]))
    matrix, loss = counter.reduce()
    dist.destroy_process_group()
    return [matrix.tolist(), loss]


# Imports nothing of Lightning, which would take a quarter of a minute.
OTHER_PROCESS = f"""
import sys, torch, torch.distributed as dist
from typing import Any
from trainers.ops.confusion.matrix import ConfusionCounter
{inspect.getsource(reduced)}
assert reduced(1, sys.argv[1]) == [[[1, 0], [1, 3]], 0.75]
"""


@pytest.mark.slow
def test_counts_are_summed_over_real_processes(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    with subprocess.Popen([sys.executable, "-c", OTHER_PROCESS, store], cwd=Path(__file__).parents[3]) as other:
        assert reduced(0, store) == [[[1, 0], [1, 3]], 0.75]
        assert other.wait(HANGS_SEC) == 0


def test_every_process_evaluates_the_same_model(monkeypatch: pytest.MonkeyPatch) -> None:
    nets = [torch.nn.Sequential(torch.nn.BatchNorm2d(3), torch.nn.BatchNorm2d(2)) for _ in range(2)]
    for net in nets:
        net[0](torch.rand(4, 3, 2, 2))
    mine, others = (torch.cat([net[0].running_mean, net[0].running_var, torch.zeros(2), torch.ones(2)]) for net in nets)
    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: 2)
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: tensor.add_(others))
    average_running_statistics(nets[0])
    averaged = torch.cat([buffer for buffer in nets[0].buffers() if buffer.ndim])
    torch.testing.assert_close(averaged, (mine + others) / 2)
    assert nets[0][0].num_batches_tracked == 1


def test_the_report_is_the_confusion_matrix_of_what_was_evaluated(tmp_path: Path) -> None:
    data = noise()
    module = vgg(data)
    module.write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []  # nothing was evaluated
    evaluated(module, data, 1, 4)
    module.write_report(tmp_path)
    rows = list(csv.reader((tmp_path / "confusion_matrix.csv").read_text().splitlines()))
    assert rows[0] == ["label", *"0123456789"]
    assert [row[0] for row in rows[1:]] == list("0123456789")
    assert sum(int(cell) for row in rows[1:] for cell in row[1:]) == data.num_eval
    assert (tmp_path / "confusion_matrix.png").read_bytes().startswith(b"\x89PNG")


class Watch(pl.Callback):
    """Notes what each epoch trained with."""

    def __init__(self) -> None:
        self.rates: list[float] = []
        self.orders: list[bytes] = []
        self.metrics: list[dict[str, float]] = []

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        if batch_idx == 0:
            self.rates.append(trainer.optimizers[0].param_groups[0]["lr"])
            self.orders.append(batch["images"].numpy().tobytes())

    def on_validation_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        self.metrics.append(pl_module.metrics())


# Lightning 2.6 asks PyTorch 2.15 in a way that is about to go (pytorch_lightning.utilities._pytree).
ignore_lightning = pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning", "ignore:GPU available but not used")


def fit(module: Vgg, data: ImageData, batch_size: int) -> Watch:
    watch = Watch()
    trainer = pl.Trainer(
        accelerator="cpu",
        devices=1,
        max_epochs=module.max_epochs,
        callbacks=[watch],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        use_distributed_sampler=False,
    )
    shard = Shard(0, 1, CPU)
    trainer.fit(module, data.train_loader(batch_size, 1, shard), data.eval_loader(batch_size, shard))
    return watch


@ignore_lightning
def test_lightning_follows_the_schedule_and_reshuffles_each_epoch() -> None:
    data = noise(num_train=10)
    watch = fit(vgg(data, epochs=[2, 1], augment_epochs=1), data, 5)
    assert watch.rates == [1e-3, 1e-3, 1e-4, 1e-4]
    assert len(set(watch.orders)) == 4


@pytest.mark.slow
@ignore_lightning
def test_learns_the_digits() -> None:
    data = WORKLOAD.data["digits"]()
    assert isinstance(data, ImageData)
    watch = fit(vgg(data, epochs=[1, 1], augment_epochs=0), data, 32)
    assert watch.metrics[-1]["accuracy"] > 0.9  # six seeds: 0.941 to 0.976, and 0.649 to 0.882 before the rate drops


@pytest.mark.gpu
@needs_gpu
@pytest.mark.parametrize("compiled", [False, True])
def test_a_step_never_waits_for_the_gpu(compiled: bool) -> None:
    device = torch.device("cuda")
    data = noise(num_train=40, num_eval=20, size=28)
    module = vgg(data, epochs=[0], augment_epochs=1).to(device)
    if compiled:
        module.compile_hot_path()
    loaders = data.train_loader(16, 1, Shard(0, 1, device)), data.eval_loader(16, Shard(0, 1, device))
    optimizer = module.configure_optimizers()

    def step(batch: dict, index: int) -> None:
        with torch.autocast("cuda", torch.bfloat16):
            module.training_step(batch, index).backward()
            optimizer.step()
            optimizer.zero_grad()
            with torch.no_grad():
                module.eval().validation_step(batch, index)
                module.train()

    for loader in loaders:  # reads the data, compiles, allocates
        for index, batch in enumerate(loader):
            step(batch, index)
    with synchronization.refused():
        for index, batch in enumerate(loaders[0]):
            step(batch, index)
    assert module.metrics()["accuracy"] >= 0
