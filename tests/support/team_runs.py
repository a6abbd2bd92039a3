"""Runs as a team has them after some days: two sweeps with reports, single runs, a failure, missed targets.

Made by hand in seconds (see studied), from commands as users give them and with the sweeps' own code around them, so
that MLflow shows what it would show of trained ones. The figures are invented.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from conf.schema import RunConfig
from tests.support import studied
from tests.support.composing import EIGHT_GPUS, composed, jobs
from tracking.jobs.plan import sweep
from tracking.jobs.plan.job import Job
from tracking.record import documents, run_folder
from tracking.request import checks

NUM_RUNS = 25  # parents included
HOUR_MS = 3600 * 1000
OLD_DRIVER = "570.86.10"  # the five single runs'
SPEED = {"tf32": 0.62, "bf16": 0.41}  # a step's time, in fp32's


@dataclass(frozen=True)
class Planned:
    """A command; the seconds of a step in fp32 and the steps of an epoch, on one GPU; the epochs to the target; and by
    place which jobs end otherwise than there: `missed`, or by a kind of failure."""

    command: str
    step_sec: float
    num_steps: int
    num_epochs: int
    ends: dict[int, str] = field(default_factory=dict)


SWEEPS = (
    Planned("model=maskrcnn gpus=1,2,4 precision=bf16 seed=1,2", 0.35, 60, 9, {2: "missed"}),
    Planned(
        "model=vgg dataset=fashion_mnist gpus=1,2,4 precision=tf32,bf16 seed=1,2", 0.011, 120, 14,
        {9: "oom", 4: "missed"},
    ),
)  # fmt: skip
SINGLE = Planned("model=vgg dataset=fashion_mnist gpus=1 precision=bf16 seed=11,12,13,14,15", 0.011, 120, 14)


def make(root: Path, uri: str) -> Iterator[list[Path]]:
    """Make all run folders below `root`: the single runs, then each sweep with its jobs, as soon as they are there."""
    chance = random.Random(7)  # the same figures each time
    start_ms = run_folder.now_ms() - 8 * HOUR_MS
    single = enumerate(_jobs(root, SINGLE))
    yield [_run(root, job, uri, SINGLE, chance, start_ms - number * HOUR_MS) for number, job in single]
    for number, planned in enumerate(SWEEPS):
        yield _sweep(root, uri, planned, chance, start_ms + 2 * number * HOUR_MS)


def _jobs(root: Path, planned: Planned) -> list[Job]:
    common = ["tracking.experiment=studies", f"runs_dir={root}", "price_per_hour=12.5"]
    made = []
    for overrides in jobs(planned.command.split()):
        values = dict(override.split("=", 1) for override in overrides)
        gpus, seed = int(values.pop("gpus")), int(values.pop("seed"))
        groups = tuple(f"{key}={value}" for key, value in values.items())
        config = copy.deepcopy(_composed((*groups, *common)))  # composing each job would take most of the time
        config.gpus, config.seed = gpus, seed
        made.append(Job(checks.check_run(config, EIGHT_GPUS), overrides))
    return made


@cache
def _composed(overrides: tuple[str, ...]) -> RunConfig:
    return composed(overrides)


def _sweep(root: Path, uri: str, planned: Planned, chance: random.Random, start_ms: int) -> list[Path]:
    made = _jobs(root, planned)
    with sweep.create(made, ["-m", *planned.command.split()], uri) as owner:
        folder = owner.folder
    info = dataclasses.replace(run_folder.read_info(folder), created_ms=start_ms)
    documents.write_json(folder / run_folder.RUN, info)
    folders = [folder]
    for place, job in enumerate(made):
        job.folder = _run(folder, job, uri, planned, chance, start_ms, planned.ends.get(place, ""))
        job.result = run_folder.read_result(job.folder)
        assert job.result
        start_ms += 20_000 + round(1000 * job.result.metrics.get("time/train_sec", 60))
        folders.append(job.folder)
    sweep.finish(folder, made)
    return folders


def _run(
    root: Path, job: Job, uri: str, planned: Planned, chance: random.Random, start_ms: int, end: str = ""
) -> Path:  # fmt: skip
    gpus, (target, *_) = int(job.config.gpus), job.config.targets().values()
    step_sec = planned.step_sec * SPEED[job.config.precision.name] * gpus**0.06 * chance.uniform(0.985, 1.015)
    best = target * (0.97 if end == "missed" else 1.003)
    return studied.make_run(
        root,
        job.config,
        uri,
        step_sec,
        _curve(best, planned.num_epochs + (4 if end == "missed" else chance.choice((-1, 0, 0, 1))), chance),
        eval_sec=0.03 * planned.num_steps * planned.step_sec,
        failure=None if end in ("", "missed") else end,
        tags={
            "env.driver": OLD_DRIVER if planned is SINGLE else "580.159.04",
            "env.topology": "NV18" if gpus > 1 else "single",
        },
        fingerprint={"used": [], "environment": {}},
        steps=max(2, planned.num_steps // gpus // 2),
        start_ms=start_ms,
        max_epochs=planned.num_epochs + 4,
    )


def _curve(best: float, epochs: int, chance: random.Random) -> Sequence[float]:
    """Accuracies that rise to `best`, and stay below it until then."""
    rising = [best * (1 - math.exp(-3.2 * (epoch + 1) / epochs)) for epoch in range(epochs - 1)]
    return [round(value * chance.uniform(0.99, 1.0), 4) for value in rising] + [round(best, 4)]
