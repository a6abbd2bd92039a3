"""Where the cache is, and that nothing of it is executed or loaded that others can have written."""

from __future__ import annotations

import getpass
import os
import shutil
import stat
import tempfile
from pathlib import Path

import numpy as np
import pytest

from conf.schema import ConfigError, ContainerConfig, StackConfig
from tests.support.commands import launch
from tracking.machine.environment import cache, check_cache, compiler_variables, distrust, is_trusted, private_folder
from tracking.machine.stacks import images, ready, uv_environment
from tracking.measure.bottleneck import ceilings
from trainers.data.cached import cached_arrays
from trainers.data.shapes.files import ensure

STRANGER = 54_321


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache's folder, which is not there yet. As another than root a test cannot give files away."""
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def give_away(path: Path) -> None:
    if os.geteuid():
        pytest.skip("needs root, to give a file to another user")
    os.chown(path, STRANGER, STRANGER, follow_symlinks=False)


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.delenv("TIMETRIAL_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache() == Path("/home/someone/.cache/timetrial")
    monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
    assert cache() == Path("/xdg/timetrial")
    monkeypatch.setenv("TIMETRIAL_CACHE", "~/own")
    assert cache() == Path("/home/someone/own")


def test_a_user_without_a_home_gets_a_folder_that_nobody_else_has_made(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TIMETRIAL_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 3)  # whom no list of users has
    folder = cache()
    assert folder == cache()
    assert folder.name not in ("timetrial", f"timetrial-{2**31 - 3}")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_its_folders_are_made_for_this_user_alone(root: Path) -> None:
    before = os.umask(0)
    try:
        folder = private_folder("stacks", "one")
    finally:
        os.umask(before)
    assert folder == root / "stacks/one"
    assert {stat.S_IMODE(path.stat().st_mode) for path in (root, root / "stacks", folder)} == {0o700}


@pytest.mark.parametrize("mode", [0o777, 0o775, 0o1777])
def test_a_cache_that_others_can_write_to_is_refused_with_the_next_step(root: Path, mode: int) -> None:
    root.mkdir()
    root.chmod(mode)
    with pytest.raises(ConfigError, match=r"others can write to .*\(mode 1?77[57]\); .*chmod 700.*TIMETRIAL_CACHE"):
        check_cache()
    with pytest.raises(PermissionError, match="others can write"):
        private_folder("stacks")
    root.chmod(0o755)
    check_cache()


def test_a_cache_of_another_user_is_refused_also_by_root(root: Path) -> None:
    private_folder()
    give_away(root)
    with pytest.raises(ConfigError, match=f"belongs to user {STRANGER}"):
        check_cache()


def test_an_entry_of_another_user_is_not_used_and_that_is_said(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (private_folder("stacks") / "env").mkdir()
    assert is_trusted(root / "stacks/env")
    assert is_trusted(root / "stacks/env/not-there")
    give_away(root / "stacks/env")
    assert not is_trusted(root / "stacks/env/bin/python")
    assert f"stacks/env belongs to user {STRANGER}; remove it" in capsys.readouterr().err


def test_a_mode_counts_where_others_get_to_the_file(root: Path) -> None:
    file = private_folder("images") / "a.sif"
    file.touch()
    file.chmod(0o666)
    assert not distrust(file)
    for folder in (root, root / "images"):
        folder.chmod(0o755)
    assert distrust(file).endswith("a.sif (mode 666)")


def test_an_environment_of_another_user_is_never_executed(root: Path) -> None:
    stack = StackConfig("mine", "uv", torch="2.6.0")
    folder = private_folder("stacks", uv_environment.digest(stack))
    (folder / "env/bin").mkdir(parents=True)
    (folder / "env/bin/python").symlink_to("/usr/bin/env")
    (folder / "complete.json").write_text('{"declared": {}, "build_sec": 1.0, "size_bytes": 1}')
    assert ready(stack)
    for path in ("env/bin/python", "env/bin", "env", "complete.json", "."):
        give_away(folder / path)
        assert not ready(stack)
        os.chown(folder / path, 0, 0, follow_symlinks=False)
    assert ready(stack)


def test_an_image_of_another_user_is_never_run(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apptainer").write_text("")
    (tmp_path / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    container = ContainerConfig("apptainer", "docker://example.org/trainer:1")
    stack = StackConfig("ours", kind="container", container=container)
    file = private_folder("images") / images.file_of(stack).name
    file.write_bytes(b"an image")
    assert images.find(stack) is not None
    give_away(file)
    assert images.find(stack) is None


def test_arrays_of_another_user_are_made_anew_and_not_loaded(root: Path, tmp_path: Path) -> None:
    (tmp_path / "data").touch()

    def arrays(value: int) -> int:
        made = cached_arrays("room", [tmp_path / "data"], "", 1, lambda: {"a": np.full(3, value)})
        return int(made["a"][0])

    assert (arrays(1), arrays(2)) == (1, 1)
    (entry,) = (root / "room").iterdir()
    (state,) = (path for path in entry.iterdir() if path.is_dir())
    give_away(state)
    assert (arrays(3), arrays(4)) == (3, 3)
    root.chmod(0o777)
    assert (arrays(5), arrays(6)) == (5, 6)  # made, and not kept either


def test_a_generated_data_set_of_another_user_is_refused(root: Path) -> None:
    drawn = private_folder() / "shapes-v1-classification-2"
    drawn.mkdir()
    give_away(drawn)
    with pytest.raises(ConfigError, match=f"belongs to user {STRANGER}; remove it, or set dataset.path"):
        ensure("classification", 2)


def test_ceilings_of_another_user_are_not_read(root: Path) -> None:
    tags = {"env.hardware_id": "abc"}
    path = ceilings.save(ceilings.Ceilings(environment=tags))
    assert ceilings.of_hardware(tags) is not None
    give_away(path)
    assert ceilings.of_hardware(tags) is None


def test_a_folder_of_compiled_steps_that_another_user_made_first_is_not_used(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    theirs = tmp_path / f"torchinductor_{getpass.getuser()}"
    assert not compiler_variables({})
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o700
    assert not compiler_variables({"TORCHINDUCTOR_CACHE_DIR": "/own"})
    inner = {"TORCHINDUCTOR_CACHE_DIR": str(root / "compiled/inductor")}
    theirs.chmod(0o777)
    assert compiler_variables({}) == inner
    assert "is not yours alone" in capsys.readouterr().err
    theirs.rmdir()
    theirs.symlink_to(tmp_path)
    assert compiler_variables({}) == inner


@pytest.mark.slow
def test_a_launch_refuses_a_cache_that_others_can_write_to(root: Path, tmp_path: Path) -> None:
    root.mkdir(mode=0o700)
    root.chmod(0o777)
    done = launch(tmp_path, "dry_run=true", "gpus=0", TIMETRIAL_CACHE=str(root))
    assert done.code == 2
    assert "refused: cache: not used, since others can write to" in done.output
    shutil.rmtree(root)
    assert launch(tmp_path, "dry_run=true", "gpus=0", TIMETRIAL_CACHE=str(root)).code == 0
