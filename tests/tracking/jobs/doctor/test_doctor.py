"""`python -m tracking doctor`: a line for each thing, and for what is wrong what to do; on a real server."""

from __future__ import annotations

import compileall
import json
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest
from mlflow import MlflowClient

from tests.support import forked
from tests.support.commands import HANGS_SEC, ROOT, environment
from tests.support.folders import wait_for
from tests.support.mlflow_server import answering
from tests.support.team_server import TeamServer
from tracking.jobs.doctor import Finding, examination, gpus, tracking_server
from tracking.machine.environment import cache

# Only MLflow's dependencies raise these warnings: some use what others deprecate.
pytestmark = [
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

QUERY = (ROOT / "tests/fixtures/h200-x4/nvidia-smi_-q_-x.xml").read_text()
STACK = {"torch": "2.11.0", "cuda": "13.0", "gpus": 4, "nccl": "2.28.9", "bus_gb_per_sec": 351.25}


def machine(query: str = QUERY, code: int = 0, **stack: Any) -> Callable[[Sequence[str], float], tuple[int, str]]:
    """Answers the doctor's commands as a machine would: nvidia-smi with `query`, the check of torch with `stack`."""
    answer = json.dumps({**STACK, **stack})

    def run(command: Sequence[str], timeout_sec: float) -> tuple[int, str]:
        return (code, query) if command[0] == "nvidia-smi" else (0, f"a warning of NCCL's\n{answer}\n")

    return run


def findings(**changes: Any) -> dict[str, Finding]:
    return {finding.what: finding for finding in gpus.gpus(machine(**changes))}


def test_a_machine_with_gpus() -> None:
    by_subject = findings()
    assert all(finding.ok for finding in by_subject.values())
    assert str(by_subject["GPU"]) == "ok   GPU: 4 x NVIDIA H200, driver 580.159.04"
    assert str(by_subject["driver"]) == (
        "ok   driver: 580.159.04 is new enough for CUDA 13.0 of torch 2.11.0 (from 580 on)"
    )
    assert str(by_subject["NCCL"]) == "ok   NCCL: 2.28.9, all-reduce over 4 GPUs at 351.2 GB/s bus bandwidth"


def test_python_that_may_keep_no_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "package_of_theirs").mkdir()
    (tmp_path / "package_of_theirs/__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "pycache_prefix", None)
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    slow = examination.bytecode("package_of_theirs")
    assert slow.ok, "a run needs none"
    assert str(slow).startswith(f"TIP  bytecode: Python keeps none; workers keep theirs in {cache()}/bytecode")
    assert "python -m compileall" in slow.words
    compileall.compile_dir(tmp_path, quiet=2)
    assert str(examination.bytecode("package_of_theirs")) == "ok   bytecode: kept by Python"
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE")
    assert examination.bytecode().words == "kept by Python"


@pytest.mark.parametrize(
    ("driver", "cuda", "words"),
    [
        ("570.86.15", "13.0", "570.86.15 is too old for CUDA 13.0 of torch 2.11.0. Next: install driver 580 or newer, "
                              "or a torch built for CUDA 12"),
        ("470.82.01", "12.4", "install driver 525 or newer, or a torch built for CUDA 11"),
        ("440.33", "11.8", "440.33 is too old for CUDA 11.8 of torch 2.11.0. Next: install driver 450 or newer"),
        ("580.159.04", None, "torch 2.11.0 is built without CUDA. Next: install a build that has it"),
    ],
)  # fmt: skip
def test_a_driver_that_is_too_old(driver: str, cuda: str | None, words: str) -> None:
    finding = findings(query=QUERY.replace("580.159.04", driver), cuda=cuda)["driver"]
    assert not finding.ok
    assert str(finding).startswith("FIX  driver: ")
    assert words in finding.words


def test_what_else_may_be_wrong_with_gpus() -> None:
    hidden = findings(gpus=0)["driver"]
    assert not hidden.ok
    assert "does not see the 4 GPUs" in hidden.words
    broken = findings(error="DistBackendError: NCCL error in ...")["NCCL"]
    assert not broken.ok
    assert "NCCL_DEBUG=INFO" in broken.words
    assert findings(gpus=1)["NCCL"].words == "one GPU: not checked"
    lost = findings(query="No devices were found", code=6)["GPU"]
    assert not lost.ok
    assert "No devices were found" in lost.words
    newer = findings(cuda="14.1")["driver"]
    assert newer.ok
    assert "is not known" in newer.words


def test_a_driver_whose_gpus_cannot_be_seen_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpus.nvml, "trouble", lambda: "an NVIDIA driver is here, and its GPUs cannot be seen: NVML: x")
    assert findings()["NVML"] == Finding("NVML", gpus.nvml.trouble(), ok=False)


