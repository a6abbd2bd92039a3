"""The command and environment of the worker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from conf.schema import PROGRAM, ModelConfig, RunConfig, StackConfig
from tests.support.commands import HANGS_SEC, ROOT
from tracking.jobs.worker_command import command as command_module
from tracking.jobs.worker_command.command import worker_command
from tracking.machine.environment import Sources, cache, nvml
from tracking.machine.stacks import Interpreter
from tracking.record import run_folder


def test_the_worker_inherits_all_but_mlflows_variables(tmp_path: Path) -> None:
    environ = {
        "HOME": "/home/me",
        "PYTHONPATH": "/mine",
        "MLFLOW_TRACKING_URI": "http://me:hunter2@localhost",
        "MLFLOW_TRACKING_PASSWORD": "hunter2",
        "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",  # The mirror sets it.
    }
    ours = RunConfig(model=ModelConfig("vgg", "trainers.models.vgg:WORKLOAD", 1))
    command = worker_command(ours, tmp_path, environ)
    assert command.argv == [sys.executable, "-P", "-m", "trainers.loop.worker", str(tmp_path)]
    assert command.env == {
        "HOME": "/home/me",
        "PYTHONPATH": f"{ROOT}{os.pathsep}/mine",
        "PYTHONUNBUFFERED": "1",
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "TIMETRIAL_LAUNCHER": str(os.getpid()),
        "TIMETRIAL_CACHE": str(cache()),
    }
    users = RunConfig(model=ModelConfig("mine", "mine:WORKLOAD", 1))
    assert worker_command(users, tmp_path, environ).env == {**command.env, "TIMETRIAL_ALL_IMPORTS": "1"}
    fewer = {"TIMETRIAL_ALL_IMPORTS": "0"}
    assert worker_command(users, tmp_path, environ | fewer).env == command.env | fewer


def test_the_worker_of_a_program_runs_here_and_is_told_the_stacks_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(stack: StackConfig, needed: Sequence[str]) -> Interpreter:
        assert list(needed) == []
        return Interpreter("/opt/jax/bin/python", "3.8.1", None, None, None)

    monkeypatch.setattr("tracking.jobs.worker_command.command.python_of", asked)
    config = RunConfig(model=ModelConfig("mine", PROGRAM, 1), stack=StackConfig(kind="python"))
    command = worker_command(config, tmp_path, {"VIRTUAL_ENV": "/mine"})
    own = [sys.executable, "-P", "-m", "tracking.jobs.program.worker", str(tmp_path)]
    assert command.argv == [*own, "/opt/jax/bin/python"]
    assert "VIRTUAL_ENV" not in command.env


@pytest.mark.slow
def test_a_process_with_the_workers_environment_sees_no_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "hunter2")  # the environment is read when the command is built
    env = worker_command(RunConfig(), tmp_path).env
    code = "import os; print(*(f'{name}={value}' for name, value in os.environ.items()), sep='\\n')"
    printed = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=True).stdout
    assert "CUDA_DEVICE_ORDER=PCI_BUS_ID" in printed.splitlines()
    assert "MLFLOW_" not in printed
    assert "hunter2" not in printed


def test_what_the_user_sets_for_the_worker_reaches_it(tmp_path: Path) -> None:
    config = RunConfig(stack=StackConfig(env={"OMP_NUM_THREADS": "3", "PYTHONUNBUFFERED": "", "MLFLOW_MINE": "yes"}))
    env = worker_command(config, tmp_path, {"OMP_NUM_THREADS": "8", "MLFLOW_MINE": "no"}).env
    assert (env["OMP_NUM_THREADS"], env["PYTHONUNBUFFERED"], env["MLFLOW_MINE"]) == ("3", "", "yes")


def test_gpus_that_were_chosen_are_all_that_the_worker_sees(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By UUID, in the order of the ranks, whatever numbers they have among those that are visible here."""
    visible = [nvml.Gpu(index, "NVIDIA H100", f"GPU-{index}") for index in (2, 4, 6)]
    monkeypatch.setattr(nvml, "visible_gpus", lambda environ: visible)
    environ = {"CUDA_VISIBLE_DEVICES": "2,4,6"}
    command = worker_command(RunConfig(gpus=[6, 2]), tmp_path, environ)
    assert command.env["CUDA_VISIBLE_DEVICES"] == "GPU-6,GPU-2"
    assert worker_command(RunConfig(gpus=2), tmp_path, environ).env["CUDA_VISIBLE_DEVICES"] == "2,4,6"


@pytest.fixture
def no_bytecode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A Python whose PyTorch has no bytecode beside it; returns the folder in the cache."""
    (tmp_path / "torch").mkdir()
    monkeypatch.setattr(command_module, "own_sources", lambda: Sources(tmp_path / "torch", "cpython-311"))
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache/bytecode"


def test_a_worker_of_a_python_that_keeps_no_bytecode_keeps_it_in_the_cache(tmp_path: Path, no_bytecode: Path) -> None:
    environ = {"PYTHONDONTWRITEBYTECODE": "1"}
    env = worker_command(RunConfig(), tmp_path, environ).env
    assert (env["PYTHONPYCACHEPREFIX"], env["PYTHONDONTWRITEBYTECODE"]) == (str(no_bytecode), "")
    config = RunConfig(stack=StackConfig(env={"PYTHONPYCACHEPREFIX": "/mine"}))
    env = worker_command(config, tmp_path, environ).env
    assert (env["PYTHONPYCACHEPREFIX"], env["PYTHONDONTWRITEBYTECODE"]) == ("/mine", "1")
    of_a_program = worker_command(RunConfig(model=ModelConfig("mine", PROGRAM, 1)), tmp_path, environ).env
    assert "PYTHONPYCACHEPREFIX" not in of_a_program


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_worker_keeps_its_bytecode_in_the_cache(tmp_path: Path, no_bytecode: Path) -> None:
    config = RunConfig(gpus=0, model=ModelConfig("none", "no_such_module:WORKLOAD", 1))
    run_folder.write_config(tmp_path, config)
    tests_own = Path(os.environ["PYTHONPYCACHEPREFIX"])  # Without it PyTorch would be compiled, which takes long.
    no_bytecode.parent.mkdir(mode=0o700)
    folder = Path()
    for part in (*ROOT.parts[1:], "trainers", "loop", ""):  # All but the loop's own module are links to the tests'.
        (no_bytecode / folder).mkdir()
        for path in (tests_own / folder).iterdir():
            if path.name != part and not path.name.startswith("train."):
                (no_bytecode / folder / path.name).symlink_to(path)
        folder /= part
    environ = {**os.environ, "PYTHONPYCACHEPREFIX": "", "PYTHONDONTWRITEBYTECODE": "1"}
    command = worker_command(config, tmp_path, environ)
    done = subprocess.run(command.argv, env=command.env, capture_output=True, text=True, timeout=HANGS_SEC)
    result = run_folder.read_result(tmp_path)
    assert result is not None, done.stderr
    assert result.failure is not None
    assert "no_such_module" in result.failure.message
    assert list(no_bytecode.joinpath(*ROOT.parts[1:], "trainers/loop").glob("train.*.pyc"))
