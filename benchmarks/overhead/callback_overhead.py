"""Cost of the TimeTrial callback for a Lightning script: the same training with it and without, in turns.

    python benchmarks/overhead/callback_overhead.py --rounds 6

A plain script trains a small network on data that are on the device. Each round trains it once with the callback and
once without, in alternating order. Whole epochs are timed between synchronisations, without the first of each training.
The cost is the difference between the two medians of a round, with its standard error over the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import pytorch_lightning as pl
import torch

from tracking.lightning import TimeTrial


class Network(pl.LightningModule):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(256, width), torch.nn.GELU(), torch.nn.Linear(width, width), torch.nn.GELU(),
            torch.nn.Linear(width, 10),
        )  # fmt: skip
        self.epoch_sec: list[float] = []
        self._began = 0.0

    def _now(self) -> float:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        return time.perf_counter()

    def on_train_epoch_start(self) -> None:
        self._began = self._now()

    def on_train_epoch_end(self) -> None:
        self.epoch_sec.append(self._now() - self._began)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(self.layers(batch[0]), batch[1])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def epochs(arguments: argparse.Namespace, device: str, batches: Any, callbacks: list[pl.Callback]) -> list[float]:
    module = Network(arguments.width)
    trainer = pl.Trainer(
        accelerator="gpu" if device == "cuda" else "cpu", devices=1, max_epochs=arguments.epochs, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, callbacks=callbacks,
    )  # fmt: skip
    trainer.fit(module, batches)
    return module.epoch_sec[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=5, help="epochs of a training; the first is not timed")
    parser.add_argument("--steps", type=int, default=500, help="steps of an epoch")
    parser.add_argument("--batch", type=int, default=8192)
    parser.add_argument("--width", type=int, default=8192)
    arguments = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    batch = [torch.rand(arguments.batch, 256, device=device), torch.randint(10, (arguments.batch,), device=device)]
    every: Any = [batch] * arguments.steps
    batches: Any = torch.utils.data.DataLoader(every, batch_size=None)
    differences, step_ms = [], []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(arguments.rounds):
            medians = {}
            for tracked in (True, False) if number % 2 else (False, True):
                callbacks: list[pl.Callback] = [TimeTrial(runs_dir=folder, offline=True)] if tracked else []
                medians[tracked] = statistics.median(epochs(arguments, device, batches, callbacks))
            differences.append(1e3 * (medians[True] - medians[False]) / arguments.steps)
            step_ms.append(1e3 * medians[False] / arguments.steps)
            added = f"{differences[-1]:+.4f} ms with TimeTrial"
            print(f"round {number + 1}: {step_ms[-1]:.4f} ms a step, {added}", flush=True)
    error = statistics.stdev(differences) / len(differences) ** 0.5
    bare = statistics.fmean(step_ms)
    mean = statistics.fmean(differences)
    print(f"{bare:.3f} ms a step; TimeTrial {mean:+.4f} ± {error:.4f} ms ({mean / bare:+.2%} ± {error / bare:.2%})")


if __name__ == "__main__":
    main()
