"""Trainings on another stack than that of launch.py, and stacks that cannot train."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.support.commands import ROOT, launch
from tests.support.in_process import answer
from tests.tracking.machine.stacks.wheels import make_index
from tracking.analysis.audit.audit import audit
from tracking.analysis.report import report
from tracking.analysis.results.folder_runs import FolderRuns
from tracking.machine.stacks import declared, python_of, uv_environment

pytestmark = pytest.mark.slow

VGG = ("gpus=0", "dataset=digits", "target=0.05", "limit_train_batches=2", "max_epochs=1", "tracking.offline=true")


def declare(folder: Path, name: str, text: str) -> None:
    (folder / "stack").mkdir(exist_ok=True)
    (folder / f"stack/{name}.yaml").write_text(f"name: {name}\n{text}")


def another_python(folder: Path) -> Path:
    """This Python under another path, so that a process of its own is started."""
    path = folder / "python"
    path.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return path


@pytest.mark.exhaustive
def test_a_stack_whose_worker_dies_on_import_fails_alone(tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "pytorch_lightning.py").write_text("raise ImportError('no Lightning for you')")
    declare(tmp_path, "broken", f"kind: python\npython: {another_python(tmp_path)}\nenv: {{PYTHONPATH: {broken}}}\n")
    asked = ("stack=broken,native", *VGG)
    launched = launch(tmp_path, "-m", "--config-dir", str(tmp_path), *asked)
    assert launched.code == 1, launched.output
    results = {
        folder.name.partition("stack=")[2]: json.loads((folder / "result.json").read_text())
        for folder in launched.folders
    }
    assert {name: result["status"] for name, result in results.items()} == {"broken": "failed", "native": "finished"}
    assert "no Lightning for you" in json.dumps(results["broken"]["failure"])


def test_what_the_stack_promises_and_is_not_ends_the_run_before_it_trains(tmp_path: Path) -> None:
    declare(
        tmp_path,
        "mine",
        f"kind: python\npython: {another_python(tmp_path)}\nexpect: {{torch: 1.0}}\n".replace("1.0", "'1.0'"),
    )
    launched = launch(tmp_path, "--config-dir", str(tmp_path), "stack=mine", *VGG)
    assert launched.code == 2, launched.output
    assert "expected 1.0, found 2." in launched.output
    assert "time/train_sec" not in launched.result["metrics"]


def test_stacks_that_cannot_run_are_refused_before_any_job_and_the_others_named(tmp_path: Path) -> None:
    declare(tmp_path, "bare", "kind: python\npython: /bin/true\n")
    declare(tmp_path, "gone", "kind: python\npython: /no/such/python\n")
    launched = answer(tmp_path, "-m", "--config-dir", str(tmp_path), "stack=bare,gone,native", *VGG)
    assert launched.code == 2, launched.output
    assert launched.folders == []
    for words in ("stack=bare: stack.python=/bin/true", "stack=gone: stack.python=/no/such/python", "stack=native"):
        assert words in launched.output
    shown = answer(tmp_path, "-m", "--config-dir", str(tmp_path), "stack=bare,native", *VGG, "dry_run=true")
    assert shown.code == 2
    assert "can run" in shown.output


def test_a_sweep_may_run_the_others_and_its_report_says_what_is_missing(tmp_path: Path) -> None:
    packages = {"torch": "2.6.0", "pytorch-lightning": None, "numpy": "2.0", "PyYAML": "6.0"}
    answer = json.dumps({"python": "3.12.1", "machine": "x86_64", "cuda": None, "packages": packages})
    (tmp_path / "lightless").write_text(f"#!/bin/sh\necho '{answer}'\n")
    (tmp_path / "lightless").chmod(0o755)
    index = make_index(tmp_path / "index")
    declare(tmp_path, "lightless", f"kind: python\npython: {tmp_path}/lightless\n")
    declare(tmp_path, "none", "kind: python\npython: /bin/true\n")
    declare(tmp_path, "tangled", f"kind: uv\ntorch: 2.6.0\nrequirements: [extra==9.9]\nindex: {index}\n")
    why = {
        "lightless": ["lightless: lacks pytorch-lightning. Next: ", "-m pip install pytorch-lightning"],
        "none": ["/bin/true: does not answer as a Python does"],
        "tangled": ["does not resolve (Python 3.", "torch==2.6.0", "extra==9.9", "there is no version of extra==9.9"],
    }
    asked = (f"stack={','.join(why)},native", *VGG, "sweep.run_others=true", "sweep.warm_up=true")
    launched = launch(tmp_path, "-m", "--config-dir", str(tmp_path), *asked)
    assert launched.code == 1, launched.output
    results = {
        folder.name.partition("stack=")[2]: json.loads((folder / "result.json").read_text())
        for folder in launched.folders
        if "warm-up" not in folder.name
    }
    assert results.pop("native")["status"] == "finished"
    assert results.keys() == why.keys()
    for name, words in why.items():
        failure = results[name]["failure"]
        assert failure["kind"] == "bad_input"
        assert all(word in failure["message"] for word in words), failure["message"]
    assert len(launched.folders) == len(why) + 2, "only what runs is warmed up"
    [sweep] = (tmp_path / "runs").iterdir()
    store = FolderRuns([sweep.parent])
    made = report.make(store, [sweep.name], store.find([sweep.name]), ["stack"])
    [missing] = [table for table in made.tables if table.kind == "missing"]
    assert [row[0] for row in missing.rows] == sorted(why)
    assert audit(made.plain(), [sweep.parent]).differences == []


def can_be_had(requirement: str) -> bool:
    """Whether uv can find it, in its cache or at the registry, and there is room for it twice."""
    if shutil.which("uv") is None or shutil.disk_usage(Path.home()).free < 2 * uv_environment.ROOM_BYTES:
        return False
    command = ["uv", "pip", "compile", "--quiet", "--python", sys.executable, "-"]
    try:
        done = subprocess.run(command, input=requirement, text=True, capture_output=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


@pytest.mark.service
def test_an_older_pytorch_trains_in_an_environment_of_its_own(tmp_path: Path) -> None:
    """It takes 6 GB of the cache and, where uv has not fetched it before, a download of 3 GB."""
    if not can_be_had("torch==2.6.0"):
        pytest.skip("uv, the registry of packages, or 18 GB of room cannot be had")
    launched = launch(tmp_path, "stack=torch2_6", *VGG)
    assert launched.code == 0, launched.output
    software = json.loads((launched.folder / "fingerprint.json").read_text())["software"]
    assert (software["torch"], software["cuda"], software["nccl"]) == ("2.6.0+cu124", "12.4", "2.21.5")
    assert software["torch"] != torch.__version__
    assert "cudnn 9.1." in software["loaded"]
    assert all("/stacks/" in path for path in dict(software["libraries"]).values())
    assert launched.result["metrics"]["target_reached"] == 1
    python = python_of(declared()["torch2_6"])
    assert python is not None
    names = [python.path, "-W", "ignore", str(ROOT / "tests/support/torch_names.py")]
    lacking = subprocess.run(names, capture_output=True, text=True, check=True).stdout.splitlines()
    # Go's rules are computed by PyTorch's operators there, and traces are not kept.
    spared = ("trainers/ops/go/rules_triton.py: tl.gather", "trainers/loop/warmup/kept_traces.py: No module")
    assert [line for line in lacking if not line.startswith(spared)] == []
