"""The language model on several processes: the training of one, with one exchange of gradients a step."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning as pl
import torch
import torch.distributed as dist
from pytorch_lightning.strategies import Strategy

from tests.trainers import processes
from tests.trainers.models.test_gpt import language, model
from tests.trainers.processes import ALONE, CPU
from trainers.data.language import LanguageData
from trainers.data.loading.position import with_epochs
from trainers.data.loading.types import Shard
from trainers.loop import ddp
from trainers.models.gpt import LanguageModel

STEPS, TOKENS, MICRO = 4, 256, 32


def trained(strategy: Strategy, data: LanguageData, shard: Shard) -> tuple[LanguageModel, dict[str, list[int]]]:
    """After STEPS steps, and the sizes of what each of them reduced over the processes."""
    module = model(data, micro_batch_size=MICRO, steps=STEPS)
    sizes: dict[str, list[int]] = {"reduced": []}
    reduce = dist.all_reduce

    def counted(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
        sizes["reduced"].append(tensor.numel())
        return reduce(tensor, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dist, "all_reduce", counted)
        trainer = pl.Trainer(
            strategy=strategy, accelerator="cpu", devices=1, num_nodes=shard.world_size, max_epochs=1,
            limit_train_batches=STEPS, limit_val_batches=0, barebones=True, use_distributed_sampler=False,
        )  # fmt: skip
        trainer.fit(module, with_epochs(data.train_loader(TOKENS // shard.world_size, 1, shard)))
    return module, sizes


def trained_alone(data: LanguageData) -> dict[str, torch.Tensor]:
    """The weights after as many steps of one process, in one micro-batch each."""
    module = model(data, micro_batch_size=TOKENS, steps=STEPS)
    optimizer = module.configure_optimizers()
    for step, batch in zip(range(STEPS), data.train_loader(TOKENS, 1, ALONE), strict=False):
        for group in optimizer.param_groups:
            group["lr"] = group["full_lr"] * module.share_of_rate(step)
        module.training_step(batch, 0).backward()
        optimizer.step()
    return module.state_dict()


def process(rank: int, world_size: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": "0", "WORLD_SIZE": str(world_size)}
    os.environ |= {"TORCHELASTIC_RUN_ID": "test", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    meeting = f"file://{folder}/meeting{world_size}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world_size)
    seen = {}
    for name, strategy in {"after": ddp.AfterTheStep(), "overlapped": ddp.Overlapped()}.items():
        module, sizes = trained(strategy, language(), Shard(rank, world_size, CPU))
        seen[name] = module.state_dict(), sizes["reduced"]
    torch.save(seen, f"{folder}/{world_size}-{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.parametrize("world_size", [2, pytest.param(4, marks=pytest.mark.exhaustive)])
def test_processes_train_as_one_and_exchange_gradients_once_a_step(tmp_path: Path, world_size: int) -> None:
    processes.ranks(process, world_size, str(tmp_path), number=world_size)
    alone = trained_alone(language())
    for rank in range(world_size):
        seen = torch.load(tmp_path / f"{world_size}-{rank}.pt")
        for weights, _ in seen.values():
            torch.testing.assert_close(weights, alone, rtol=0, atol=1e-4)
        number = sum(weight.numel() for weight in alone.values())
        assert Counter(seen["after"][1])[number] == STEPS  # of two micro-batches or more each
