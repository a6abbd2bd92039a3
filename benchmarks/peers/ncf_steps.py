"""Rates of NCF's training steps at MovieLens 20M's size: ours and plain PyTorch, in turns on one device.

    python benchmarks/peers/ncf_steps.py --batch-sizes 1048575 4194300 --out ncf.csv

The peer is the model of arXiv:1708.05031 as a PyTorch user writes it: each sample looks up its user and its item, one
perceptron takes both, Adam trains it. It is timed as it comes, with fused Adam, and compiled. Its batches are on the
device, and no negatives are drawn.

Ours is timed on such batches, too; this rate is compared with the peer's. A second variant does all that training does:
it draws order, negatives and batches from generated ratings (--size of them, made first and kept in the cache). No
variant runs in Lightning. Users and items have the same popularity in all. A batch size counts positives and negatives.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch
from torch import nn

from benchmarks.peers import beside
from benchmarks.steps.run_alone import AUTOCAST, composed
from trainers.data.ratings import SyntheticRatings, ratings
from trainers.data.ratings.loader import GROUP
from trainers.loop import precision as precisions
from trainers.loop.build import make_module
from trainers.workload import Batch, Shard, load_workload

WARMUP = 5  # untimed steps of a new variant
NUM_BATCHES = 4  # on the device, used in turns
PEER = "plain PyTorch"
PEERS = {beside.AS_IT_COMES: (False, False), "fused Adam": (True, False), "fused Adam, compiled": (True, True)}


class PlainNeuMF(nn.Module):
    """NeuMF: users and items int64 [n] to logits [n]."""

    def __init__(self, num_users: int, num_items: int, factors: int, layers: list[int]) -> None:
        super().__init__()
        half = layers[0] // 2
        self.mf_user, self.mf_item = nn.Embedding(num_users, factors), nn.Embedding(num_items, factors)
        self.mlp_user, self.mlp_item = nn.Embedding(num_users, half), nn.Embedding(num_items, half)
        steps = [step for sizes in itertools.pairwise(layers) for step in (nn.Linear(*sizes), nn.ReLU())]
        self.mlp = nn.Sequential(*steps)
        self.final = nn.Linear(layers[-1] + factors, 1)
        for table in (self.mf_user, self.mf_item, self.mlp_user, self.mlp_item):
            nn.init.normal_(table.weight, 0.0, 0.01)

    def forward(self, users: torch.Tensor, items: torch.Tensor) -> torch.Tensor:
        hidden = self.mlp(torch.cat((self.mlp_user(users), self.mlp_item(items)), dim=1))
        logits: torch.Tensor = self.final(torch.cat((self.mf_user(users) * self.mf_item(items), hidden), dim=1))
        return logits[:, 0]


def train_step(
    loss_of: Callable[[Batch], torch.Tensor], optimizer: torch.optim.Optimizer, batches: Iterator[Batch],
    device: torch.device, precision: str,
) -> beside.Step:  # fmt: skip
    kind = AUTOCAST.get(precision)

    def step() -> None:
        torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad()
        with torch.autocast(device.type, kind or torch.bfloat16, enabled=kind is not None):
            loss = loss_of(next(batches))
        loss.backward()
        optimizer.step()

    return step


def peer(
    arguments: argparse.Namespace, batch_size: int, device: torch.device, fused: bool, compiles: bool
) -> beside.Step:
    """A step of the plain model, with each sample's own user and item."""
    config = composed(["model=ncf", "dataset=synthetic"])
    data = SyntheticRatings()
    hparams = config.model.hparams
    net = PlainNeuMF(data.num_users, data.num_items, hparams["factors"], hparams["layers"]).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-5, betas=(0.25, 0.5), **({"fused": True} if fused else {}))

    def loss(users: torch.Tensor, items: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.binary_cross_entropy_with_logits(net(users, items).float(), labels)

    loss_of: Any = torch.compile(loss, dynamic=False, mode="reduce-overhead") if compiles else loss

    def flat(batch: Batch) -> Batch:
        labels = torch.zeros(batch["items"].shape, device=device)
        labels[:, 0] = 1
        users = batch["users"].repeat_interleave(GROUP)
        return {"users": users, "items": batch["items"].flatten(), "labels": labels.flatten()}

    batches = itertools.cycle([flat(batch) for batch in generated(data, batch_size, device)])
    return train_step(lambda batch: loss_of(**batch), optimizer, batches, device, arguments.precision)


def ours(arguments: argparse.Namespace, batch_size: int, device: torch.device, draws: bool) -> beside.Step:
    """A step of our module, on fixed batches, or on batches drawn as in training."""
    name = "ratings" if draws else "synthetic"
    gpus = f"gpus={int(device.type == 'cuda')}"
    precision = f"precision={arguments.precision}"
    config = composed(["model=ncf", f"dataset={name}", precision, gpus, "model.optimizer.lr=1e-5"])
    data: Any = ratings(arguments.size) if draws else SyntheticRatings()
    module = make_module(load_workload(config), data, config).to(device)
    if device.type == "cuda" or arguments.compile:
        module.compile_hot_path()
    optimizer: Any = module.configure_optimizers()
    batches = endless(data, batch_size, device) if draws else itertools.cycle(generated(data, batch_size, device))
    step: Any = module.training_step
    return train_step(lambda batch: step(batch, 0), optimizer, batches, device, arguments.precision)


def generated(data: SyntheticRatings, batch_size: int, device: torch.device) -> list[Batch]:
    return [data.batch(batch_size, device, seed) for seed in range(NUM_BATCHES)]


def endless(data: Any, batch_size: int, device: torch.device) -> Iterator[Batch]:
    """Batches of one epoch after another; all are equally large."""
    loader = data.train_loader(batch_size, 1, Shard(0, 1, device))
    for epoch in itertools.count():
        loader.set_epoch(epoch)
        yield from loader


def measured(arguments: argparse.Namespace, batch_size: int, device: torch.device) -> list[beside.Row]:
    steps = {
        f"{PEER}: {name}": peer(arguments, batch_size, device, *tuning)
        for name, tuning in PEERS.items()
        if arguments.compile or not tuning[1]
    }
    steps |= {
        beside.OURS: ours(arguments, batch_size, device, draws=False),
        "ours, with order and negatives": ours(arguments, batch_size, device, draws=True),
    }
    for step in steps.values():
        for _ in range(WARMUP):
            step()
    compared = beside.Comparison("NCF", batch_size, "samples/s", arguments.precision)
    ready = {name: beside.Variant(step, batch_size) for name, step in steps.items()}
    with arguments.turns:
        return beside.in_turns(compared, ready, arguments, device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    beside.add_arguments(parser, steps=40, rounds=5)
    parser.add_argument("--batch-sizes", type=int, nargs="+", default=[1_048_575], help=f"multiples of {GROUP}")
    parser.add_argument("--size", type=int, default=19_861_770, help="generated ratings to draw from")
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=torch.cuda.is_available())
    arguments = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    precisions.apply(composed([f"precision={arguments.precision}"]).precision)
    rows: list[beside.Row] = []
    for batch_size in arguments.batch_sizes:
        rows += measured(arguments, batch_size, device)
        beside.report(rows, arguments.out)


if __name__ == "__main__":
    main()
