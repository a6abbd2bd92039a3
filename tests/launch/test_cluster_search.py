"""A search on a real Slurm cluster of two nodes, which are this host twice."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.support.commands import HANGS_SEC, begin, launch
from tests.support.folders import wait_for
from tests.support.searched_program import trace, words
from tests.support.slurm_cluster import Cluster
from tracking.record import journal, run_folder

pytestmark = [pytest.mark.service, pytest.mark.slow, pytest.mark.exhaustive]


def test_a_search_in_the_queue_is_gone_on_with_after_ctrl_c_and_after_its_launcher_was_killed(
    cluster: Cluster, tmp_path: Path
) -> None:
    asked = words(tmp_path, "batch_size=1,4", "model.optimizer.lr=0.01,0.0099", "search.budget=14runs")
    first = begin(tmp_path, *asked, "cluster=slurm", "cluster.poll_sec=1", **cluster.env)
    wait_for(lambda: len(job_ids(tmp_path)) > 2 or first.poll() is not None)
    first.send_signal(signal.SIGINT)
    said, _ = first.communicate(timeout=HANGS_SEC)
    [sweep] = [path.parent for path in tmp_path.glob("runs/*/sweep.json")]
    assert f"Go on searching with: python launch.py sweep.resume={sweep.name}" in said, said

    second = begin(tmp_path, f"sweep.resume={sweep.name}", **cluster.env)
    before = len(job_ids(tmp_path))
    wait_for(lambda: len(job_ids(tmp_path)) > before or second.poll() is not None)
    second.kill()
    assert "in the queue" in second.communicate()[0]

    again = launch(tmp_path, f"sweep.resume={sweep.name}", **cluster.env)
    assert again.code == 0, again.output
    trials, answer = trace(tmp_path)["trials"], trace(tmp_path)["answer"]
    assert len(again.folders) == len(job_ids(tmp_path)) == len(trials), "no run was made twice"
    assert len(set(job_ids(tmp_path))) == len(trials)
    assert answer["named"]["batch_size"] == 4, again.output
    blocks: dict[int, list[tuple[int, int]]] = {}
    for row in trials:
        if row["phase"] == "decide":
            blocks.setdefault(row["block"], []).append(span_ms(sweep / row["folder"]))
    together = [
        max(submitted for submitted, _ in spans) < min(ended for _, ended in spans)
        for spans in blocks.values()
        if len(spans) > 1  # both learning rates are as good
    ]
    assert any(together), "a block is in the queue, but for one in which the launcher was killed"
    scripts = [(folder / "job.sbatch").read_text() for folder in again.folders]
    assert all("#SBATCH --exclusive\n" in script for script in scripts)


def span_ms(folder: Path) -> tuple[int, int]:
    """When a run was submitted, and when it had ended."""
    submitted = int(json.loads((folder / "cluster.json").read_text())["submitted_ms"])
    return submitted, max(record.time_ms for record, _ in journal.read(folder / run_folder.JOURNAL))


def job_ids(folder: Path) -> list[str]:
    return [json.loads(path.read_text())["job_id"] for path in folder.glob("runs/*/*/cluster.json")]
