"""A sharded training has the losses and weights of DDP's, and goes on from a checkpoint of any strategy."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.strategies import SingleDeviceStrategy, Strategy

from conf.schema import ConfigError
from tests.support.composing import composed
from tests.trainers import processes
from tests.trainers.models.test_gpt import language, model
from tests.trainers.processes import CPU
from trainers.data.loading.position import with_epochs
from trainers.data.loading.types import Shard
from trainers.data.selfplay import SelfPlayData
from trainers.loop import ddp, fsdp
from trainers.loop.build import make_module
from trainers.models.gpt import LanguageModel
from trainers.models.minigo import WORKLOAD as MINIGO
from trainers.ops import muon
from trainers.ops.sharding import sharded
from trainers.workload import TrialModule

STEPS, TOKENS, MICRO = 4, 256, 32
OPTIONS = {"micro_batch_size": MICRO, "steps": STEPS, "clip_norm": 0.5}


class Noted(pl.Callback):
    """The loss of each step, and a checkpoint in the middle."""

    def __init__(self, file: Path | None) -> None:
        self.losses: list[torch.Tensor] = []
        self._file = file

    def on_train_batch_end(self, trainer: pl.Trainer, module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        loss = outputs["loss"].clone()
        if dist.get_world_size() > 1:
            dist.all_reduce(loss)
        self.losses.append(loss / dist.get_world_size())

    def on_train_epoch_end(self, trainer: pl.Trainer, module: Any) -> None:
        if self._file is not None and trainer.current_epoch == 0:
            content = trainer._checkpoint_connector.dump_checkpoint(weights_only=False)
            if dist.get_rank() == 0:
                torch.save(content, self._file)


def trained(shard: Shard, way: str, saved: Path | None = None, goes_on: Path | None = None, **options: Any) -> Any:
    """Losses of two epochs, the weights, and the largest part of a matrix that was kept here."""
    sharding = way == "fsdp"
    data = language(train_tokens=STEPS // 2 * TOKENS)
    with torch.device("meta" if sharding else "cpu"):
        module = model(data, **OPTIONS | options)
    if sharding:
        torch.manual_seed(1)
        fsdp.shard_module(module, shard, "fp32")
    strategies: dict[str, Strategy] = {
        "fsdp": fsdp.Sharded(), "ddp": ddp.AfterTheStep(), "alone": SingleDeviceStrategy(CPU),
    }  # fmt: skip
    noted = Noted(saved)
    trainer = pl.Trainer(
        strategy=strategies[way], accelerator="cpu", devices=1, num_nodes=shard.world_size, max_epochs=2,
        limit_val_batches=0, barebones=True, use_distributed_sampler=False,
    )  # fmt: skip
    trainer.callbacks.append(noted)  # type: ignore[attr-defined]
    loader = with_epochs(data.train_loader(TOKENS // shard.world_size, 1, shard))
    trainer.fit(module, loader, ckpt_path=goes_on, weights_only=True)
    weights = {name: whole.clone() for name, whole in sharded.whole(module.state_dict(), True).items()}
    return torch.stack(noted.losses), weights, part_kept(module)


def part_kept(module: LanguageModel) -> float:
    parameters = list(module.parameters())
    return sum(sharded.local(own).numel() for own in parameters) / sum(own.numel() for own in parameters)


def process(rank: int, world_size: int, folder: str, every: bool) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(world_size)}
    os.environ |= {"TORCHELASTIC_RUN_ID": "test", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    meeting = f"file://{folder}/meeting{world_size}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world_size)
    shard, at = Shard(rank, world_size, CPU), Path(folder)
    orthogonalised: list[torch.Size] = []
    whole = muon.orthogonal

    def noted(matrices: torch.Tensor) -> torch.Tensor:
        orthogonalised.append(matrices.shape[1:])
        return whole(matrices)

    muon.orthogonal = noted
    seen = {
        "ddp": trained(shard, "ddp", at / f"ddp{world_size}.ckpt"),
        "fsdp": trained(shard, "fsdp", at / f"fsdp{world_size}.ckpt"),
        "fsdp from ddp": trained(shard, "fsdp", goes_on=at / f"ddp{world_size}.ckpt"),
    }
    if every:
        seen["checkpointed"] = trained(shard, "fsdp", activation_checkpointing=True)
        seen["ddp from fsdp"] = trained(shard, "ddp", goes_on=at / f"fsdp{world_size}.ckpt")
    if world_size == 4:
        seen["of two processes"] = trained(shard, "fsdp", goes_on=at / "fsdp2.ckpt")
    torch.save((seen, orthogonalised), f"{folder}/{world_size}-{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("number", [(2,), pytest.param((2, 4), marks=pytest.mark.exhaustive)])
def test_losses_and_weights_are_those_of_ddp_also_behind_a_checkpoint(tmp_path: Path, number: tuple[int, ...]) -> None:
    for world_size in number:
        processes.ranks(process, world_size, str(tmp_path), len(number) > 1, number=world_size)
        for rank in range(world_size):
            seen, orthogonalised = torch.load(tmp_path / f"{world_size}-{rank}.pt")
            losses, weights, kept = seen.pop("ddp")
            assert (len(losses), kept) == (STEPS, 1)
            assert losses[-1] < losses[0]
            for way, (own_losses, own_weights, own_part) in seen.items():
                torch.testing.assert_close(own_losses, losses[-len(own_losses) :], rtol=0, atol=1e-5, msg=way)
                torch.testing.assert_close(own_weights, weights, rtol=0, atol=1e-4, msg=way)
                assert own_part == 1 if way.startswith("ddp") else own_part < 1.1 / world_size, way
            assert {len(losses) for losses, _, _ in seen.values()} == {STEPS, STEPS // 2}
            assert set(orthogonalised) == {torch.Size([32, 32]), torch.Size([32, 128])}  # whole ones


def test_a_module_that_names_no_parts_is_refused() -> None:
    with pytest.raises(
        ConfigError, match=r"strategy=fsdp: TrialModule has no sharded_parts\(\). Next: give strategy=ddp"
    ):
        TrialModule().sharded_parts()


def test_a_workload_without_parts_is_refused_before_it_is_made() -> None:
    config = composed(["model=minigo", "gpus=2", "strategy=fsdp"])
    with (
        torch.device("meta"),
        pytest.raises(ConfigError, match=r"MiniGo has no sharded_parts\(\). Next: give strategy=ddp"),
    ):
        make_module(MINIGO, SelfPlayData(), config)
