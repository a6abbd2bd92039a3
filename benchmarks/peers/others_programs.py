"""Programs of others, unmodified, as `model=program`: our figures beside those that each prints of itself.

    python benchmarks/peers/others_programs.py --sources .others --gpus 1 2 --out others.json    # some four minutes
    python benchmarks/peers/others_programs.py --sources .others --gpus 0 --tiny                 # whether it runs

`--sources` holds checkouts of karpathy/nanoGPT, and of huggingface/pytorch-image-models as `timm`. No network is
needed: nanoGPT trains on the text of Python's library, and timm's train.py on scikit-learn's digits as PNGs. With a
GPU or more, each runs under torchrun in bf16; with `--gpus 0` as it is, on the CPU.

Both sides are of one run. The program's own are read from what it printed (`worker.log`), without timetrial's code:
nanoGPT prints the time of each step, and timm its mean rate of an epoch. nanoGPT says no time to its target. It lies
between the sums of the steps before and after that evaluation.
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
SIDE = 64  # of timm's images
EVAL_IMAGES = 2_000
NANOGPT_EVERY, NANOGPT_STEPS = 200, 1_001  # steps between evaluations, and in all
NUMBER = r"([\d.]+)"


@dataclass(frozen=True)
class Asked:
    gpus: int
    tiny: bool

    @property
    def processes(self) -> int:
        return max(1, self.gpus)


@dataclass(frozen=True)
class Program:
    folder: str  # in --sources
    metric: str
    target: tuple[str, float, float]  # how it compares, of --tiny, and else
    prepare: Callable[[Path, Asked], None]
    options: Callable[[Asked], list[str]]
    own: Callable[[str, float, Asked], dict[str, Any]]  # of its words and the target


def text_of_the_library(folder: Path, asked: Asked) -> None:
    """nanoGPT's own prepare.py makes its tokens of input.txt."""
    data = folder / "data" / "shakespeare_char"
    files = sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))
    text = "".join(path.read_text(encoding="utf-8", errors="ignore") for path in files)
    text = text.encode("ascii", "ignore").decode()[: TEXT_BYTES // (10 if asked.tiny else 1)]
    (data / "input.txt").write_text(text)
    subprocess.run([sys.executable, "prepare.py"], cwd=data, check=True, stdout=subprocess.DEVNULL)


def nanogpt_options(asked: Asked) -> list[str]:
    every, steps = (10, 31) if asked.tiny else (NANOGPT_EVERY, NANOGPT_STEPS)
    tiny = "--batch_size=4 --block_size=32 --n_layer=2 --n_head=2 --n_embd=32 --eval_iters=3"
    sizes = tiny if asked.tiny else "--eval_iters=50"
    where = "" if asked.gpus else "--device=cpu"
    given = f"--gradient_accumulation_steps=2 --log_interval=1 --eval_interval={every} --max_iters={steps - 1}"
    command = f"{sys.executable} train.py config/train_shakespeare_char.py --compile=False {given} {sizes} {where}"
    samples, tokens = (8, 8 * 32) if asked.tiny else (128, 128 * 256)
    return [
        f"program.command={command}", r"program.step=(?:iter|step) (\d+):", "program.start=^using fused AdamW",
        r'+program.metrics={eval/loss: "val loss (\S+)", train/loss: "iter \d+: loss ([\d.]+)"}',
        f"program.samples_per_step={samples}", f"program.tokens_per_step={tokens}",
    ]  # fmt: skip


def nanogpt_own(words: str, target: float, asked: Asked) -> dict[str, Any]:
    evaluations = {int(step): float(loss) for step, loss in re.findall(r"step (\d+): .*val loss (\S+)", words)}
    sec = {int(step): float(ms) / 1e3 for step, ms in re.findall(r"iter (\d+): .*time ([\d.]+)ms", words)}
    # Its time of a step holds the evaluation before it; the first steps load kernels.
    between = [value for step, value in sec.items() if step not in evaluations and step > 20]
    samples = 8 if asked.tiny else 128
    reached = next((step for step, loss in evaluations.items() if loss <= target), None)
    until = (
        [sum(value for step, value in sec.items() if step < end) for end in (reached, reached + 1)] if reached else []
    )
    return {
        "evaluations": list(evaluations.values()), "rate": samples / statistics.mean(between), "time_between": until
    }  # fmt: skip


def images_of_digits(folder: Path, asked: Asked) -> None:
    """Folders of classes, `train` and `validation`: digits at random places."""
    import numpy as np
    from PIL import Image
    from sklearn.datasets import load_digits

    digits, draw = load_digits(), np.random.default_rng(0)
    counts = {"train": 400 if asked.tiny else 16_000, "validation": 128 if asked.tiny else EVAL_IMAGES}
    for split, count in counts.items():
        for number in range(count):
            # Digits of the training are not those of the evaluation.
            place = int(draw.integers(0, 1_400) if split == "train" else draw.integers(1_400, len(digits.images)))
            canvas = np.zeros((SIDE, SIDE), np.uint8)
            top, left = draw.integers(0, SIDE - 40, 2)
            canvas[top : top + 40, left : left + 40] = np.kron(digits.images[place] * 15, np.ones((5, 5)))
            path = folder / "images" / split / str(digits.target[place])
            path.mkdir(parents=True, exist_ok=True)
            Image.fromarray(canvas).convert("RGB").save(path / f"{number}.png")


def timm_options(asked: Asked) -> list[str]:
    batch, images = (64, 128) if asked.tiny else (256, EVAL_IMAGES)
    last = math.ceil(math.ceil(images / asked.processes) / batch) - 1  # the number of an evaluation's last batch
    model = "resnet10t" if asked.tiny else "resnet18"
    where = "--amp --amp-dtype bfloat16" if asked.gpus else "--device cpu"
    given = f"--epochs {2 if asked.tiny else 6} --warmup-epochs 0 --lr 0.05 --log-interval 2"
    command = (
        f"{sys.executable} train.py --data-dir images --model {model} --input-size 3 {SIDE} {SIDE} --num-classes 10"
        f" --batch-size {batch} --workers {1 if asked.tiny else 8} {given} --seed {{seed}} {where}"
    )
    evaluation = rf"Test: \[ *{last}/{last}\].*Acc@1: +\S+ \( *([\d.]+)\)"
    return [
        f"program.command={command}",
        rf'+program.metrics={{eval/top1: "{evaluation}", train/loss: "Loss: (\S+)"}}',
        r"program.epoch=Train: (\d+)", r"program.step=Train: \d+ \[ *(\d+)/", "program.unit=images", "seed=1",
        f"program.samples_per_step={batch * asked.processes}", "program.start=Train: ",
    ]  # fmt: skip


def timm_own(words: str, target: float, asked: Asked) -> dict[str, Any]:
    lines = re.findall(r"Train: (\d+) \[.*?\((?:[\d.]+)s, +([\d.]+)/s\)  LR", words)
    of_epochs = {epoch: float(rate) for epoch, rate in lines}  # the last line's mean of an epoch
    evaluations = re.findall(r"Test: \[ *(\d+)/\1\].*Acc@1: +\S+ \( *([\d.]+)\)", words)
    return {
        "evaluations": [float(top1) for _, top1 in evaluations], "rate": list(of_epochs.values()), "time_between": []
    }  # fmt: skip


PROGRAMS = {
    "nanoGPT": Program("nanoGPT", "loss", ("<=", 4.5, 2.0), text_of_the_library, nanogpt_options, nanogpt_own),
    "timm": Program("timm", "top1", (">=", 15.0, 90.0), images_of_digits, timm_options, timm_own),
}


def measured(name: str, cwd: Path, asked: Asked) -> dict[str, Any]:
    """Both sides of a run."""
    program, began = PROGRAMS[name], time.monotonic()
    compares, small, full = program.target
    target = small if asked.tiny else full
    options = [*program.options(asked), f'target="{compares}{target}"', f"gpus={asked.gpus}", "tracking.offline=true"]
    if asked.gpus:
        options += ["program.launch=torchrun", "precision=bf16"]
    started = [sys.executable, str(ROOT / "launch.py"), "model=program", *options]
    done = subprocess.run(started, cwd=cwd, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    run = launched(0, done.stdout, cwd)
    figures = run.result["metrics"]
    own = program.own((run.folder / "worker.log").read_text(), target, asked)
    ours = {
        "evaluations": [each["metrics"][program.metric] for each in run.result["evaluations"]],
        "rate": figures.get("throughput/samples_per_sec"),
        "time_to_accuracy_sec": figures.get("time/to_accuracy_sec"),
        "world_size": figures.get("world_size"),
    }
    took = time.monotonic() - began
    shutil.rmtree(run.folder)
    return {"program": name, "gpus": asked.gpus, "ours": ours, "own": own, "took_sec": round(took, 1)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, required=True)
    parser.add_argument("--programs", nargs="+", choices=list(PROGRAMS), default=list(PROGRAMS))
    parser.add_argument("--gpus", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--tiny", action="store_true", help="small networks and little data, to see whether it runs")
    parser.add_argument("--commit", default=beside.commit(), help="where the checkout has no .git")
    parser.add_argument("--out", type=Path, help="write the rows as JSON, after each run")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        for name in given.programs:
            cwd = Path(temporary) / name
            shutil.copytree(given.sources / PROGRAMS[name].folder, cwd)
            PROGRAMS[name].prepare(cwd, Asked(given.gpus[0], given.tiny))
            for gpus in given.gpus:
                rows.append(measured(name, cwd, Asked(gpus, given.tiny)) | {"commit": given.commit})
                print(json.dumps(rows[-1]), flush=True)
                if given.out:
                    given.out.write_text(json.dumps(rows, indent=2))


if __name__ == "__main__":
    main()
