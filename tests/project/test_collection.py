"""GPU tests are collected on any machine: a device machine has what a run needs, and not all that tests need."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.conftest import FOR_TESTS
from tests.support.commands import HANGS_SEC, ROOT, environment


def collected(hidden: str, *paths: str) -> subprocess.CompletedProcess[str]:
    words = ["-m", "tests.support.blind_pytest", hidden, "--collect-only", "-q", "-p", "no:cacheprovider", *paths]
    return subprocess.run(
        [sys.executable, *words], cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=HANGS_SEC
    )


@pytest.mark.slow
def test_gpu_tests_are_collected_where_packages_of_tests_are_missing() -> None:
    done = collected(",".join(FOR_TESTS), "-m", "gpu")
    assert done.returncode == 0, done.stdout[-3000:]
    assert "needs playwright, which is not installed" in done.stdout
    assert "tests/trainers/ops/test_nms.py::" in done.stdout


@pytest.mark.slow
def test_a_module_that_a_run_needs_is_missed_with_an_error() -> None:
    done = collected("PIL", "tests/trainers/data/test_jpeg.py")
    assert done.returncode == 2
    assert "No module named 'PIL'" in done.stdout