@pytest.mark.slow
@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="there are GPUs here")
def test_a_machine_without_gpus() -> None:
    gpu_findings = list(gpus.gpus(gpus.run))
    assert [finding.ok for finding in gpu_findings] == [True] * 3
    assert "gpus=0 trains on the CPU" in gpu_findings[0].words
    assert "no GPU: not checked" in gpu_findings[1].words
    assert gpu_findings[2].words == "no GPU: not checked"


def test_a_torch_that_does_not_start() -> None:
    def run(command: Sequence[str], timeout_sec: float) -> tuple[int, str]:
        words = "Traceback\nModuleNotFoundError: No module named 'torch'\n"
        return (127, "") if command[0] == "nvidia-smi" else (1, words)

    *_, finding = gpus.gpus(run)
    assert not finding.ok
    assert "No module named 'torch'" in finding.words


def alive(pid: int) -> bool:
    return psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE


@pytest.mark.slow
def test_a_command_that_does_not_end(tmp_path: Path) -> None:
    assert gpus.run(("sleep", str(HANGS_SEC)), 0.1) == (124, "still ran after 0.1 s, and was killed")
    path = tmp_path / "pid"
    path.touch()
    for limit_sec in (1, 10, 100):  # The shell comes to start its child, however busy the machine is.
        assert gpus.run(("sh", "-c", f"sleep 86400 & echo $! > {path}; wait"), limit_sec)[0] == 124
        if path.read_text():
            break
    [child] = path.read_text().split()
    wait_for(lambda: not alive(int(child)))
    assert gpus.run(("no-such-command",), 5)[0] == 127


def test_a_finding_is_one_line() -> None:
    assert str(findings(error="NcclError: it\n  does\n\nnot work")["NCCL"]).startswith(
        "FIX  NCCL: NcclError: it does not work."
    )


def test_a_disk_that_is_full_or_not_ours_is_to_be_fixed(tmp_path: Path) -> None:
    path = tmp_path / "runs/later"
    assert examination.disk("runs_dir", path, lambda place: 80 * 10**9) == Finding("runs_dir", f"80 GB free at {path}")
    full = examination.disk("runs_dir", path, lambda place: 10**8)
    assert not full.ok
    assert full.words == f"0.1 GB free at {path}. Next: free 5 GB at least"
    (tmp_path / "file").touch()
    assert "cannot be written to" in examination.disk("runs_dir", tmp_path / "file/runs", lambda place: 10**12).words


def test_a_dataset_that_is_missing_or_empty_is_to_be_fixed(tmp_path: Path) -> None:
    assert "No such file" in examination.dataset(tmp_path / "missing").words
    assert not examination.dataset(tmp_path).ok
    (tmp_path / "train").write_bytes(b"1")
    assert examination.dataset(tmp_path) == Finding("dataset", f"{tmp_path}: 1 files and folders")


