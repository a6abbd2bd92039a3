"""`make check` on a fresh machine: what it installs, what it skips with a reason, and who calls it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import HANGS_SEC, ROOT

PROGRAMS = ("bash", "dirname", "cat")
SERVICES = {
    "nginx": "nginx", "openssl": "openssl", "chromium": "chromium", "podman": "podman", "runc": "runc",
    "busybox": "busybox-static", "sbatch": "slurm-wlm", "munged": "munge", "slurmdbd": "slurmdbd",
    "mariadbd": "mariadb-server", "gnugo": "gnugo",
}  # fmt: skip


class FreshMachine:
    """A folder of programs in place of the machine's; each but those of `PROGRAMS` only notes how it was called."""

    def __init__(self, folder: Path, user: int, *programs: str) -> None:
        self.folder, self.calls = folder, folder / "calls"
        for name in PROGRAMS:
            (folder / name).symlink_to(shutil.which(name) or name)
        self.add("id", f"echo {user}")
        for name in programs:
            self.add(name, f'echo "{name} $*" >> {self.calls}')

    def add(self, name: str, line: str) -> None:
        (self.folder / name).write_text(f"#!{shutil.which('bash')}\n{line}\n")
        (self.folder / name).chmod(0o755)

    def set_up(self, *arguments: str) -> tuple[list[str], str]:
        """How programs were called, and what was printed."""
        script = (ROOT / ".ci/set-up").read_text()
        script = script.replace('cd "$(dirname "$0")/.."', "").replace("PATH=$PATH:/usr/sbin:/sbin:/usr/games", "")
        script = script.replace("/usr/lib/postgresql", str(self.folder / "postgresql"))
        done = subprocess.run(
            [str(self.folder / "bash"), "-c", script, "set-up", *arguments],
            cwd=self.folder, env={"PATH": str(self.folder), "HOME": str(self.folder)}, timeout=HANGS_SEC,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True,
        )  # fmt: skip
        return self.calls.read_text().splitlines() if self.calls.exists() else [], done.stdout


@pytest.mark.slow
def test_a_fresh_machine_gets_uv_the_services_and_the_environment(tmp_path: Path) -> None:
    calls, _ = FreshMachine(tmp_path, 0, "apt-get", "uv").set_up()
    installed = {word for call in calls if call.startswith("apt-get install") for word in call.split()[2:]}
    assert installed >= {*SERVICES.values(), "postgresql", "fonts-liberation"}
    assert calls[-1] == "uv sync --group docs --group frameworks"


@pytest.mark.slow
def test_what_is_there_is_not_installed_again(tmp_path: Path) -> None:
    machine = FreshMachine(tmp_path, 0, "apt-get", "uv", *SERVICES)
    (tmp_path / "postgresql/15/bin").mkdir(parents=True)
    (tmp_path / "postgresql/15/bin/postgres").touch()
    assert machine.set_up() == (["uv sync --group docs --group frameworks"], "")


@pytest.mark.slow
@pytest.mark.parametrize("user", [0, 1000], ids=["without apt-get", "not root"])
def test_services_that_cannot_be_installed_are_named(tmp_path: Path, user: int) -> None:
    programs = ["uv", *SERVICES] + (["apt-get"] if user else [])
    programs.remove("nginx")
    calls, words = FreshMachine(tmp_path, user, *programs).set_up()
    assert calls == ["uv sync --group docs --group frameworks"]
    assert words == "Tests of missing services are skipped. As root on Debian: apt-get install nginx postgresql\n"


@pytest.mark.slow
def test_a_package_that_the_distribution_lacks_keeps_no_other_away(tmp_path: Path) -> None:
    machine = FreshMachine(tmp_path, 0, "uv")
    machine.add("apt-get", f'echo "$*" >> {machine.calls}; case "$*" in *runc*) exit 100;; esac')
    calls, words = machine.set_up()
    assert "install -y -qq --no-install-recommends podman" in calls
    assert words.startswith("Tests of missing services are skipped.")


@pytest.mark.slow
def test_uv_comes_by_pip_and_quick_installs_no_service(tmp_path: Path) -> None:
    machine = FreshMachine(tmp_path, 0, "apt-get")
    machine.add("uv.later", f'echo "uv $*" >> {machine.calls}')
    machine.add("python3", f'echo "$*" >> {machine.calls}; {shutil.which("cp")} {tmp_path}/uv.later {tmp_path}/uv')
    calls, _ = machine.set_up("quick")
    assert calls == ["-m pip --version", "-m pip install --quiet uv", "uv sync --inexact"]


SHAKY = """
import pathlib, pytest
@pytest.fixture(scope="module")
def number():
    made = pathlib.Path(__file__).with_suffix(".made")
    made.write_text(made.read_text() + "x" if made.exists() else "x")
    return len(made.read_text())
def test_first(number):
    assert number > FAILS
def test_second():
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "fails", "code", "words"),
    [
        (3, 1, 0, "3 passed"),  # once: with a new fixture they pass
        (1, 2, 1, "1 failed"),  # twice
        (4, 1, 1, "4 failed, 4 passed"),  # so many files are no accident
        (1, 0, 0, "2 passed"),
    ],
)
def test_what_fails_in_few_files_runs_once_more_with_new_fixtures(
    tmp_path: Path, files: int, fails: int, code: int, words: str
) -> None:
    (tmp_path / ".ci").mkdir()
    shutil.copy(ROOT / ".ci/tests", tmp_path / ".ci/tests")
    (tmp_path / "uv").write_text(f'#!/bin/sh\nshift 2\n[ "$1" = pytest ] && set -- python -m "$@"\nshift\n'
                                 f'exec {sys.executable} "$@"\n')  # fmt: skip
    (tmp_path / "uv").chmod(0o755)
    for number in range(files):
        (tmp_path / f"test_shaky{number}.py").write_text(SHAKY.replace("FAILS", str(fails)))
    done = subprocess.run(
        [tmp_path / ".ci/tests", "-n", "0", "-q"],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, timeout=HANGS_SEC,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, words in done.stdout.splitlines()[-1]) == (code, True), done.stdout


def test_ci_calls_the_command_that_the_readme_shows() -> None:
    assert (ROOT / ".ci/run").read_text().splitlines()[-1] == "exec make check"
    about_users, about_changes = (ROOT / "README.md").read_text().split("\n## Contributing\n")
    commands = [
        line for block in re.findall(r"```bash\n(.*?)```", about_changes, re.DOTALL) for line in block.splitlines()
    ]
    assert commands[0].startswith("make check ")
    assert "make quick" in about_changes
    assert "make " not in about_users, "a user needs none of it"
