"""The trainings of `slow_on_purpose`: plain PyTorch under torchrun, each slow for a known reason.

Each is an ordinary loop with one of two tools around it. Each rank writes a file with the truth: the seconds that it
was slow on purpose, and those of the whole loop.
"""

from __future__ import annotations

import argparse
import copy
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, Dataset

CASES = ("loader", "work", "gc", "tiny", "co-tenant", "evaluations")
SLOW = 1  # the slow rank, in cases that have one
PAUSE_SEC = 0.01
OBJECTS = 100_000  # for the garbage collection, beside those of all packages
COLLECT_EVERY = 5  # steps
TINY_STEPS = 10  # times as many tiny steps, so that the sensors have samples of them
# Both work while their file exists, for two minutes at most.
BUSY = (
    "import os, sys, time; os.sched_setaffinity(0, {int(sys.argv[2])}); end = time.time() + 120\n"
    "while os.path.exists(sys.argv[1]) and time.time() < end: sum(range(1_000_000))"
)
BUSY_GPU = (
    "import os, sys, time, torch; end = time.time() + 120\n"
    "x = torch.randn(8192, 8192, device=f'cuda:{sys.argv[2]}', dtype=torch.bfloat16)\n"
    "while os.path.exists(sys.argv[1]) and time.time() < end: [x @ x for _ in range(20)]; torch.cuda.synchronize()"
)


@dataclass
class Purpose:
    """How a training is slow; `seconds` that it was slow on purpose, and `trained` seconds of its loop."""

    case: str
    rank: int
    device: torch.device
    seconds: float = 0.0
    trained: float = 0.0
    kept: list[list[int]] = field(default_factory=list)

    @property
    def slow(self) -> bool:
        return self.rank == min(SLOW, dist.get_world_size() - 1)

    @contextmanager
    def noted(self) -> Iterator[None]:
        begun = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - begun


class Rows(Dataset[Any]):
    """A dataset of batches. In the case `loader` the slow rank's come late."""

    def __init__(self, purpose: Purpose, batch: int, width: int, steps: int) -> None:
        self.purpose, self.steps = purpose, steps
        self.rows = torch.rand(batch, width), torch.randint(10, (batch,))

    def __len__(self) -> int:
        return self.steps

    def __getitem__(self, index: int) -> Any:
        if self.purpose.case == "loader" and self.purpose.slow:
            with self.purpose.noted():
                time.sleep(PAUSE_SEC)
        return self.rows


def data_parallel(net: nn.Module, device: torch.device) -> nn.Module:
    return nn.parallel.DistributedDataParallel(net, device_ids=[device.index] if device.type == "cuda" else None)


def sharded(net: nn.Sequential) -> nn.Module:
    for layer in net:
        if isinstance(layer, nn.Linear):
            fully_shard(layer)
    fully_shard(net)
    return net


