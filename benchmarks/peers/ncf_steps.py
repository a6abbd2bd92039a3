"""NCF's training steps beside plain PyTorch, in turns on one device, at MovieLens 20M's size.

    python benchmarks/peers/ncf_steps.py --precision bf16 --steps 20 --rounds 5 --out ncf.csv

The peer is the model of arXiv:1708.05031 as a PyTorch user writes it: each sample looks up its user and its item, one
perceptron takes both, Adam. It is timed as it comes, with fused Adam, and compiled. Its batches lie on the device, and
no negatives are drawn for it. Ours is timed on such batches, too, and then with all that training does: the order, the
negatives and the epoch's batches, drawn from generated ratings (--size of them, which are made first and kept in the
cache). Lightning is around none of them. All get as many samples, of users and items of the same popularity.

A round steps every variant, each round in the reverse order of the one before, so that a linear drift cancels. Rows: a
variant each, with the mean over rounds of the time of a step, and the standard deviation of the rounds' means.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch
from torch import nn

from benchmarks.steps.device_kernels import wait
from benchmarks.steps.run_alone import AUTOCAST, composed
from trainers.data.ratings import SyntheticRatings, ratings
from trainers.data.ratings.loader import GROUP
from trainers.loop import precision as precisions
from trainers.loop.build import make_module
from trainers.workload import Batch, Shard, load_workload

Step = Callable[[], None]
WARMUP = 5  # steps of a new variant
NUM_BATCHES = 4  # batches that lie on the device, taken in turns
PEERS = {"as it comes": (False, False), "fused Adam": (True, False), "fused Adam, compiled": (True, True)}


class PlainNeuMF(nn.Module):
    """Users and items int64 [n] to logits [n]."""

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
) -> Step:  # fmt: skip
    kind = AUTOCAST.get(precision)

    def step() -> None:
        torch.compiler.cudagraph_mark_step_begin()
        optimizer.zero_grad()
        with torch.autocast(device.type, kind or torch.bfloat16, enabled=kind is not None):
            loss = loss_of(next(batches))
        loss.backward()
        optimizer.step()

    return step


def peer(asked: argparse.Namespace, device: torch.device, fused: bool, compiles: bool) -> Step:
    """The plain model on the same samples, one by one."""
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

    batches = itertools.cycle([flat(batch) for batch in generated(data, asked, device)])
    return train_step(lambda batch: loss_of(**batch), optimizer, batches, device, asked.precision)


def ours(asked: argparse.Namespace, device: torch.device, draws: bool) -> Step:
    """Our module's step, on batches that lie there or on those of training."""
    name = "ratings" if draws else "synthetic"
    gpus = f"gpus={int(device.type == 'cuda')}"
    config = composed(["model=ncf", f"dataset={name}", f"precision={asked.precision}", gpus, "model.optimizer.lr=1e-5"])
    data: Any = ratings(asked.size) if draws else SyntheticRatings()
    module = make_module(load_workload(config), data, config).to(device)
    if device.type == "cuda" or asked.compile:
        module.compile_hot_path()
    optimizer: Any = module.configure_optimizers()
    batches = endless(data, asked, device) if draws else itertools.cycle(generated(data, asked, device))
    step: Any = module.training_step
    return train_step(lambda batch: step(batch, 0), optimizer, batches, device, asked.precision)


def generated(data: SyntheticRatings, asked: argparse.Namespace, device: torch.device) -> list[Batch]:
    return [data.batch(asked.batch_size, device, seed) for seed in range(NUM_BATCHES)]


def endless(data: Any, asked: argparse.Namespace, device: torch.device) -> Iterator[Batch]:
    """The batches of one epoch after another; the last one of each is as large as all."""
    loader = data.train_loader(asked.batch_size, 1, Shard(0, 1, device))
    for epoch in itertools.count():
        loader.set_epoch(epoch)
        yield from loader


def steps_ms(step: Step, num: int, device: torch.device) -> float:
    """Mean milliseconds of a step, of `num` in a row; the device is waited for before and after all of them."""
    step()
    wait(device)
    begun = time.perf_counter()
    for _ in range(num):
        step()
    wait(device)
    return 1e3 * (time.perf_counter() - begun) / num


def measured(asked: argparse.Namespace, device: torch.device) -> list[dict[str, Any]]:
    steps = {
        f"plain PyTorch: {name}": peer(asked, device, *tuning)
        for name, tuning in PEERS.items()
        if asked.compile or not tuning[1]
    }
    steps |= {
        "ours": ours(asked, device, draws=False),
        "ours, with order and negatives": ours(asked, device, draws=True),
    }
    for step in steps.values():
        for _ in range(WARMUP):
            step()
    rounds: dict[str, list[float]] = {name: [] for name in steps}
    for number in range(asked.rounds):
        for name in list(steps) if number % 2 == 0 else reversed(steps):
            rounds[name].append(steps_ms(steps[name], asked.steps, device))
    return [summarised(name, times, asked) for name, times in rounds.items()]


def summarised(name: str, times: list[float], asked: argparse.Namespace) -> dict[str, Any]:
    """The row of a variant, of the mean milliseconds of its steps in each round."""
    mean = statistics.mean(times)
    return {
        "variant": name,
        "precision": asked.precision,
        "batch_size": asked.batch_size,
        "rounds": len(times),
        "steps": asked.steps,
        "step_ms": f"{mean:.4g}",
        "step_ms_sd": f"{statistics.stdev(times):.2g}" if len(times) > 1 else "",
        "samples_per_sec": f"{1e3 * asked.batch_size / mean:.4g}",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16", "fp16"), default="bf16")
    parser.add_argument("--batch-size", type=int, default=1_048_575, help=f"samples, a multiple of {GROUP}")
    parser.add_argument("--size", type=int, default=19_861_770, help="generated ratings to draw from")
    parser.add_argument("--steps", type=int, default=20, help="of a variant's turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=torch.cuda.is_available())
    parser.add_argument("--out", type=Path, help="write the rows as CSV")
    asked = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    gpu = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    precisions.apply(composed([f"precision={asked.precision}"]).precision)
    rows = [row | {"gpu": gpu, "torch": torch.__version__} for row in measured(asked, device)]
    for row in rows:
        print(", ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    if asked.out:
        with asked.out.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
