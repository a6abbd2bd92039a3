"""Translators on two processes: the metric of one, its gradients, and an embedding that stays tied."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from tests.trainers import processes
from tests.trainers.models.test_transformer import module, text
from tests.trainers.processes import CPU
from trainers.data.loading.types import Shard

LEARNING_RATE, SENTENCES = 0.5, 3


class Losses(nn.Module):
    """A translator's step as a forward pass, which DDP wraps."""

    def __init__(self, translator: Any) -> None:
        super().__init__()
        self.translator = translator

    def forward(self, batch: dict[str, Any]) -> torch.Tensor:
        loss: torch.Tensor = self.translator.training_step(batch, 0)
        return loss


def trained_and_evaluated(rank: int, world_size: int, folder: str) -> None:
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
    meeting = f"file://{folder}/meeting{world_size}"
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=world_size)
    torch.manual_seed(0)
    translator, shard = module(dropout=0.0, beam=2, extra_length=2), Shard(rank, world_size, CPU)
    data = text().viewed(translator.view)
    translator.eval()
    for batch in data.eval_loader(96, shard) or ():
        # Something is right at least, or all metrics would be zero: of some sentences the answer is the reference.
        texts = [
            reference and (answer if int(reference) % SENTENCES == 0 else f"{answer} more")
            for reference, answer in zip(
                batch["references"], map(data.vocabulary.decode, translator.translate(batch["source"]).tolist()),
                strict=True,
            )
        ]  # fmt: skip
        translator.validation_step({**batch, "references": texts}, 0)
    bleu = translator.metrics()["bleu"]
    translator.train()
    wrapped = DistributedDataParallel(Losses(translator))
    optimizer = torch.optim.SGD(translator.parameters(), lr=LEARNING_RATE)
    for batch in data.train_loader(192 // world_size, 1, shard):
        optimizer.zero_grad()
        wrapped(batch).backward()
        optimizer.step()
    torch.save({"bleu": bleu, "weights": translator.state_dict()}, f"{folder}/{world_size}-{rank}.pt")
    dist.destroy_process_group()


@pytest.mark.slow
@pytest.mark.exhaustive
def test_two_processes_train_and_translate_as_one_with_one_tied_embedding(tmp_path: Path) -> None:
    trained_and_evaluated(0, 1, str(tmp_path))
    processes.ranks(trained_and_evaluated, 2, str(tmp_path))
    single, first, second = (torch.load(tmp_path / f"{name}.pt") for name in ("1-0", "2-0", "2-1"))
    torch.testing.assert_close(first, second, rtol=0, atol=0)
    assert first["bleu"] == single["bleu"]
    assert 0 < single["bleu"] < 100
    torch.testing.assert_close(first["weights"], single["weights"], rtol=1e-4, atol=1e-5)

    again = module(dropout=0.0)
    shapes = [
        name for name, tensor in single["weights"].items() if tensor.shape[0] == again.net.embedding.num_embeddings
    ]
    assert shapes == ["net.embedding.weight"]  # and nothing else to be resumed from
    again.load_state_dict(first["weights"])
    states = torch.randn(1, 2, again.net.sizes.width)
    expected = again.net.decoder_norm(states) @ first["weights"]["net.embedding.weight"].T
    torch.testing.assert_close(again.net.logits(states), expected)
