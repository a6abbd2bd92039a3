"""A training in a notebook's cell, run by a kernel of Jupyter."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
from pathlib import Path

import pytest
import yaml

from tests.support.commands import HANGS_SEC, ROOT
from tracking.record import journal, run_folder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),  # Jupyter's own
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("nbclient", "ipykernel"))),
        reason="needs nbclient and ipykernel: uv sync --group frameworks",
    ),
]
LOOP = """
import pathlib, time
from timetrial import time_trial
pathlib.Path("called").write_text(str(time.monotonic()))
with time_trial({"accuracy": 0.9}, device="cpu", offline=True, system_metrics_interval_sec=0) as trial:
    trial.step(8)
    trial.evaluate({"accuracy": 0.95}, epoch=1)
"""
FORKED = """
import pytorch_lightning as pl
from tests.tracking.api import own_script
from timetrial import TimeTrial
trial = TimeTrial({"val_loss": "<=1"}, offline=True, system_metrics_interval_sec=0)
trainer = own_script.trainer(trial, max_epochs=1, devices=2, strategy="ddp_notebook")
trainer.fit(own_script.Line(), *own_script.loaders())
"""


def run_cell(folder: Path, source: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    import nbformat
    from nbclient import NotebookClient

    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source)])
    NotebookClient(notebook, timeout=HANGS_SEC, resources={"metadata": {"path": str(folder)}}).execute()
    (path,) = (folder / "runs").glob(f"*/{run_folder.RESULT}")
    assert json.loads(path.read_text())["status"] == "finished"
    return path.parent


def tags(run: Path) -> dict[str, str]:
    rows = [record.values for record, _ in journal.read(run / run_folder.JOURNAL) if record.kind == "tags"]
    return {key: value for row in rows for key, value in row.items()}


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_loop_in_a_cell_is_a_run_of_the_notebook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_cell(tmp_path, LOOP, monkeypatch)
    assert tags(run)["script"] == "notebook"
    assert yaml.safe_load((run / run_folder.OVERRIDES).read_text()) == []
    (begun,) = [event for event in journal.events(run / run_folder.JOURNAL) if event.key == "init_start"]
    called = float((tmp_path / "called").read_text())
    assert begun.clock_sec - begun.values["since_command_sec"] >= called, "the kernel's start is counted"
    assert "git.commit" not in tags(run)  # The current folder is in no repository.


@pytest.mark.exhaustive
def test_a_notebook_that_its_front_end_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", str(tmp_path / "digits.ipynb"))
    assert tags(run_cell(tmp_path, LOOP, monkeypatch))["script"] == "digits.ipynb"


@pytest.mark.exhaustive
def test_two_processes_that_a_notebook_forks_are_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_cell(tmp_path, FORKED, monkeypatch)
    assert json.loads((run / run_folder.RESULT).read_text())["metrics"]["world_size"] == 2
