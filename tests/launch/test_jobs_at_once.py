"""Jobs of a sweep side by side on this machine: sweep.jobs_at_once."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from tests.support.commands import TINY, begin, collect, launch, processes_of
from tests.support.folders import wait_for
from tests.support.in_process import answer
from tracking.record import run_folder
from tracking.store.mirror import Mirror

pytestmark = pytest.mark.slow
CORES = len(os.sched_getaffinity(0))


@pytest.mark.skipif(CORES < 2, reason="it takes two cores to be side by side")
def test_jobs_side_by_side_have_cores_of_their_own_and_say_that_they_were(tmp_path: Path) -> None:
    run = launch(tmp_path, "-m", *TINY, "gpus=0", "max_epochs=1", "seed=1,2", "sweep.jobs_at_once=2")
    assert run.code == 0, run.output
    used = [set(range(int(first), int(last or first) + 1)) for first, last in
            re.findall(r"running on cores (\d+)(?:-(\d+))?", run.output)]  # fmt: skip
    assert len(used) == 2
    assert not used[0] & used[1]
    for folder in run.folders:
        assert json.loads((folder / run_folder.RESULT).read_text())["neighbours"].startswith("sweep.jobs_at_once=2")
        facts = json.loads((folder / run_folder.FINGERPRINT).read_text())
        assert facts["host"]["usable_threads"] == CORES // 2
        assert Mirror(folder).complete


@pytest.mark.skipif(CORES < 2, reason="it takes two cores to be side by side")
def test_a_killed_launcher_leaves_no_job_behind(tmp_path: Path) -> None:
    endless = ("max_epochs=100000", "target=1", "stop_at_target=false", "model.hparams.rest_sec=0.02")
    process = begin(tmp_path, "-m", *TINY, "gpus=0", *endless, "seed=1,2", "sweep.jobs_at_once=2")
    journals = lambda: [path.read_text() for path in tmp_path.glob("runs/*/*/journal.jsonl")]  # noqa: E731
    wait_for(lambda: sum('"epoch_start"' in text for text in journals()) == 2 or process.poll() is not None)
    process.kill()
    collect(process, tmp_path)
    wait_for(lambda: not processes_of(tmp_path))
    results = [json.loads(path.read_text()) for path in tmp_path.glob("runs/*/*/result.json")]
    assert [result["failure"]["message"] for result in results] == ["its launcher was killed"] * 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-m", "seed=1,2", f"sweep.jobs_at_once={CORES + 1}"), f"this machine has {CORES} cores"),
        (("-m", "seed=1,2", "cpu_processes=2", f"sweep.jobs_at_once={CORES}"), "cpu_processes=2 need one each"),
        (("-m", "seed=1,2", "sweep.jobs_at_once=0"), "must be 1 or more"),
        (("sweep.jobs_at_once=2",), "has no effect on a single run"),
        (("-m", "seed=1,2", "sweep.jobs_at_once=2", "cluster=slurm"), "give cluster.jobs_at_once"),
    ],
)
def test_what_cannot_share_a_machine_is_refused(arguments: tuple[str, ...], words: str, tmp_path: Path) -> None:
    refused = answer(tmp_path, *TINY, "gpus=0", *arguments)
    assert refused.code == 2, refused.output
    assert words in refused.output
    assert not refused.folders
