"""Tests the advice to runs on a CPU by taking it: runs that are slow on purpose, beside runs that follow it.

    python benchmarks/steps/advice_taken.py            # some 15 minutes on two cores
    python benchmarks/steps/advice_taken.py --pairs evaluation

Each pair differs in one thing, which the slow run's advice names: an option, the number of cores, or programs that
compute on the run's core. Slow and taken runs take turns, a pair of each seed, and train as much. Prints a Markdown
table: how often the slow run's verdict gave the advice, the limit's share of the time, and seconds on the clock. Each
run also prints a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

ROOT = Path(__file__).resolve().parents[2]
Sides = tuple[dict[str, Any], dict[str, Any]]  # results of a slow run and of one that takes the advice
JPEGS = {"large": 3200, "small": 200}  # the longer side of JPEG files, in pixels, by the folder that holds them
OPTIONS = ("gpus=0", "stop_at_target=false", "tracking.offline=true", "tracking.system_metrics_interval_sec=0.5")
MINIGO = (
    "model=minigo", "recipe=minigo_cpu", "max_epochs=1", "log_every_n_steps=2", "model.eval_every_samples=2048",
    "model.hparams.games=16", "model.hparams.readouts=8", "model.hparams.examples=2048", "model.hparams.eval_games=2",
)  # fmt: skip
DIGITS = ("model=vgg", "dataset=digits", "max_epochs=2")
LANGUAGE = (
    "model=gpt", "recipe=gpt_cpu", "max_epochs=1", "dataset.train_tokens=8192", "log_every_n_steps=4",
    "model.hparams.width=256",
    "model.eval_every_steps=null", "model.eval_every_samples=8192",
)  # fmt: skip
FILES = (
    "model=resnet50", "recipe=resnet50_cpu", "dataset=imagenet", "dataset.size=null", "max_epochs=3", "batch_size=16",
    "eval_at_epochs=[3]", "target=0.99", "log_every_n_steps=1", "model.hparams.image_size=32",
    "model.hparams.eval_resize=36",
)  # fmt: skip
RATINGS = ("model=ncf", "recipe=ncf_cpu", "max_epochs=1")
SMALL = ("dataset.size=100000", "log_every_n_steps=1", "model.hparams.factors=4", "model.hparams.layers=[8,8,8,8]")
LARGE = (
    "dataset.size=1000000", "log_every_n_steps=10", "batch_size=525", "limit_train_batches=400",
    "model.hparams.factors=128", "model.hparams.layers=[256,64]",
)  # fmt: skip
CORES, BUSY = "cores", "busy programs"  # not options: the run's cores, and programs on the first
PATH = "dataset.path"


@dataclass(frozen=True)
class Pair:
    """A slow run and one that takes its advice: they differ in `changed`, which the advice names by `words`.

    `cores` are those of both runs. `cause` is the limit; by default the name of the pair.
    """

    options: Sequence[str]
    changed: str
    slow: Any  # a number of cores or programs, or an option's value
    taken: Any
    words: str
    cores: int = 1
    cause: str = ""


PAIRS = {
    "data": Pair(FILES, PATH, "large", "small", "smaller image files", cores=2),
    "steps": Pair((*RATINGS, *SMALL), "batch_size", 525, 52500, "a larger batch_size", cause="processor"),
    "checkpoint": Pair(
        (*RATINGS, *LARGE), "checkpoint_every_steps", 1, 100, "a larger checkpoint_every_steps"
    ),
    "selfplay": Pair(
        (*MINIGO, "model.hparams.gate_games=2", "model.hparams.match_readouts=4"),
        "model.hparams.games_at_once", 1, 16, "games_at_once",
    ),
    "gate": Pair((*MINIGO, "model.hparams.gate_games=16"), "model.hparams.match_readouts", 64, 8, "match_readouts"),
    "evaluation": Pair((*DIGITS, "log_every_n_steps=1"), "eval_every_steps", 1, 20, "eval_every_steps"),
    "update": Pair(LANGUAGE, "global_batch_size", 64, 4096, "global_batch_size"),
    "processor": Pair((*DIGITS, "log_every_n_steps=10"), CORES, 1, 2, "more cores"),
    "neighbours": Pair((*DIGITS, "log_every_n_steps=10"), BUSY, 3, 0, "cores of its own"),
}  # fmt: skip


@contextmanager
def busy(number: int, core: int) -> Iterator[None]:
    """Let `number` programs compute on this core in the block."""
    command = ["taskset", "-c", str(core), sys.executable, "-c", "while True: pass"]
    programs = [subprocess.Popen(command) for _ in range(number)]
    try:
        yield
    finally:
        for program in programs:
            program.kill()
            program.wait()


def write_jpegs(folder: Path) -> None:
    """Write folders of JPEG files in ImageNet's layout, with 64 to train on and 8 to evaluate."""
    rng = np.random.default_rng(0)
    for name, side in JPEGS.items():
        for split, number in (("train", 64), ("val", 8)):
            for place in range(number):
                path = folder / name / split / str(place % 2) / f"{place}.JPEG"
                path.parent.mkdir(parents=True, exist_ok=True)
                noise = Image.fromarray(rng.integers(0, 256, (25, 25, 3), dtype=np.uint8))
                noise.resize((side, side * 3 // 4), Image.Resampling.BICUBIC).save(path, quality=90)


def result(pair: Pair, value: Any, seed: int) -> dict[str, Any]:
    """The result of one run, on one core unless the pair changes that: with more, threads wait for each other."""
    cores = sorted(os.sched_getaffinity(0))[: value if pair.changed == CORES else pair.cores]
    changed = [] if pair.changed in (CORES, BUSY) else [f"{pair.changed}={value}"]
    with tempfile.TemporaryDirectory() as folder, busy(value if pair.changed == BUSY else 0, cores[0]):
        write_jpegs(Path(folder))
        options = [*OPTIONS, *pair.options, *changed, f"seed={seed}", f"runs_dir={folder}/runs"]
        options = [word.replace(f"{PATH}=", f"{PATH}={folder}/") for word in options]
        command = ["taskset", "-c", ",".join(map(str, cores)), sys.executable, str(ROOT / "launch.py"), *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        [path] = Path(folder).glob("runs/*/result.json")
        read: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return read


def in_turns(name: str, pair: Pair, seeds: int) -> list[Sides]:
    """Results of both sides of each seed."""
    sides = []
    for seed in range(1, seeds + 1):
        sides.append((result(pair, pair.slow, seed), result(pair, pair.taken, seed)))
        for side, each in zip(("slow", "taken"), sides[-1], strict=True):
            kept = {key: each["bottleneck"][key] for key in ("words", "next", "total_sec")}
            print(json.dumps({"pair": name, "side": side, **kept}), flush=True)
    return sides


def row(name: str, pair: Pair, runs: Sequence[Sides]) -> str:
    cause = pair.cause or name
    limits = [before["bottleneck"] for before, _ in runs]
    given = sum(pair.words in limit["next"] for limit in limits)
    shares = ", ".join(f"{100 * limit['shares'].get(cause, 0.0):.0f}" for limit in limits)
    slow, taken = ([run["bottleneck"]["total_sec"] for run in side] for side in zip(*runs, strict=True))
    ratios = [before / after for before, after in zip(slow, taken, strict=True)]
    spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    times = [f"{statistics.median(side):.1f}" for side in (slow, taken)]
    change = f"{pair.changed.rpartition('.')[2]}: {pair.slow}, {pair.taken}"
    return f"| {' | '.join([f'`{cause}`', change, f'{given} of {len(runs)}', f'{shares} %', *times, spread])} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", nargs="+", choices=PAIRS, default=list(PAIRS))
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    rows = [row(name, PAIRS[name], in_turns(name, PAIRS[name], arguments.seeds)) for name in arguments.pairs]
    print("| limit | slow, taken | advised | its share | slow (s) | taken (s) | times as fast |")
    print(f"|{'---|' * 7}")
    print("\n".join(rows))


if __name__ == "__main__":
    main()
