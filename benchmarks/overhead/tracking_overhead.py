"""Cost of tracking: our worker with all tracking on, bare Lightning, and a bare PyTorch loop, in one process.

    python benchmarks/overhead/tracking_overhead.py --out overhead.json      # one GPU, about four minutes
    python benchmarks/overhead/tracking_overhead.py --cpu                    # tiny sizes, to check that it runs

The three variants train the same VGG instance (one compiled graph, weights reset in between) on the same images, which
are on the device. `ours` calls trainers.loop.train with a run folder.
A round runs each variant once, each round in another order, so that drift cancels. Whole training epochs are timed
between synchronisations: without the evaluation, but with our callback's work before it. The first epoch of each run is
dropped. Differences are taken within a round, between medians and between means of its epochs. Their standard error is
over the rounds (n = rounds, not epochs).
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

import numpy as np
import pytorch_lightning as pl
import torch
import yaml
from torch._dynamo.utils import counters

from benchmarks.overhead.overhead_table import VARIANTS, table
from conf.dataset_options import DatasetConfig
from conf.schema import ModelConfig, OptimizerConfig, PrecisionConfig, RunConfig
from tracking.machine.environment import fingerprint
from tracking.record import documents, run_folder
from tracking.request.stored_config import from_dict
from trainers.data.images import ImageData, Source
from trainers.loop import precision
from trainers.loop.train import train
from trainers.models.vgg import Vgg, forward_loss
from trainers.ops.compiling import compiled
from trainers.workload import Shard, Workload

NUM_EVAL = 64


class TimedVgg(Vgg):
    """A VGG that times its training epochs in Lightning's hooks, whatever the callbacks."""

    epoch_sec: list[float]
    device_to_wait_for = torch.device("cpu")

    def compile_hot_path(self) -> None:
        """Compile the training step only: evaluation is not timed, and its compilation takes as long."""
        self._forward_loss = compiled(watched_forward_loss, self.device)

    def flops_per_sample(self) -> float:
        """A placeholder: counting the FLOPs of a compiled step would leave it uncompiled for good."""
        return 1.0

    def on_train_epoch_start(self) -> None:
        super().on_train_epoch_start()
        synchronize(self.device_to_wait_for)
        self._start = time.perf_counter()

    def on_validation_start(self) -> None:  # after our callback's hook, which journals the last windows
        synchronize(self.device_to_wait_for)
        self.epoch_sec.append(time.perf_counter() - self._start)

    def cpu(self) -> TimedVgg:
        """Stay on the device when Lightning ends.

        Weights that are moved to the CPU and back have other addresses. CUDA graphs would be recorded again, and each
        step would check all earlier ones.
        """
        return self

    def write_report(self, run_dir: Path) -> None:
        """No plot."""


