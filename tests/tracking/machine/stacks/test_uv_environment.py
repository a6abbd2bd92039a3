"""uv's environments: made once of what is declared, never used half made. The index is a folder of empty wheels."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from conf.schema import ConfigError, StackConfig
from tests.tracking.machine.stacks.wheels import make_index
from tracking.cli.parser import main
from tracking.machine.stacks import judge, python_of, ready, uv_environment

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv on the PATH")]


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StackConfig:
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))
    index = make_index(tmp_path / "index")
    return StackConfig("mine", "uv", torch="2.6.0", requirements=["extra==1.0"], index=index)


def test_it_is_made_of_what_is_declared_and_its_resolution_is_kept(stack: StackConfig) -> None:
    assert not ready(stack)
    made = uv_environment.make(stack)
    assert ready(stack)
    assert uv_environment.find(stack) == made
    listed = (made.python.parents[2] / "requirements.txt").read_text().split()
    assert {"torch==2.6.0", "extra==1.0", "pytorch-lightning==2.6.0"} <= set(listed)
    python = python_of(stack)
    assert python is not None
    assert (python.path, python.torch) == (str(made.python), "2.6.0")


def test_without_torch_it_holds_what_is_asked_for_alone(stack: StackConfig) -> None:
    bare = replace(stack, torch=None)
    made = uv_environment.make(bare)
    assert (made.python.parents[2] / "requirements.txt").read_text().split() == ["extra==1.0"]
    python = python_of(bare, needed=())
    assert python is not None
    assert (python.path, python.torch) == (str(made.python), None)
    with pytest.raises(ConfigError, match="lacks torch"):
        python_of(bare)


def test_another_declaration_is_another_environment(stack: StackConfig) -> None:
    others = [replace(stack, requirements=[]), replace(stack, overrides=["numpy==2.0"]), replace(stack, python="3.12")]
    digests = {uv_environment.digest(each) for each in (stack, *others)}
    assert len(digests) == 4
    assert uv_environment.digest(replace(stack, name="renamed", env={"A": "b"})) in digests, "what is installed decides"


def test_what_an_old_torch_needs_and_does_not_ask_for_is_installed_beside_it(stack: StackConfig) -> None:
    old = uv_environment.declared(stack)["requirements"]
    new = uv_environment.declared(replace(stack, torch="2.15.0"))["requirements"]
    assert ("setuptools" in old, "setuptools" in new) == (True, False)


def test_a_python_that_is_not_here_is_told_before_uv_tries_to_fetch_it(
    stack: StackConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_PYTHON_DOWNLOADS", "never")
    asked = replace(stack, python="3.99")
    assert "Python 3.99 is not here, and uv has to fetch it" in judge(asked, []).facts
    assert (
        "has to fetch"
        not in judge(replace(stack, python=f"{sys.version_info.major}.{sys.version_info.minor}"), []).facts
    )
    with pytest.raises(ConfigError, match=r"stack=mine: cannot be made \(Python 3\.99.*No interpreter found"):
        uv_environment.make(asked)


def make_one(stack: StackConfig, results: multiprocessing.Queue[float]) -> None:
    results.put(uv_environment.make(stack).build_sec)


def test_two_sweeps_at_once_make_it_once(stack: StackConfig) -> None:
    context = multiprocessing.get_context("fork")
    results: multiprocessing.Queue[float] = context.Queue()
    processes = [context.Process(target=make_one, args=(stack, results)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert len({results.get(timeout=60) for _ in processes}) == 1, "all three were told the one building"


def test_one_that_was_cut_off_is_made_anew(stack: StackConfig) -> None:
    made = uv_environment.make(stack)
    folder = made.python.parents[2]
    (folder / "complete.json").unlink()
    (folder / "env/half").touch()
    assert not ready(stack)
    uv_environment.make(stack)
    assert not (folder / "env/half").exists()


def test_one_of_a_uv_s_cache_that_another_user_writes_is_refused(
    stack: StackConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uv links files of its cache into an environment, and that may be one of a whole group."""
    if os.geteuid():
        pytest.skip("needs root, to give a file to another user")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_LINK_MODE", "hardlink")
    shutil.rmtree(uv_environment.make(stack).python.parents[2])
    for file in (tmp_path / "uv").rglob("extra*/METADATA"):
        os.chown(file, 54_321, 54_321)
    with pytest.raises(ConfigError, match=r"METADATA belongs to user 54321.*set UV_CACHE_DIR"):
        uv_environment.make(stack)
    assert not ready(stack)


def test_what_does_not_resolve_is_refused_in_the_resolvers_words_before_anything_is_built(
    stack: StackConfig, tmp_path: Path
) -> None:
    asked = replace(stack, requirements=["extra==9.9"])
    refused = judge(asked, []).error
    for words in ("stack=mine: does not resolve", "torch==2.6.0", "extra==9.9", "no version of extra"):
        assert words in refused, refused
    assert not list((tmp_path / "cache").glob("stacks/*/"))


def test_an_override_beats_what_others_ask_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))
    index = make_index(tmp_path / "index", needs={"torch": "extra==0.5"})
    stack = StackConfig("mine", "uv", torch="2.6.0", index=index)
    assert "does not resolve" in judge(stack, []).error
    made = uv_environment.make(replace(stack, overrides=["extra==1.0"]))
    assert "extra==1.0" in (made.python.parents[2] / "requirements.txt").read_text()


def test_an_index_that_cannot_be_reached_is_named(stack: StackConfig) -> None:
    refused = judge(replace(stack, index="http://127.0.0.1:9/none"), []).error
    assert "does not resolve" in refused
    assert "127.0.0.1:9" in refused


def test_the_command_builds_ahead_lists_and_removes(
    stack: StackConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine/stack").mkdir(parents=True)
    text = f"kind: uv\ntorch: 2.6.0\nrequirements: [extra==1.0]\nindex: {stack.index}\n"
    (tmp_path / "mine/stack/mine.yaml").write_text(text)
    own = f"--config-dir={tmp_path / 'mine'}"
    assert main(["stacks", "mine", own, "--build"]) == 0
    assert "made in" in capsys.readouterr().out
    assert ready(stack)
    assert main(["stacks", own]) == 0
    assert "made" in capsys.readouterr().out
    assert main(["stacks", "--remove"]) == 0, "of no shipped stack, and so unused without the folder"
    assert "1 removed" in capsys.readouterr().out
    assert not ready(stack)
    assert main(["stacks", "nothing"]) == 2
    assert "no such stack" in capsys.readouterr().err


def test_a_cache_that_cannot_be_written_to_is_named(stack: StackConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMETRIAL_CACHE", "/proc/nowhere")
    with pytest.raises(ConfigError, match="set TIMETRIAL_CACHE"):
        uv_environment.make(stack)
