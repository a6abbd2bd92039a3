"""Who may import whom: conf <- tracking <- trainers <- launch, and hydra, mlflow and torch where they belong only."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import ROOT, environment

LAYERS = {"conf": {"conf"}, "tracking": {"conf", "tracking"}, "trainers": {"conf", "tracking", "trainers"}}
FILES = [path for layer in LAYERS for path in sorted((ROOT / layer).rglob("*.py"))] + [ROOT / "launch.py"]
TORCH = {"torch", "torchvision", "torchmetrics", "pytorch_lightning", "lightning"}
CONTROL_SIDE = {"hydra", "omegaconf", "mlflow"}  # which a worker's environment need not have
WITH_MLFLOW = {
    "tracking/doctor.py",
    "tracking/mirror.py",
    "tracking/runs_in_mlflow.py",
    "tracking/server.py",
    "tracking/system_metrics.py",
}
IN_THE_WORKER = {"tracking/callback.py", "tracking/energy.py", "tracking/steps.py", "tracking/summary.py"}
WITHOUT_TORCH = {"trainers/stack.py"}  # imported by the launcher


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def imports(path: Path, module_level_only: bool = False) -> Iterator[str]:
    """The top packages that a file imports when it runs; what is for the type checker alone is left out."""
    nodes: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name(path)}: imports are absolute"
            assert node.module
            yield node.module.partition(".")[0]
        elif isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            nodes += node.orelse
        elif not (module_level_only and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)):
            nodes += ast.iter_child_nodes(node)


@pytest.mark.parametrize("path", FILES, ids=name)
def test_a_file_imports_only_what_it_may(path: Path) -> None:
    found, at_module_level = set(imports(path)), set(imports(path, module_level_only=True))
    layer = name(path).partition("/")[0]
    ours = {*LAYERS, "launch"}
    if layer in LAYERS:
        assert found & ours <= LAYERS[layer]
        assert not found & {"hydra", "omegaconf"}
    if name(path) not in WITH_MLFLOW:
        assert "mlflow" not in found
    if (layer != "trainers" and name(path) not in IN_THE_WORKER) or name(path) in WITHOUT_TORCH:
        assert not at_module_level & TORCH
    if layer == "conf":
        assert found <= {*sys.stdlib_module_names, "yaml", "conf"}


def test_the_lists_above_name_files_that_exist() -> None:
    assert {name(path) for path in FILES} >= WITH_MLFLOW | IN_THE_WORKER | WITHOUT_TORCH


def test_no_module_has_a_name_that_says_nothing() -> None:
    words = {word for path in FILES for word in re.split(r"[_\W]", name(path))}
    assert not words & {"utils", "util", "helpers", "helper", "common", "misc", "manager"}


def imported_by(command: list[str], cwd: Path) -> tuple[int, set[str]]:
    """Exit code, and the top packages that a Python command imports."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *command],
        cwd=cwd, env=environment(), capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, set(re.findall(r"^import time:[\d |]*\| +(\w+)", done.stderr, re.MULTILINE))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--cfg", "job"], 0),
        (["--help"], 0),
        (["gpus=100"], 2),
        (["sede=2"], 2),
        (["-m", "seed=1,2", "precision=fp32,bf16", "gpus=0", "dry_run=true"], 0),
        (["gpus=0", "-m", "seed=1,2", "dry_run=true"], 0),
        (["seed=1,2", "-m", "--cfg", "job"], 2),
        (["seed=1", "--info", "config", "--cfg=job"], 2),
    ],
    ids=str,
)
def test_the_launcher_answers_without_torch_and_mlflow(tmp_path: Path, arguments: list[str], code: int) -> None:
    returned, packages = imported_by([str(ROOT / "launch.py"), *arguments], tmp_path)
    assert returned == code
    assert "hydra" in packages  # the list is not empty for another reason
    assert not packages & {*TORCH, "mlflow"}
    assert not list(tmp_path.iterdir())  # and leaves nothing behind


def test_the_worker_needs_nothing_of_the_control_side(tmp_path: Path) -> None:
    worker = "import trainers.worker, trainers.train, trainers.vgg, tracking.fingerprint"
    returned, packages = imported_by(["-c", worker], tmp_path)
    assert returned == 0
    assert "torch" in packages
    assert not packages & CONTROL_SIDE
