"""Searches whose runs end as a formula says, without Hydra and without a process."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from conf.dataset_options import DatasetConfig
from conf.launch_options import ClusterConfig, InstanceConfig, SearchConfig
from conf.schema import ConfigError, ModelConfig, OptimizerConfig, PrecisionConfig, RunConfig, StackConfig  # fmt: skip
from tracking.analysis.search import Axis
from tracking.jobs.plan import Job
from tracking.jobs.search import SearchJobs, trace_file
from tracking.record import Failure, Result, journal

AXES = (Axis("gpus", (1, 2)), Axis("batch_size", (4, 8, 16)), Axis("model.optimizer.lr", low=0.001, high=0.1, log=True))


BEST = {"gpus": 2, "batch_size": 16}  # of what `result` gives


def make(words: list[str]) -> RunConfig:
    """The config of these words, without Hydra."""
    given = dict(word.split("=", 1) for word in words)
    if given.get("gpus") == "2" and given.get("batch_size") == "4":
        raise ConfigError("batch_size=4: too small for two")
    return RunConfig(
        model=ModelConfig(
            "m", "m:M", 8, {"accuracy": [0, 1, "higher"]}, {"d": {"accuracy": 0.9}},
            OptimizerConfig(float(given.get("model.optimizer.lr", 0.01))),
        ),
        dataset=DatasetConfig("d"),
        precision=PrecisionConfig("fp32", "32"),
        stack=StackConfig("native"),
        instance=InstanceConfig(price_per_hour=36.0),
        gpus=int(given.get("gpus", 1)),
        seed=int(given.get("seed", 1)),
        batch_size=int(given["batch_size"]) if "batch_size" in given else None,
        search=SearchConfig("quickest", budget="60runs"),
    )  # fmt: skip


def result(job: Job) -> Result:
    """How a run of these settings ends: most of it known, 2 % of it noise; stopped at its cap."""
    config = job.config
    lr, batch, gpus, cap = (
        config.model.optimizer.lr,
        config.device_batch_size(),
        config.num_gpus(),
        config.search.cap_sec,
    )
    epochs = math.ceil(8 + 3 * abs(math.log(lr / (0.002 * batch))) ** 2)
    each = (1 + 8 / batch) / gpus**0.8 * random.Random(f"{lr} {batch} {gpus} {config.seed}").uniform(0.98, 1.02)
    if cap is not None and epochs * each > cap:
        return Result("failed", metrics={"time/censored_sec": cap}, failure=Failure("search", "stopped"))
    metrics = {
        "time/to_accuracy_sec": epochs * each, "target_reached": 1.0, "epochs/to_accuracy": float(epochs),
        "time/evaluation_interval_sec": each, "cost/to_accuracy_usd": epochs * each / 100, "eval/best_accuracy": 0.91,
    }  # fmt: skip
    return Result("finished", metrics=metrics, targets=config.targets())


def search(
    jobs: Sequence[Job] = (), folder: Path | None = None, make: Callable[[list[str]], RunConfig] = make
) -> SearchJobs:
    base = Job(make([]), ["model=m", "seed=1"])
    base.config.search.axes = ["gpus=1,2"]
    return SearchJobs(base, AXES, make, jobs, trace_file.refused(folder, AXES) if folder else ())


def run(made: SearchJobs, most: int = 1000, result: Callable[[Job], Result] = result) -> list[Job]:
    """Run its jobs one after the other; those that were run."""
    ran: list[Job] = []
    while len(ran) < most and (jobs := made.next_jobs()):
        for job in jobs:
            job.result = result(job)
            ran.append(job)
    return ran


@functools.cache
def ended() -> tuple[SearchJobs, list[Job]]:
    """A search that has ended, and its jobs. Nobody may change them."""
    made = search()
    return made, run(made)


def took(folder: Path, start: float, seconds: float) -> Path:
    """The folder of a run from one second to another one."""
    folder.mkdir()
    log = journal.Journal(folder / "journal.jsonl")
    log.append(journal.Record("event", int(1e3 * (1e9 + start)), start, "init_start"))
    log.append(journal.Record("event", int(1e3 * (1e9 + start + seconds)), start + seconds, "run_stop"))
    log.close()
    return folder


def lose(job: Job, kind: str = "signal:9") -> None:
    job.result = Result("killed", failure=Failure(kind, "lost"))


def on_slurm(exclusive: bool, jobs: Sequence[Job] = ()) -> SearchJobs:
    def on_nodes(words: list[str]) -> RunConfig:
        config = make(words)
        config.cluster = ClusterConfig("slurm", "slurm", exclusive=exclusive, jobs_at_once=5)
        return config

    return search(jobs, make=on_nodes)


def parsed(word: str) -> tuple[str, object, list[int]]:
    key, _, values = word.partition("=")
    return key, None, [int(value) for value in values.split(",")]
