"""A study of software stacks on machines of two models of GPU, as run folders made by hand."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from tests.support import studied
from tests.support.studied import CLOCKS
from tracking.analysis.report import report
from tracking.analysis.report.report import Report
from tracking.analysis.results.folder_runs import FolderRuns

STUDY = "20260201-000000-vgg-beef"
BY = ["env.driver", "env.cuda", "env.gpu"]
H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"
STEP_SEC = {H100: 0.10, A100: 0.19}
# How many times as long a step takes.
DRIVERS = {"535.104.05": 1.0, "535.9": 1.04, "580.159.04": 0.97}
CUDAS = {"12.4": 1.3, "12.8": 1.1, "12.10": 1.0, "13.0": 0.95}


def write_study(
    root: Path, uri: str, seeds: int = 3, spreads: Mapping[str, float] | None = None,
    cudas: Sequence[str] = tuple(CUDAS),
) -> list[Path]:  # fmt: skip
    """A run a GPU, driver, CUDA and seed, each with a chance `spread` of its GPU.

    CUDA 13.0 runs on the newest driver alone, and misses its target with the second seed on the H100. On the A100,
    CUDA 12.4 was refused on driver 535.9.
    """
    sweep = studied.make_sweep(root, STUDY, uri, seeds * len(STEP_SEC) * len(DRIVERS) * len(cudas))
    folders, chance = [sweep], random.Random(3)
    for seed, gpu, driver, cuda in product(range(1, seeds + 1), STEP_SEC, DRIVERS, cudas):
        step_sec = STEP_SEC[gpu] * DRIVERS[driver] * CUDAS[cuda] * chance.gauss(1, (spreads or {}).get(gpu, 0.02))
        tags = {"env.driver": driver, "env.cuda": cuda, "env.gpu": gpu, "env.node": gpu[7:11]}
        if cuda == "13.0" and driver < "580":
            continue
        options: dict[str, Any] = {}
        if (cuda, driver, gpu) == ("12.4", "535.9", A100):
            options = {"failure": "bad_input"}
        if (cuda, seed, gpu) == ("13.0", 2, H100):
            options = {"accuracies": (0.3, 0.5, 0.6)}
        asked = studied.config(seed=seed, price=4.0)
        folders.append(studied.make_run(sweep, asked, uri, step_sec, tags=tags, fingerprint=CLOCKS, **options))
    return folders


def report_of(root: Path, **options: Any) -> Report:
    store = FolderRuns([root])
    return report.make(store, [STUDY], store.find([STUDY]), options.pop("by", BY), **options)