def test_servers_that_are_none(tmp_path: Path) -> None:
    def ask(uri: str) -> list[Finding]:
        return list(tracking_server.tracking_server(uri, "timetrial"))

    [none] = ask(f"sqlite:///{tmp_path}/mlflow.db")
    assert none.ok
    server, upload = ask("http://localhost:1")
    assert not server.ok
    assert "nothing listens there" in server.words
    assert not upload.ok
    with answering(200) as (uri, _):
        server, *_ = ask(uri)
        assert "does not answer with a version" in server.words


def test_nothing_is_left_of_the_upload(tmp_path: Path, empty_database: Path) -> None:
    uri = f"sqlite:///{shutil.copy(empty_database, tmp_path / 'mlflow.db')}"
    before = [experiment.name for experiment in MlflowClient(uri).search_experiments()]
    assert tracking_server.upload(uri).ok
    assert [experiment.name for experiment in MlflowClient(uri).search_experiments()] == before


@pytest.mark.parametrize(("text", "ok", "words"), [
    ("3.4.1", False, "too old. Next: upgrade it to 3.5 or newer"), ("3.17.2", True, "MLflow 3.17.2"),
    ("4.0.0", True, "newer than 3.17"), ("nginx", False, "does not answer with a version"),
])  # fmt: skip
def test_a_server_of_an_untested_version_is_told(
    monkeypatch: pytest.MonkeyPatch, text: str, ok: bool, words: str
) -> None:
    class Answer:
        def __init__(self, *_: object) -> None:
            self.text = text

    monkeypatch.setattr(tracking_server.connection, "request", Answer)
    finding = tracking_server.version("http://localhost")
    assert (finding.ok, words in finding.words) == (ok, True)


@pytest.mark.service
def test_a_real_server(team_server: TeamServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(user: str, password: str | None, *words: str) -> tuple[int, list[str]]:
        # Without uv, which would ask the registry about each stack.
        environ = environment(HOME=str(tmp_path), PATH="/usr/bin:/bin", **team_server.credentials(user, password))
        script = str(ROOT / "tracking/__main__.py")
        done = forked.Forked(["doctor", *words], tmp_path, environ, script=script, apart=True)
        printed, errors = done.communicate(timeout=HANGS_SEC)
        assert "Traceback" not in errors
        lines, _, table = printed.partition("stacks")
        assert all(heading in table for heading in ("needs", "found", "verdict", "torch2_6"))
        of_others = [line for line in lines.splitlines() if "GPU" not in line and "bytecode" not in line]
        return done.wait(), of_others

    (tmp_path / "data").mkdir()
    (tmp_path / "data/images").touch()
    password = team_server.accounts.add_user("ivan")
    team_server.accounts.grant("EDIT", "checks", user="ivan")
    code, lines = ask("ivan", password, "--experiment", "checks", "--dataset-path", str(tmp_path / "data"))
    assert code == 0, lines
    assert all(line.startswith("ok   ") for line in lines)
    assert f"{team_server.uri} answers ivan, MLflow 3." in lines[0]
    assert re.search(
        "a metric and an artifact went into experiment 'doctor-ivan-[0-9a-f]{8}' and came back; it is deleted now$",
        lines[1],
    )
    assert [line.split()[1] for line in lines] == ["server:", "upload:", "runs_dir:", "cache:", "dataset:"]
    left = [experiment["name"] for experiment in team_server.accounts.experiments()]
    assert not [name for name in left if name.startswith("doctor")]
    assert not list((tmp_path / "data").parent.glob("runs/*"))

    code, lines = ask("ivan", "wrong", "--dataset-path", str(tmp_path / "nowhere"))
    assert code == 1
    assert "FIX  server: " in lines[0]
    assert "the password of ivan is wrong" in lines[0]
    assert "FIX  dataset: " in lines[-1]
    team_server.accounts.grant("READ", "checks", user="ivan")
    for name, value in team_server.credentials("ivan", password).items():
        monkeypatch.setenv(name, value)
    server, _ = tracking_server.tracking_server(team_server.uri, "checks")
    assert "ivan has READ on the experiment 'checks', and a run needs EDIT" in server.words
    team_server.accounts.remove_user("ivan")