class Training:
    """A network, its loader and its step."""

    def __init__(self, purpose: Purpose, options: argparse.Namespace) -> None:
        self.purpose, self.options = purpose, options
        width = options.width
        net = nn.Sequential(
            nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
        )
        self.alone = copy.deepcopy(net.to(purpose.device))  # for work without gradient exchange
        self.model = sharded(net) if options.sharded else data_parallel(net, purpose.device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.num_steps = 0
        self.batch = 2 if purpose.case == "tiny" else options.batch
        self.steps = options.steps * (TINY_STEPS if purpose.case == "tiny" else 1)
        self.loader = DataLoader(Rows(purpose, self.batch, width, self.steps), batch_size=None)

    def step(self, rows: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        self.num_steps += 1
        self.optimizer.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(self.model(rows), labels)
        loss.backward()
        if self.purpose.case == "work" and self.purpose.slow:
            with self.purpose.noted():  # twice more, without exchange
                for _ in range(2):
                    out = self.alone(rows)
                    torch.autograd.grad(nn.functional.cross_entropy(out, labels), list(self.alone.parameters()))
                if self.purpose.device.type == "cuda":
                    torch.cuda.synchronize()
        if self.purpose.case == "gc" and self.purpose.slow and self.num_steps % COLLECT_EVERY == 0:
            with self.purpose.noted():
                gc.collect()
        self.optimizer.step()
        # As in a loop that prints each loss. Otherwise a GPU's work would hide what the host does slowly.
        return torch.tensor(loss.item())

    def evaluate(self) -> float:
        with self.purpose.noted(), torch.no_grad():
            for _ in range(self.options.steps // 10):
                rows, labels = (part.to(self.purpose.device) for part in self.loader.dataset[0])
                loss = nn.functional.cross_entropy(self.alone(rows), labels)
            return float(loss)


def ours(training: Training) -> None:
    from tracking.lightning import time_trial

    options, purpose = training.options, training.purpose
    every = training.steps // 10 if purpose.case == "evaluations" else training.steps
    with time_trial(
        {"loss": "<=0"}, name=purpose.case, offline=True, runs_dir=options.runs, system_metrics_interval_sec=0.5,
        device=purpose.device, batch_size=training.batch, log_every_n_steps=20,
    ) as trial:  # fmt: skip
        begun = time.perf_counter()
        for place, (rows, labels) in enumerate(training.loader, 1):
            loss = training.step(rows.to(purpose.device), labels.to(purpose.device))
            trial.step(training.batch, loss)
            if place % every == 0:
                with trial.evaluation():
                    value = training.evaluate() if purpose.case == "evaluations" else 1.0
                    trial.evaluate({"loss": value}, epoch=place / training.steps)
        purpose.trained = time.perf_counter() - begun


def peers(training: Training) -> None:
    import traceml_ai

    traceml_ai.init(mode="auto")
    every = training.options.steps // 10
    begun = time.perf_counter()
    for place, (rows, labels) in enumerate(training.loader, 1):
        with traceml_ai.trace_step(training.model):
            training.step(rows.to(training.purpose.device), labels.to(training.purpose.device))
        if training.purpose.case == "evaluations" and place % every == 0:
            training.evaluate()
    training.purpose.trained = time.perf_counter() - begun


@contextmanager
def co_tenant(purpose: Purpose) -> Iterator[None]:
    """Another process on the slow rank's GPU or core, while the training runs."""
    if purpose.case != "co-tenant" or not purpose.slow:
        yield
        return
    on_gpu = purpose.device.type == "cuda"
    place = str(purpose.device.index if on_gpu else own_core())
    with tempfile.NamedTemporaryFile() as busy:
        for _ in range(1 if on_gpu else 2):
            # In a session of its own, and no descendant of the training, as another user's process is.
            subprocess.run(["setsid", "--fork", sys.executable, "-c", BUSY_GPU if on_gpu else BUSY, busy.name, place])
        time.sleep(8.0 if on_gpu else 0.5)
        yield


def own_core() -> int:
    cores = sorted(os.sched_getaffinity(0))
    return cores[int(os.environ["LOCAL_RANK"]) % len(cores)]


def run(case: str, options: argparse.Namespace) -> None:
    rank = dist.get_rank()
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    purpose = Purpose(case, rank, device)
    torch.manual_seed(0)
    training = Training(purpose, options)
    purpose.kept = [[] for _ in range(OBJECTS)] if case == "gc" and purpose.slow else []
    with co_tenant(purpose):
        dist.barrier()
        (ours if options.tool == "ours" else peers)(training)
    truth = {"on_purpose_sec": purpose.seconds, "trained_sec": purpose.trained}
    (Path(options.runs) / f"true-{options.tool}-{case}-{rank}.json").write_text(json.dumps(truth), encoding="ascii")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tool", choices=["ours", "traceml"], default="ours")
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--sharded", action="store_true")
    parser.add_argument("--runs", required=True)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("cpu:gloo,cuda:nccl")
    else:
        os.sched_setaffinity(0, {own_core()})
        dist.init_process_group("gloo")
    for case in options.cases:
        run(case, options)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    main()
