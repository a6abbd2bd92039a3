"""Measure all workloads except language models and MiniGo on one to eight GPUs, side by side where there is room.

It works in calls of ten minutes. Each continues where the last one ended.

    python benchmarks/steps/scaling.py --out scaling                # again until it says that all is done
    python benchmarks/steps/scaling.py --out scaling --dry-run      # the commands, for eight GPUs
    python benchmarks/steps/scaling.py --only "accuracy|report"     # times to accuracy only

In this order:

1. time to accuracy of each workload on each number of GPUs, by `+study=scaling`;
2. on several GPUs the same with smaller batches, down to one GPU's batch over all of them;
3. rates on generated data, with the same batch on each GPU (weak scaling);
4. on several GPUs, the gain of their links.

Each command is a sweep over three seeds, so later runs are forked. in_calls.py says which files are written.
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
    batch_size: int  # of a GPU, as in the recipes
    multiple: int  # a batch must be a multiple of this
    seconds: int  # upper bound of the time of three runs on an H100, with the compilation cached


MODELS = {
    "maskrcnn": Model(16, 1, 180),  # The longest compilation comes first.
    "resnet50": Model(128, 1, 120),
    "ncf": Model(1_048_575, 5, 90),
    "ssd": Model(32, 1, 100),
    "transformer": Model(8192, 128, 80),
    "gnmt": Model(4096, 1, 80),
    "vgg": Model(64, 1, 60),
}
COUNTS = (1, 2, 4, 8)  # narrow runs first: side by side they fill the cache for wide ones
GENERATED = [name for name in MODELS if name != "vgg"]  # VGG has no generated data.
SEEDS = "seed=1,2,3"
COMMON = "tracking.system_metrics_interval_sec=0.5 precision=bf16"
# With so few steps, compiling takes most of the time.
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
    yield from links(counts[1:])
    yield Command("worth", "-m tracking report timetrial --check --from-folders --runs-dir links --out worth")


def accuracies(counts: list[int]) -> Iterator[Command]:
    for count in counts:
        for name in MODELS:
            yield accuracy(f"accuracy-{name}-{count}gpu", name, count)


def smaller_batches(counts: list[int]) -> Iterator[Command]:
    for count in counts:
        for name, model in MODELS.items():
            for part in (2**power for power in range(1, count.bit_length())):
                size = model.batch_size // part // model.multiple * model.multiple
                yield accuracy(f"batch-{name}-{count}gpu-{size}", name, count, f" batch_size={size}")


def accuracy(label: str, name: str, count: int, more: str = "") -> Command:
    words = sweep(f"{COMMON} +study=scaling model={name} gpus={count} {SEEDS}{more}", "accuracy")
    return Command(label, words, count, MODELS[name].seconds)


def rates(counts: list[int]) -> Iterator[Command]:
    for count in counts:
        for name in GENERATED:
            words = sweep(f"{COMMON} model={name} {SHORT} gpus={count} {SEEDS}", "rate")
            yield Command(f"rate-{name}-{count}gpu", words, count, MODELS[name].seconds)


def links(counts: list[int]) -> Iterator[Command]:
    for count in counts:
        for name in GENERATED:
            words = sweep(f"{COMMON} +study=topology model={name} {SHORT} gpus={count} {SEEDS}", "links")
            yield Command(f"links-{name}-{count}gpu", words, count, 2 * MODELS[name].seconds)


if __name__ == "__main__":
    sys.exit(in_calls.main(__doc__ or "", commands, default="scaling"))
