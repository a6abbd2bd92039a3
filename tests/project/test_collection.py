"""GPU tests are collected on any machine: a device machine has what a run needs, and not all that tests need."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from importlib import metadata

import pytest

from tests.conftest import FOR_TESTS
from tests.support.commands import HANGS_SEC, ROOT, environment


def collected(hidden: str, *paths: str) -> subprocess.CompletedProcess[str]:
    words = ["-m", "tests.support.blind_pytest", hidden, "--collect-only", "-q", "-p", "no:cacheprovider", *paths]
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=HANGS_SEC
    )


@pytest.mark.exhaustive
@pytest.mark.slow
def test_gpu_tests_are_collected_where_packages_of_tests_are_missing() -> None:
    tests = sorted((ROOT / "tests").rglob("test_*.py"))
    paths = [str(path) for path in tests if "mark.gpu" in path.read_text() or path.name == "test_ui.py"]
    done = collected(",".join(FOR_TESTS), "-m", "gpu", *paths)
    assert done.returncode == 0, done.stdout[-3000:]
    assert "needs playwright, which is not installed" in done.stdout
    assert "tests/trainers/ops/test_nms.py::" in done.stdout


@pytest.mark.slow
def test_a_module_that_a_run_needs_is_missed_with_an_error() -> None:
    done = collected("PIL", "tests/tracking/analysis/report/test_ui.py")  # It imports little before that.
    assert done.returncode == 2
    assert "No module named 'PIL'" in done.stdout


@pytest.mark.exhaustive
def test_packages_of_tests_alone_are_known_as_such() -> None:
    """Packages of the group `dev` that runs do not need may be missing. Test files that import them are skipped."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    words = [
        word for group in ("dev", "bench") for word in project["dependency-groups"][group] if isinstance(word, str)
    ]
    names = {re.split(r"[\W]", word.replace("-", "_"))[0] for word in words} - {"pytest", "hypothesis"}
    of_tests = {
        top for top, wheels in metadata.packages_distributions().items()
        if any(wheel.lower().replace("-", "_") in names for wheel in wheels)
    }  # fmt: skip
    trees = [ast.parse(path.read_text()) for path in (ROOT / "tests").rglob("*.py")]
    lines = [line for tree in trees for line in tree.body]
    imported = {line.module.partition(".")[0] for line in lines if isinstance(line, ast.ImportFrom) and line.module}
    imported |= {alias.name.partition(".")[0] for line in lines if isinstance(line, ast.Import) for alias in line.names}
    assert of_tests & imported <= {*FOR_TESTS}
    assert "jsonschema" in of_tests & imported  # The sets are not empty for another reason.
