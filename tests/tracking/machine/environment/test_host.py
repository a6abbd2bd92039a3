"""Commands, git, secrets, containers and loaded versions."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.commands import HANGS_SEC
from tests.support.folders import wait_for
from tracking.base import secret_looks
from tracking.machine.environment import host
from tracking.machine.environment.fingerprint import Collector, tags


def run(*arguments: str) -> str | None:
    return host.start([sys.executable, "-c", *arguments])()


@pytest.mark.slow
def test_command_that_is_missing_or_fails_answers_nothing() -> None:
    assert host.start(["no-such-command-anywhere"])() is None
    assert run("print('half an answer'); raise SystemExit(1)") is None
    assert run("print('an answer')") == "an answer\n"


@pytest.mark.slow
def test_command_ends_without_being_read() -> None:
    others = psutil.Process().children()
    output = host.start([sys.executable, "-c", "print('x' * 500_000)"])
    [command] = set(psutil.Process().children()) - set(others)
    wait_for(lambda: command.status() == psutil.STATUS_ZOMBIE)  # A pipe would hold it up until it is read.
    assert len(output() or "") == 500_001


@pytest.mark.slow
def test_command_that_hangs_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "TIMEOUT_SEC", 0.2)
    start = time.monotonic()
    assert run(f"import time; time.sleep({HANGS_SEC})") is None
    assert time.monotonic() - start < HANGS_SEC


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=A", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=folder, check=True, capture_output=True)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_git_state_without_the_remote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "DIFF_LIMIT_BYTES", 5_000)
    assert "git" not in Collector({}, repository=tmp_path / "missing").finish()
    git(tmp_path, "init", "--initial-branch", "speed")
    assert "git" not in Collector({}, repository=tmp_path).finish()  # no commit yet
    git(tmp_path, "remote", "add", "origin", "https://someone:hunter2@example.org/code.git")
    (tmp_path / "train.py").write_text("lr = 1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-m", "first")
    clean = Collector({}, repository=tmp_path).finish()
    assert re.fullmatch("[0-9a-f]{40}", clean["git"]["commit"])
    assert (clean["git"]["branch"], clean["git"]["dirty"], "diff" in clean["git"]) == ("speed", False, False)
    assert tags(clean)["git.dirty"] == "false"

    own = Collector({}).finish()  # of this code, which a fingerprint of another repository has beside
    assert clean.get("timetrial", {}).get("commit") == own.get("git", {}).get("commit")
    assert ("timetrial.commit" in tags(clean), "timetrial.commit" in tags(own)) == ("git" in own, False)

    (tmp_path / "train.py").write_text("lr = 2\nurl = 'https://someone:hunter2@example.org/data'\n")
    (tmp_path / "größe 2.py").write_text("")
    dirty = Collector({}, repository=tmp_path).finish()["git"]
    assert dirty["commit"] == clean["git"]["commit"]
    assert "+lr = 2" in dirty["diff"]
    assert not dirty["diff_truncated"]
    assert dirty["untracked"] == ["größe 2.py"]
    assert dirty["dirty"]
    assert "hunter2" not in json.dumps([clean, dirty])

    (tmp_path / "train.py").write_text("x = 'ä'\n" * 10_000)
    long = Collector({}, repository=tmp_path).finish()["git"]
    assert long["diff_truncated"]
    assert len(long["diff"].encode()) <= 5_000


def test_git_without_all_answers() -> None:
    assert host.parse_git(None, None, None, None) == {}
    assert host.parse_git("abc\n", None, None, "") == {"commit": "abc"}  # detached, and the diff timed out


WORDS = [*host.COMPUTING_VARIABLES, *secret_looks.WORDS, "_", "x", "AWS_", "DEVICES"]
NAMES = st.builds("".join, st.lists(st.sampled_from(WORDS)))


@pytest.mark.slow
@given(st.dictionaries(NAMES, st.just("hunter2")))
def test_environment_keeps_what_matters_and_no_secret(environ: dict[str, str]) -> None:
    for name in host.environment(environ):
        assert name.startswith(
            ("CUDA_", "NCCL_", "OMP_", "GOMP_", "TORCH_", "PYTORCH_", "MKL_", "CUDNN_", "CUBLAS_", "NVIDIA_")
        )
        assert not re.search("TOKEN|KEY|SECRET|PASSWORD|PASSWD|PASSPHRASE|CREDENTIAL|AUTH", name)


def test_dockers_and_podmans_containers_are_recognised(tmp_path: Path) -> None:
    assert host.container({}, tmp_path) == {}
    (tmp_path / ".dockerenv").touch()
    assert host.container({"TIMETRIAL_IMAGE": "image:1"}, tmp_path) == {"container": "docker", "image": "image:1"}
    (tmp_path / "run").mkdir()
    (tmp_path / "run/.containerenv").write_text('engine="podman-4.9.3"\nimage="docker.io/library/x:1"\nrootless=1\n')
    assert host.container({}, tmp_path) == {"container": "podman", "image": "docker.io/library/x:1"}


def test_damaged_answers_are_left_out() -> None:
    assert host.parse_lscpu("") == host.parse_meminfo("") == {}


@given(st.text())
def test_any_text_is_taken(text: str) -> None:
    host.parse_lscpu(text)
    host.parse_meminfo(text)
    host.parse_git(text, text, text, text)


@pytest.mark.parametrize(
    ("code", "version"),
    [(91002, "9.10.2"), (8902, "8.9.2"), (90100, "9.1.0"), (22803, "2.28.3"), (20905, "2.9.5"), (2708, "2.7.8")],
)
def test_version_numbers_of_cudnn_and_nccl(code: int, version: str) -> None:
    assert host.version_of(code) == version


def torch_stub(version: str, cuda: str | None) -> SimpleNamespace:
    return SimpleNamespace(
        __version__=version,
        version=SimpleNamespace(cuda=cuda),
        cuda=SimpleNamespace(nccl=SimpleNamespace(version=lambda: (2, 28, 3))),
    )


def test_the_version_that_is_loaded_goes_before_what_torch_was_built_with(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = {"libcudnn.so": "9.10.2"}
    monkeypatch.setattr(host, "library_version", lambda name, function: loaded.get(name))
    versions = host.loaded_versions(torch_stub("2.11.0+cu130", "13.0"))
    assert versions == {"torch": "2.11.0+cu130", "cuda": "13.0", "cudnn": "9.10.2", "nccl": "2.28.3"}
    assert host.loaded_versions(torch_stub("2.11.0+cpu", None)) == {"torch": "2.11.0+cpu"}
    assert host.loaded_versions(None) == {}
    loaded["libnccl.so"] = "2.30.7"  # what is loaded goes before what torch was built with
    assert host.loaded_versions(torch_stub("2.11.0+cu130", "13.0"))["nccl"] == "2.30.7"


def test_a_library_that_is_not_loaded_has_no_version(tmp_path: Path) -> None:
    maps = tmp_path / "maps"
    assert host.library_version("libnccl.so", "ncclGetVersion", maps) is None
    maps.write_text("7f00-7f01 r-xp 00000000 00:00 0    /nowhere/libnccl.so.2\n")
    assert host.library_version("libnccl.so", "ncclGetVersion", maps) is None


def test_a_long_diff_is_cut_at_a_line_before_secrets_are_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[str] = []
    monkeypatch.setattr(host, "redact", lambda text: looked_at.append(text) or text)
    line = "+token = abcdefgh12345678\n"
    values = host.parse_git("abc", "main", line * 100_000, "")
    assert values["diff_truncated"]
    assert looked_at == [values["diff"]]
    assert set(values["diff"].split("\n")) == {line.strip()}
    assert host.DIFF_LIMIT_BYTES - len(line) <= len(values["diff"]) <= host.DIFF_LIMIT_BYTES