def watched_forward_loss(*arguments: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The training step; counts calls that run uncompiled. A compiled step runs none of these Python lines."""
    if not torch.compiler.is_compiling():
        SHARED["uncompiled_steps"] += 1
    return forward_loss(*arguments)


# The workload of trainers.loop.train: the instances that all variants share.
SHARED: dict[str, Any] = {}
WORKLOAD = Workload(
    module=lambda data, learning_rate, weight_decay: SHARED["module"], data={"generated": lambda: SHARED["data"]}
)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def generated(num_train: int) -> ImageData:
    """Random images of Fashion-MNIST's shape."""

    def read(source: Source) -> tuple[np.ndarray, np.ndarray]:
        random = np.random.default_rng(0)
        size = num_train + NUM_EVAL
        return random.integers(0, 256, (size, 28, 28), dtype=np.uint8), random.integers(0, 10, size)

    names = tuple("0123456789")
    return ImageData("generated", 10, (28, 28), names, num_train=num_train, num_eval=NUM_EVAL, num_test=0, read=read)


def make_config(batch_size: int, on_gpu: bool, num_epochs: int) -> RunConfig:
    name = "bf16" if on_gpu else "fp32"
    content = yaml.safe_load((ROOT / "conf" / "precision" / f"{name}.yaml").read_text())
    model = ModelConfig(
        name="vgg",
        workload="benchmarks.overhead.tracking_overhead:WORKLOAD",
        batch_size=batch_size,
        metrics={"accuracy": [0.0, 1.0]},
        optimizer=OptimizerConfig(lr=1e-3),
    )
    return RunConfig(
        model=model,
        dataset=DatasetConfig("generated"),
        precision=from_dict(PrecisionConfig, content),
        gpus=int(on_gpu),
        max_epochs=num_epochs,
        compile=False,  # the shared instance is already compiled
    )


def run_bare_pytorch(config: RunConfig, shard: Shard) -> list[float]:
    module, data = SHARED["module"], SHARED["data"]
    optimizer = module.configure_optimizers()
    loader = data.train_loader(config.device_batch_size(), config.seed, shard)
    # No cache, as in Lightning: compiled graphs are guarded by this flag, and cast once a step either way.
    autocast = torch.autocast("cuda", torch.bfloat16, cache_enabled=False) if config.on_gpu() else nullcontext()
    forward_and_loss, seconds = module._forward_loss, []
    assert config.max_epochs is not None
    for epoch in range(config.max_epochs):
        loader.set_epoch(epoch)
        synchronize(shard.device)
        start = time.perf_counter()
        for batch in loader:
            optimizer.zero_grad()
            with autocast:
                loss = forward_and_loss(module.net, batch["images"], batch["labels"], batch["weights"])[1]
            loss.backward()
            optimizer.step()
        synchronize(shard.device)
        seconds.append(time.perf_counter() - start)
    return seconds


def run_bare_lightning(config: RunConfig, shard: Shard) -> list[float]:
    module, data = SHARED["module"], SHARED["data"]
    batch_size = config.device_batch_size()
    trainer = pl.Trainer(
        accelerator="gpu" if config.on_gpu() else "cpu",
        devices=1,
        precision=config.precision.trainer,  # type: ignore[arg-type]
        max_epochs=config.max_epochs,
        barebones=True,
    )
    trainer.fit(module, data.train_loader(batch_size, config.seed, shard), data.eval_loader(batch_size, shard))
    return list(module.epoch_sec)


def run_ours(config: RunConfig, shard: Shard) -> list[float]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    torchrun = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    with mock.patch.dict(os.environ, torchrun), tempfile.TemporaryDirectory() as run_dir:
        documents.write_json(Path(run_dir) / run_folder.FINGERPRINT, SHARED["facts"])  # as a worker does
        # Without the name of a GPU, train counts no FLOPs before its clock starts.
        train(config, Path(run_dir), environment={})
    return list(SHARED["module"].epoch_sec)


def measure(batch_size: int, shard: Shard, rounds: int, num_epochs: int) -> list[dict[str, Any]]:
    """A row for each epoch: batch, variant, round, ms_per_step. An uncounted round compiles first."""
    on_gpu = shard.device.type == "cuda"
    torch.compiler.reset()
    module = TimedVgg(SHARED["data"], learning_rate=1e-3, weight_decay=0.0, epochs=[num_epochs + 1])
    module.device_to_wait_for = shard.device
    SHARED["module"] = module
    module.to(shard.device)
    if on_gpu:
        module.compile_hot_path()
    weights = {name: tensor.clone() for name, tensor in module.state_dict().items()}
    num_steps = len(SHARED["data"].train_loader(batch_size, 1, shard))
    runs = dict(zip(VARIANTS, (run_bare_pytorch, run_bare_lightning, run_ours), strict=True))
    rows: list[dict[str, Any]] = []
    for number in range(-1, rounds):
        for variant in (*VARIANTS[number % 3 :], *VARIANTS[: number % 3]):
            module.train()
            module.load_state_dict(weights)
            module.epoch_sec = []
            kept = num_epochs if number >= 0 else 0
            graphs, SHARED["uncompiled_steps"] = counters["stats"]["unique_graphs"], 0
            seconds = runs[variant](make_config(batch_size, on_gpu, 1 + kept), shard)
            assert len(seconds) == 1 + kept
            assert number < 0 or counters["stats"]["unique_graphs"] == graphs, f"{variant} compiled while timed"
            assert SHARED["uncompiled_steps"] == 0, f"{variant} was not compiled in {SHARED['uncompiled_steps']} steps"
            rows += [
                {"batch": batch_size, "variant": variant, "round": number, "ms_per_step": 1e3 * value / num_steps}
                for value in seconds[1:]
            ]
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true", help="fp32 and uncompiled on a CPU, with tiny defaults")
    parser.add_argument("--batches", type=int, nargs="+", help="batch sizes (default 128 512 1024 4096)")
    parser.add_argument("--samples", type=int, help="images an epoch (default 48,000, as of Fashion-MNIST)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=3, help="timed epochs of a variant in a round")
    parser.add_argument("--out", type=Path, help="JSON file of the header and the rows")
    arguments = parser.parse_args()
    batches = arguments.batches or ([2, 8] if arguments.cpu else [128, 512, 1024, 4096])
    device = torch.device("cpu") if arguments.cpu else torch.device("cuda", 0)
    SHARED["data"] = generated(arguments.samples or (64 if arguments.cpu else 48_000))
    precision.apply(make_config(1, not arguments.cpu, 1).precision)  # as `train` does: graphs depend on these settings
    SHARED["facts"] = fingerprint.collect(torch, [] if arguments.cpu else [0])
    environment_tags = fingerprint.tags(SHARED["facts"])
    keys = ("env.gpu", "env.driver", "env.cuda", "env.cudnn", "env.torch", "env.cpu", "git.commit", "git.dirty")
    header = {key: environment_tags.get(key, "unknown") for key in keys} | {"lightning": pl.__version__}
    print("\n".join(f"{key}: {value}" for key, value in header.items()), flush=True)
    rows: list[dict[str, Any]] = []
    for batch_size in batches:
        start = time.monotonic()
        rows += measure(batch_size, Shard(0, 1, device), arguments.rounds, arguments.epochs)
        # Without CUDA graphs the host launches each kernel, and its time would be measured.
        skipped = counters["inductor"]["cudagraph_skips"]
        took = f"batch {batch_size}: {time.monotonic() - start:.0f} s, {skipped} times without a CUDA graph"
        print(took, file=sys.stderr, flush=True)
        if arguments.out:  # after each size, so an interrupted run leaves its rows
            arguments.out.write_text(json.dumps({"header": header, "rows": rows}, indent=1) + "\n")
    print(table(rows))
    return 0


if __name__ == "__main__":
    from benchmarks.overhead import tracking_overhead  # trainers import WORKLOAD by this name

    sys.exit(tracking_overhead.main())
