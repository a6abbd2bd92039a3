"""The first process of a container, here outside of one: it ends what it runs when the launcher is gone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import HANGS_SEC
from tests.support.folders import wait_for
from tracking.jobs.worker_command.contained import GUARD

pytestmark = pytest.mark.slow


def guard(run_dir: Path, folder: Path, *command: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-I", str(GUARD), str(run_dir), str(folder), *command]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    return subprocess.Popen(words, start_new_session=True, **pipes)  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize(("command", "code"), [("exit 0", 0), ("exit 3", 3), ("kill -9 $$", 137), ("kill $$", 143)])
def test_it_ends_as_its_command_does(tmp_path: Path, command: str, code: int) -> None:
    with guard(tmp_path, tmp_path, "/bin/sh", "-c", command) as process:
        assert process.wait(HANGS_SEC) == code


def test_it_ends_with_the_launcher_and_takes_all_with_it(tmp_path: Path) -> None:
    script = f"sleep 600 & echo $! > {tmp_path}/new; mv {tmp_path}/new {tmp_path}/child; wait"
    with guard(tmp_path, tmp_path, "/bin/sh", "-c", script) as process:
        wait_for((tmp_path / "child").exists)
        child = int((tmp_path / "child").read_text())
        assert process.stdin
        process.stdin.close()
        assert process.wait(HANGS_SEC) == -9
    wait_for(lambda: not Path(f"/proc/{child}").exists() or "Z" in Path(f"/proc/{child}/stat").read_text().split()[2])


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with guard(tmp_path, tmp_path / "none", "/bin/true") as process:
        output = process.stdout.read() if process.stdout else ""
        assert process.wait(HANGS_SEC) == 78
        assert f"{tmp_path / 'none'}: the launcher's working directory is missing" in output
    with guard(tmp_path / "none", tmp_path, "/bin/true") as process:
        output = process.stdout.read() if process.stdout else ""
        assert f"user {os.getuid()}:{os.getgid()} of the container cannot write to the run folder" in output
