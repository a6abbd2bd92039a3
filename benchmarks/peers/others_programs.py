"""Unmodified third-party programs as `model=program`: our figures beside those that each program prints.

    python benchmarks/peers/others_programs.py --sources .others --gpus 1 2 --out others.json    # about four minutes
    python benchmarks/peers/others_programs.py --sources .others --gpus 0 --tiny                 # to check that it runs

`--sources` holds checkouts of karpathy/nanoGPT, and of huggingface/pytorch-image-models as `timm`. No network is
needed: nanoGPT trains on the source text of Python's library, and timm's train.py on scikit-learn's digits as PNGs. On
GPUs each runs under torchrun in bf16; with `--gpus 0` it runs plainly on the CPU.

Both sides come from the same run. The program's figures are read from its output (`worker.log`), without timetrial's
code: nanoGPT prints the time of each step, timm its mean rate of an epoch. nanoGPT does not print a time to its target:
it lies between the sums of step times before and after that evaluation.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.peers import beside
from tests.support.commands import environment, launched

TEXT_BYTES = 1_100_000
SIDE = 64  # pixels of timm's images
EVAL_IMAGES = 2_000
NANOGPT_EVERY, NANOGPT_STEPS = 200, 1_001  # steps between evaluations, number of steps


@dataclass(frozen=True)
class Setup:
    gpus: int
    tiny: bool

    @property
    def processes(self) -> int:
        return max(1, self.gpus)


@dataclass(frozen=True)
class Program:
    folder: str  # below --sources
    metric: str
    target: tuple[str, float, float]  # comparison, value with --tiny, value without
    prepare: Callable[[Path, Setup], None]
    options: Callable[[Setup], list[str]]
    printed: Callable[[str, float, Setup], dict[str, Any]]  # figures in its output, given the target


def text_of_the_library(folder: Path, setup: Setup) -> None:
    """Write input.txt, and run nanoGPT's prepare.py, which makes tokens of it."""
    data = folder / "data" / "shakespeare_char"
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    text = "".join(path.read_text(encoding="utf-8", errors="ignore") for path in files)
    text = text.encode("ascii", "ignore").decode()[: TEXT_BYTES // (10 if setup.tiny else 1)]
    (data / "input.txt").write_text(text)
    subprocess.run([sys.executable, "prepare.py"], cwd=data, check=True, stdout=subprocess.DEVNULL)


def nanogpt_options(setup: Setup) -> list[str]:
    every, steps = (10, 31) if setup.tiny else (NANOGPT_EVERY, NANOGPT_STEPS)
    tiny = "--batch_size=4 --block_size=32 --n_layer=2 --n_head=2 --n_embd=32 --eval_iters=3"
    sizes = tiny if setup.tiny else "--eval_iters=50"
    where = "" if setup.gpus else "--device=cpu"
    training = f"--gradient_accumulation_steps=2 --log_interval=1 --eval_interval={every} --max_iters={steps - 1}"
    command = f"{sys.executable} train.py config/train_shakespeare_char.py --compile=False {training} {sizes} {where}"
    samples, tokens = (8, 8 * 32) if setup.tiny else (128, 128 * 256)
    return [
        f"program.command={command}", r"program.step=(?:iter|step) (\d+):", "program.start=^using fused AdamW",
        r'+program.metrics={eval/loss: "val loss (\S+)", train/loss: "iter \d+: loss ([\d.]+)"}',
        f"program.samples_per_step={samples}", f"program.tokens_per_step={tokens}",
    ]  # fmt: skip


def nanogpt_printed(output: str, target: float, setup: Setup) -> dict[str, Any]:
    evaluations = {int(step): float(loss) for step, loss in re.findall(r"step (\d+): .*val loss (\S+)", output)}
    sec = {int(step): float(ms) / 1e3 for step, ms in re.findall(r"iter (\d+): .*time ([\d.]+)ms", output)}
    # A step time includes the evaluation before it. The first steps load kernels.
    between = [value for step, value in sec.items() if step not in evaluations and step > 20]
    samples = 8 if setup.tiny else 128
    reached = next((step for step, loss in evaluations.items() if loss <= target), None)
    until = (
        [sum(value for step, value in sec.items() if step < end) for end in (reached, reached + 1)] if reached else []
    )
    return {
        "evaluations": list(evaluations.values()), "rate": samples / statistics.mean(between), "time_between": until
    }  # fmt: skip


def images_of_digits(folder: Path, setup: Setup) -> None:
    """Write folders of classes, `train` and `validation`, with digits at random places."""
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits

    digits, draw = load_digits(), np.random.default_rng(0)
    counts = {"train": 400 if setup.tiny else 16_000, "validation": 128 if setup.tiny else EVAL_IMAGES}
    for split, count in counts.items():
        for number in range(count):
            # Training and evaluation use different digits.
            place = int(draw.integers(0, 1_400) if split == "train" else draw.integers(1_400, len(digits.images)))
            canvas = np.zeros((SIDE, SIDE), np.uint8)
            top, left = draw.integers(0, SIDE - 40, 2)
            canvas[top : top + 40, left : left + 40] = np.kron(digits.images[place] * 15, np.ones((5, 5)))
            path = folder / "images" / split / str(digits.target[place])
            path.mkdir(parents=True, exist_ok=True)
            Image.fromarray(canvas).convert("RGB").save(path / f"{number}.png")


def timm_options(setup: Setup) -> list[str]:
    batch, images = (64, 128) if setup.tiny else (256, EVAL_IMAGES)
    last = math.ceil(math.ceil(images / setup.processes) / batch) - 1  # index of an evaluation's last batch
    model = "resnet10t" if setup.tiny else "resnet18"
    where = "--amp --amp-dtype bfloat16" if setup.gpus else "--device cpu"
    training = f"--epochs {2 if setup.tiny else 6} --warmup-epochs 0 --lr 0.05 --log-interval 2"
    command = (
        f"{sys.executable} train.py --data-dir images --model {model} --input-size 3 {SIDE} {SIDE} --num-classes 10"
        f" --batch-size {batch} --workers {1 if setup.tiny else 8} {training} --seed {{seed}} {where}"
    )
    evaluation = rf"Test: \[ *{last}/{last}\].*Acc@1: +\S+ \( *([\d.]+)\)"
    return [
        f"program.command={command}",
        rf'+program.metrics={{eval/top1: "{evaluation}", train/loss: "Loss: (\S+)"}}',
        r"program.epoch=Train: (\d+)", r"program.step=Train: \d+ \[ *(\d+)/", "program.unit=images", "seed=1",
        f"program.samples_per_step={batch * setup.processes}", "program.start=Train: ",
    ]  # fmt: skip


def timm_printed(output: str, target: float, setup: Setup) -> dict[str, Any]:
    lines = re.findall(r"Train: (\d+) \[.*?\((?:[\d.]+)s, +([\d.]+)/s\)  LR", output)
    rates = {epoch: float(rate) for epoch, rate in lines}  # an epoch's last line has its mean
    evaluations = re.findall(r"Test: \[ *(\d+)/\1\].*Acc@1: +\S+ \( *([\d.]+)\)", output)
    return {
        "evaluations": [float(top1) for _, top1 in evaluations], "rate": list(rates.values()), "time_between": []
    }  # fmt: skip


PROGRAMS = {
    "nanoGPT": Program("nanoGPT", "loss", ("<=", 4.5, 2.0), text_of_the_library, nanogpt_options, nanogpt_printed),
    "timm": Program("timm", "top1", (">=", 15.0, 90.0), images_of_digits, timm_options, timm_printed),
}


def measured(name: str, cwd: Path, setup: Setup) -> dict[str, Any]:
    """Figures of a run: ours, and those that the program prints."""
    program, began = PROGRAMS[name], time.monotonic()
    compares, small, full = program.target
    target = small if setup.tiny else full
    options = [*program.options(setup), f'target="{compares}{target}"', f"gpus={setup.gpus}", "tracking.offline=true"]
    if setup.gpus:
        options += ["program.launch=torchrun", "precision=bf16"]
    started = [sys.executable, str(ROOT / "launch.py"), "model=program", *options]
    done = subprocess.run(started, cwd=cwd, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    run = launched(0, done.stdout, cwd)
    figures = run.result["metrics"]
    printed = program.printed((run.folder / "worker.log").read_text(), target, setup)
    ours = {
        "evaluations": [each["metrics"][program.metric] for each in run.result["evaluations"]],
        "rate": figures.get("throughput/samples_per_sec"),
        "time_to_accuracy_sec": figures.get("time/to_accuracy_sec"),
        "world_size": figures.get("world_size"),
    }
    took = time.monotonic() - began
    shutil.rmtree(run.folder)
    return {"program": name, "gpus": setup.gpus, "ours": ours, "own": printed, "took_sec": round(took, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--programs", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--tiny", action="store_true", help="small networks and little data, to check that it runs")
    parser.add_argument("--commit", default=beside.commit(), help="for a checkout without .git")
    parser.add_argument("--out", type=Path, help="JSON file of the rows, written after each run")
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in arguments.programs:
            cwd = Path(temporary) / name
            shutil.copytree(arguments.sources / PROGRAMS[name].folder, cwd)
            PROGRAMS[name].prepare(cwd, Setup(arguments.gpus[0], arguments.tiny))
            for gpus in arguments.gpus:
                rows.append(measured(name, cwd, Setup(gpus, arguments.tiny)) | {"commit": arguments.commit})
                print(json.dumps(rows[-1]), flush=True)
                if arguments.out:
                    arguments.out.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
