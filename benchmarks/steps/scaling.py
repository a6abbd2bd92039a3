"""Measures all workloads but language models and MiniGo on one to eight GPUs, side by side where there is room.

It works in calls of ten minutes. A call goes on where the last one ended.

    python benchmarks/steps/scaling.py --out scaling                # again until it says that all is done
    python benchmarks/steps/scaling.py --out scaling --dry-run      # the commands, for eight GPUs
    python benchmarks/steps/scaling.py --only "accuracy|report"     # times to accuracy alone

First it measures the time to accuracy of each workload on each number of GPUs, by `+study=scaling`. Then it does the
same on several GPUs with smaller batches, down to one GPU's over all of them. Then it measures rates on generated data,
where a GPU's batch stays the same (weak scaling), and last what the links of several GPUs are worth. A command is a
sweep over three seeds, so that its later runs are forked. in_calls.py says which file is where.
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
COUNTS = (1, 2, 4, 8)  # The narrow ones first: side by side they compile what the wide ones then find.
GENERATED = [name for name in MODELS if name != "vgg"]  # VGG has no generated data.
SEEDS = "seed=1,2,3"
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
