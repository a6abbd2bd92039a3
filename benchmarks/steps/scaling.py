"""Measures all workloads but language models and MiniGo on one to eight GPUs, side by side where there is room.

It works in calls of ten minutes. A call goes on where the last one ended.

    python benchmarks/steps/scaling.py --out scaling                # again until it says that all is done
    python benchmarks/steps/scaling.py --out scaling --dry-run      # the commands, for eight GPUs
    python benchmarks/steps/scaling.py --only "accuracy|report"     # times to accuracy alone

First time to accuracy of each workload on each number of GPUs, three seeds, by `+study=scaling`; then on several GPUs
the same with smaller batches, down to one GPU's over all of them; then rates on generated data, where a GPU's batch
stays the same (weak scaling); then, of several GPUs, what their links are worth. See in_calls.py for what is where.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from benchmarks.steps import in_calls
from benchmarks.steps.in_calls import Command, sweep


class Model(NamedTuple):
    batch_size: int  # of a GPU, as the recipes have it
    multiple: int  # each batch is a multiple of this
    seconds: int  # upper bound of a run's time on an H100, with its compilation cached


MODELS = {
    "vgg": Model(64, 1, 40),
    "resnet50": Model(128, 1, 70),
    "ssd": Model(32, 1, 70),
    "maskrcnn": Model(16, 1, 110),
    "transformer": Model(8192, 128, 60),
    "gnmt": Model(4096, 1, 70),
    "ncf": Model(1_048_575, 5, 25),
}
COUNTS = (1, 2, 4, 8)  # The narrow ones first: side by side they compile what the wide ones then find.
SEEDS = (1, 2, 3)
COMMON = "tracking.system_metrics_interval_sec=0.5 precision=bf16"
# So few steps that compiling takes most of the time.
SHORT = "dataset=synthetic max_epochs=2 limit_train_batches=60 log_every_n_steps=10"
REPORT = "-m tracking report timetrial --by model,gpus,batch_size --check --from-folders"


def commands(indices: list[int]) -> Iterator[Command]:
    counts = [count for count in COUNTS if count <= len(indices)]
    yield from accuracies(counts)
    yield Command("report", f"{REPORT} --runs-dir accuracy --out report")
    yield from smaller_batches(counts)
    yield Command("batches", f"{REPORT} --runs-dir accuracy --out batches")
    yield from rates(counts)
    yield Command("rates", f"{REPORT} --runs-dir rate --out rates")
    if counts[-1] > 1:
        several = ",".join(str(count) for count in counts if count > 1)
        yield Command("links", sweep(f"{COMMON} +study=topology model=resnet50 gpus={several} seed=1,2,3", "links"))


def accuracies(counts: list[int]) -> Iterator[Command]:
    for seed in SEEDS:  # One of each setting comes before the second of any.
        for count in counts:
            for name in MODELS:
                yield accuracy(f"accuracy-{name}-{count}gpu", name, count, seed)


def smaller_batches(counts: list[int]) -> Iterator[Command]:
    for seed in SEEDS:
        for count in counts:
            for name, model in MODELS.items():
                for part in (2**power for power in range(1, count.bit_length())):
                    size = model.batch_size // part // model.multiple * model.multiple
                    yield accuracy(f"batch-{name}-{count}gpu-{size}", name, count, seed, f" batch_size={size}")


def accuracy(label: str, name: str, count: int, seed: int, more: str = "") -> Command:
    words = sweep(f"{COMMON} +study=scaling model={name} gpus={count} seed={seed}{more}", "accuracy")
    return Command(f"{label}-seed{seed}", words, count, MODELS[name].seconds)


def rates(counts: list[int]) -> Iterator[Command]:
    for count in counts:
        for name, model in MODELS.items():
            if name != "vgg":  # It has no generated data: its images are small enough to lie on the GPU.
                words = sweep(f"{COMMON} model={name} {SHORT} gpus={count} seed=1,2,3", "rate")
                yield Command(f"rate-{name}-{count}gpu", words, count, 2 * model.seconds)


if __name__ == "__main__":
    sys.exit(in_calls.main(__doc__ or "", commands, default="scaling"))
