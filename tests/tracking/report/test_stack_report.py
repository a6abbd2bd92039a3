"""The report of a study of stacks on several machines: best and worst, what that is worth, what is missing and why."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.tracking import studied
from tests.tracking.studied import CLOCKS
from tracking.jobs import sync
from tracking.report import report
from tracking.report.report import Report
from tracking.results.folder_runs import FolderRuns

BY = ["env.driver", "env.cuda", "env.gpu"]
GPUS = {"NVIDIA H100 80GB HBM3": 0.10, "NVIDIA A100-SXM4-80GB": 0.19}  # seconds a step
DRIVERS = {"535.104.05": 1.0, "535.9": 1.04, "580.159.04": 0.97}
CUDAS = {"12.4": 1.3, "12.8": 1.1, "12.10": 1.0, "13.0": 0.95}
STUDY = "20260201-000000-vgg-beef"


def write_study(root: Path, uri: str, seeds: int = 3, spread: float = 0.02) -> list[Path]:
    """Runs over drivers, CUDA versions and GPUs: CUDA 13 runs on the newest driver alone, and there it misses once."""
    sweep = studied.make_sweep(root, STUDY, uri, seeds * 24)
    folders, chance = [sweep], random.Random(3)
    for seed in range(1, seeds + 1):
        for gpu, base in GPUS.items():
            for driver, slower in DRIVERS.items():
                for cuda, factor in CUDAS.items():
                    step_sec = base * slower * factor * chance.gauss(1, spread)
                    tags = {"env.driver": driver, "env.cuda": cuda, "env.gpu": gpu, "env.node": gpu[7:11]}
                    options: dict[str, Any] = {}
                    if cuda == "13.0" and driver < "580":
                        continue
                    if (cuda, driver, gpu[7:11]) == ("12.8", "535.9", "A100"):
                        options = {"failure": "bad_input"}
                    if (cuda, seed, gpu[7:11]) == ("13.0", 2, "H100"):
                        options = {"accuracies": (0.3, 0.5, 0.6)}
                    asked = studied.config(seed=seed, price=4.0)
                    folders.append(studied.make_run(
                        sweep, asked, uri, step_sec, tags=tags, fingerprint=CLOCKS, **options
                    ))  # fmt: skip
    return folders


def of(root: Path, **options: Any) -> Report:
    store = FolderRuns([root])
    return report.make(store, [STUDY], store.find([STUDY]), BY, **options)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, empty_database: Path) -> Path:
    root = tmp_path_factory.mktemp("stacks")
    shutil.copy(empty_database, root)
    outcomes = sync.sync(write_study(root / "runs", f"sqlite:///{root / 'mlflow.db'}"))
    assert {outcome.state for outcome in outcomes} == {"complete"}
    return root


@pytest.fixture(scope="module")
def made(root: Path) -> Report:
    return of(root / "runs")
