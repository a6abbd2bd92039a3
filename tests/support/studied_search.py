"""A whole search whose runs leave folders as trainings do, made by hand in a second."""

from __future__ import annotations

import math
import random
from pathlib import Path

from conf.launch_options import SearchConfig
from conf.schema import ConfigError, RunConfig
from tests.support.studied import START_MS, SWEEP, config, make_run, make_sweep
from tracking.analysis.search import Axis
from tracking.jobs.plan import Job
from tracking.jobs.search import SearchJobs
from tracking.record import run_folder

URI = "sqlite:///none.db"
AXES = (Axis("gpus", (1, 2)), Axis("batch_size", (16, 32, 64)))


def write_search(
    root: Path, objective: str = "time", budget: str = "2h", misses: bool = False, noise: float = 0.03, ends: str = "",
    only_explored: bool = False, refuses: bool = False,
) -> SearchJobs:  # fmt: skip
    """A search in root/SWEEP. Its first run is lost and made again. With `misses`, some runs miss the target.

    `ends` is the kind of failure that ends every run before its target. With `only_explored`, deciding runs miss it.
    With `refuses`, a finalist can no longer be run once its first look is over.
    """
    sweep = make_sweep(root, SWEEP, URI, 0)
    asked = SearchConfig("quickest", objective, budget, axes=["gpus=1,2", "batch_size=16,32,64"])

    def make(words: list[str]) -> RunConfig:
        given = {key: int(value) for key, value in (word.split("=") for word in words)}
        looked = refuses and made and any(job.config.search.block == 3 for job in made.jobs)
        if looked and (given.get("gpus"), given.get("batch_size")) == (1, 32):
            raise ConfigError("gpus=1: the GPU is in use")
        return config(**given, price=36.0 * given.get("gpus", 1))

    made: SearchJobs | None = None
    base = Job(make([]), [])
    base.config.search = asked
    made = SearchJobs(base, AXES, make)
    now, failure = START_MS, "signal:9"
    while jobs := made.next_jobs():
        for job in jobs:
            reaches = not ends and not (only_explored and job.config.search.phase == "decide")
            job.folder = _run(sweep, job.config, now, ends or failure, misses, noise, reaches)
            job.result = run_folder.read_result(job.folder)
            now, failure = now + 120_000, ""
    made.write(sweep, made.words())
    return made


def _run(
    sweep: Path, asked: RunConfig, start_ms: int, failure: str, misses: bool, noise: float, reaches: bool
) -> Path:  # fmt: skip
    """A run that takes as long as its setting and its seed say, stopped at its cap."""
    size, gpus, cap = asked.device_batch_size(), asked.num_gpus(), asked.search.cap_sec
    luck = random.Random(f"{size} {gpus} {asked.seed}")
    step_sec = luck.uniform(1 - noise, 1 + noise) * (0.02 + 0.004 * size) / gpus**0.7
    epochs, epoch_sec = 2 + math.ceil(abs(math.log2(size / 32)) * 3), 8 * step_sec + 0.5
    accuracies = [*[0.5] * (epochs - 1), 0.95 if reaches else 0.6]
    if misses and gpus == 1 and asked.seed % 3 == 0:
        accuracies = [0.5] * (epochs + 1)
    if cap is not None and epochs * epoch_sec > cap:
        failure, accuracies = "search", accuracies[: max(1, math.floor(cap / epoch_sec))]
    after = accuracies if failure else []
    return make_run(
        sweep, asked, URI, step_sec, accuracies, failure=failure or None, failed_after=after, start_ms=start_ms
    )
