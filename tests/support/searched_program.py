"""A program whose settings take a known time, and searches over it, through launch.py."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

# Epochs of a hundredth of a second; the learning rate decides how many there are, and the batch how long they are.
PROGRAM = """
import math, sys, time
lr, batch = float(sys.argv[1]), int(sys.argv[2])
need = 4 + round(6 * abs(math.log(lr / 0.01)))
for epoch in range(1, 31):
    time.sleep(0.08 / batch)
    print(f"epoch {epoch} accuracy {0.9 * epoch / need:.3f}", flush=True)
    if epoch >= need:
        time.sleep(1000)  # A search does not wait for what follows the target.
"""


def words(folder: Path, *more: str) -> tuple[str, ...]:
    (folder / "program.py").write_text(PROGRAM)
    return ("-m", "+search=quickest", *options(), *more)


def options() -> tuple[str, ...]:
    return (
        "model=program", "gpus=0", "target=0.9",
        # This command names no Python, so the fingerprint imports no PyTorch.
        f"program.command=env {sys.executable} program.py {{lr}} {{batch_size}} {{seed}}",
        '+program.metrics={eval/accuracy: "accuracy ([0-9.]+)"}', 'program.epoch="epoch ([0-9]+)"',
        "tracking.offline=true", "tracking.system_metrics_interval_sec=0",
    )  # fmt: skip


def that_ends(folder: Path, *more: str) -> tuple[str, ...]:
    """The options of a run of the same program that ends where it reaches its target."""
    (folder / "program.py").write_text(PROGRAM.replace("time.sleep(1000)", "break"))
    return (*options(), "model.optimizer.lr=0.01", *more)


def trace(folder: Path) -> dict[str, Any]:
    """The search.json of the one search in a folder."""
    [path] = folder.glob("runs/*/search.json")
    read: dict[str, Any] = json.loads(path.read_text())
    return read
