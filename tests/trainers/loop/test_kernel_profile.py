"""Steps are traced when the training has ended, as many as were asked for or fit, and leave nothing else behind."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist

from conf.launch_options import ProfileConfig
from conf.schema import RunConfig
from tests.trainers.processes import ALONE
from tracking.measure import kernels
from tracking.record import documents
from trainers.data.digits import digits
from trainers.data.images import ImageData
from trainers.loop.kernel_profile import StepProfiler
from trainers.models.vgg import Vgg

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:.*LeafSpec.*:FutureWarning"),
    pytest.mark.filterwarnings("ignore:You defined a `validation_step` but have no `val_dataloader`"),
]
NEEDS_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]


@pytest.fixture(scope="module", autouse=True)
def process_group() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class AtTheEnd(pl.Callback):
    """Traces where a run does; keeps what the training was before that and after it."""

    def __init__(self, profile: ProfileConfig, loader: Any, folder: Path) -> None:
        self.config, self.loader, self.folder = RunConfig(profile=profile, gpus=0), loader, folder
        self.states: list[dict[str, torch.Tensor]] = []

    def on_train_end(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        self.keep(trainer, pl_module)
        StepProfiler(self.config, trainer, pl_module, self.loader, 0).write(self.folder)  # type: ignore[arg-type]
        self.keep(trainer, pl_module)

    def keep(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        optimizer = trainer.optimizers[0].state_dict()["state"]
        momenta = {f"{key}.{name}": value for key, row in optimizer.items() for name, value in row.items()}
        tensors = {**module.state_dict(), **momenta, "random": torch.get_rng_state()}
        self.states.append({name: torch.as_tensor(value).clone() for name, value in tensors.items()})


def traced(folder: Path, profile: ProfileConfig, num_batches: int = 2, device: str = "cpu") -> AtTheEnd:
    pl.seed_everything(3, verbose=False)
    data: ImageData = digits()
    module = Vgg(data, learning_rate=1e-3, weight_decay=0.0, epochs=[0], augment_epochs=1)
    loader = data.train_loader(16, 1, ALONE if device == "cpu" else type(ALONE)(0, 1, torch.device(device, 0)))
    callback = AtTheEnd(profile, loader, folder)
    trainer = pl.Trainer(
        accelerator="gpu" if device == "cuda" else "cpu", devices=1, max_epochs=1, limit_train_batches=num_batches,
        limit_val_batches=0, barebones=True, use_distributed_sampler=False, callbacks=[callback],
    )  # fmt: skip
    trainer.fit(module, loader)
    return callback


def trace_of(folder: Path) -> kernels.Trace:
    with gzip.open(folder / kernels.trace_name(0)) as file:
        return kernels.parse(json.load(file))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=NEEDS_GPU)])
def test_steps_are_traced_and_everything_else_is_as_it_was(tmp_path: Path, device: str) -> None:
    """More of them than the run had; and the table is that of the trace that lies beside it."""
    before, after = traced(tmp_path, ProfileConfig(steps=3), device=device).states
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)

    profile = kernels.read((tmp_path / kernels.PROFILE).read_text())
    assert (profile.num_steps, profile.slowest, list(profile.notes)) == (3, 0, [])
    trace = trace_of(tmp_path)
    assert trace.num_steps == 3
    assert kernels.summarize(trace).plain() == profile.first
    assert profile.first["on_gpu"] == (device == "cuda")
    classes = {row["class"]: row["share"] for row in profile.first["classes"]}
    assert {"convolution", "optimizer", "normalisation"} <= classes.keys()
    assert sum(classes.values()) == pytest.approx(1)
    phases = {row["phase"] for row in profile.first["gaps"]}
    assert {"data", "forward", "backward", "optimizer"} <= phases
    assert {path.name for path in tmp_path.iterdir()} == {kernels.PROFILE, kernels.KERNELS, *profile.traces}


def test_a_trace_that_would_be_too_large_is_of_fewer_steps_or_of_none(tmp_path: Path) -> None:
    whole, few, none = (tmp_path / name for name in ("whole", "few", "none"))
    for folder in (whole, few, none):
        folder.mkdir()
    traced(whole, ProfileConfig(steps=1))
    with gzip.open(whole / kernels.trace_name(0)) as file:
        megabytes = len(file.read()) / 1e6
    traced(few, ProfileConfig(steps=50, trace_megabytes=2.5 * megabytes))
    profile = kernels.read((few / kernels.PROFILE).read_text())
    assert 1 <= profile.num_steps <= 3
    assert profile.num_steps == trace_of(few).num_steps
    assert profile.notes[0].count("of 50 steps") == 1
    assert "profile.trace_megabytes" in profile.notes[0]

    traced(none, ProfileConfig(steps=50, trace_megabytes=megabytes / 100))
    profile = kernels.read((none / kernels.PROFILE).read_text())
    assert (profile.num_steps, list(profile.traces), profile.summaries) == (0, [], {})
    assert "no step was traced" in profile.notes[0]
    assert not list(none.glob("*.gz"))


def test_a_rank_that_left_no_part_is_not_one_that_is_too_large(tmp_path: Path) -> None:
    parts, asked = tmp_path / "parts", RunConfig(profile=ProfileConfig(trace_megabytes=0.003), gpus=3)
    profiler = StepProfiler(asked, *[None] * 3, 0)  # type: ignore[arg-type]
    for sizes, notes in (
        ([0, 0, 0], []),
        ([0, 0], ["profile_trace.json.gz has 2 of 3 ranks: 1 wrote no trace, as on a full disk"]),
        ([0, 0, 9000], ["profile_trace.json.gz has 2 of 3 ranks: more would exceed profile.trace_megabytes=0.003"]),
    ):
        parts.mkdir()
        for rank, size in enumerate(sizes):
            event = {"ph": "X", "name": "x" * size, "ts": 1.0}
            documents.write_json(parts / f"{rank}.json", {"base_ns": 0, "events": [event]})
        profile = profiler._merged(kernels.Profile(asked_steps=1, num_steps=1), tmp_path, parts)
        assert profile.notes == notes
