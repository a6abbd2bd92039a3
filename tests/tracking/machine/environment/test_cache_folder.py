"""Where the cache is, and that nothing of it is executed or loaded that others can have written."""

from __future__ import annotations

import getpass
import grp
import os
import pwd
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from conf.launch_options import ContainerConfig
from conf.schema import ConfigError, StackConfig
from tests.support.commands import launch
from tracking.machine.environment import (
    cache,
    cache_folder,
    check_cache,
    compiler_folders,
    compiler_variables,
    distrust,
    is_trusted,
    private_folder,
)
from tracking.machine.stacks import container_images, ready, uv_environment
from tracking.measure.bottleneck import ceilings
from trainers.data.cached import cached_arrays, cached_folder

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
    monkeypatch.setenv("TIMETRIAL_CACHE", "~no.such.user/own")
    with pytest.raises(ConfigError, match=r"TIMETRIAL_CACHE=~no\.such\.user/own: no user here has this home"):
        check_cache()


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
    with pytest.raises(
        ConfigError, match=rf"others can write to .*\(mode 1?77[57]\): `chmod 700 {root}`.*TIMETRIAL_CACHE"
    ):
        check_cache()
    with pytest.raises(PermissionError, match="others can write"):
        private_folder("stacks")


@pytest.mark.parametrize("mode", [0o755, 0o711, 0o750])
def test_a_user_s_cache_that_others_can_enter_is_refused_and_one_of_root_s_is_not(
    root: Path, monkeypatch: pytest.MonkeyPatch, mode: int
) -> None:
    root.mkdir()
    root.chmod(mode)
    if not os.geteuid():
        check_cache()
        give_away(root)
        monkeypatch.setattr(os, "geteuid", lambda: STRANGER)
    with pytest.raises(
        ConfigError, match=rf"others can enter .*\(mode {mode:o}\): `chmod 700 {root}`.*TIMETRIAL_CACHE"
    ):
        check_cache()
    with pytest.raises(PermissionError, match="others can enter"):
        private_folder("stacks")
    root.chmod(0o700)
    check_cache()


@pytest.fixture
def above(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder above the cache that others get to; pytest's own they do not."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        (Path(name) / "project/mine").mkdir(parents=True)
        monkeypatch.setenv("TIMETRIAL_CACHE", str(Path(name) / "project/mine/cache"))
        yield Path(name) / "project"


@pytest.mark.parametrize("mode", [0o777, 0o757])
def test_a_folder_on_the_way_that_others_can_write_to_is_refused(above: Path, mode: int) -> None:
    """Whoever can write to a folder above the cache can put another one in its place."""
    private_folder()
    above.chmod(mode)
    with pytest.raises(ConfigError, match=rf"write to {above} \(mode {mode:o}\), which is on the way"):
        check_cache()
    with pytest.raises(PermissionError, match="which is on the way"):
        private_folder()
    above.chmod(0o1777)  # sticky, as /tmp
    check_cache()
    above.chmod(mode)
    above.parent.chmod(0o700)  # Other users cannot enter it.
    check_cache()


def test_a_folder_on_the_way_that_is_another_user_s_is_refused(above: Path) -> None:
    give_away(above)
    with pytest.raises(ConfigError, match=f"{above}, on the way to it, belongs to user {STRANGER}"):
        check_cache()


def test_the_way_goes_through_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "open/real").mkdir(parents=True)
    (tmp_path / "link").symlink_to("open/real")
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "link/../real/cache"))
    private_folder()
    give_away(tmp_path / "link")
    with pytest.raises(ConfigError, match=f"link, on the way to it, belongs to user {STRANGER}"):
        check_cache()
    os.chown(tmp_path / "link", 0, 0, follow_symlinks=False)
    check_cache()
    give_away(tmp_path / "open")
    with pytest.raises(ConfigError, match=f"open, on the way to it, belongs to user {STRANGER}"):
        check_cache()
    (tmp_path / "own").mkdir(mode=0o700)
    (tmp_path / "cache").symlink_to("own")
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))
    check_cache()
    give_away(tmp_path / "own")
    with pytest.raises(ConfigError, match=f"own belongs to user {STRANGER}"):
        check_cache()


def test_the_way_may_be_open_to_a_group_of_the_user_s_own(above: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian and Red Hat give each user such a group and a umask of 002, so ~/.cache has the mode 775."""
    members: list[str] = []
    user = SimpleNamespace(pw_name="alice", pw_gid=above.stat().st_gid)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: SimpleNamespace(gr_name="alice", gr_mem=members))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: user)
    above.chmod(0o775)
    check_cache()
    members.append("mallory")
    with pytest.raises(ConfigError, match=r"\(mode 775\), which is on the way"):
        check_cache()


def test_a_file_may_be_open_to_a_group_of_the_user_s_own(above: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a umask of 002 all compiled steps are."""
    members: list[str] = []
    user = SimpleNamespace(pw_name="alice", pw_gid=above.stat().st_gid)
    monkeypatch.setattr(grp, "getgrgid", lambda gid: SimpleNamespace(gr_name="alice", gr_mem=members))
    monkeypatch.setattr(pwd, "getpwuid", lambda uid: user)
    given = {"TORCHINDUCTOR_CACHE_DIR": str(above / "mine/i"), "TRITON_CACHE_DIR": str(above / "mine/t")}
    for place in (above / "mine/t", above / "mine/t/kernel"):
        place.mkdir()
        place.chmod(0o775)
    assert compiler_folders(given)["triton"] == above / "mine/t"
    members.append("mallory")
    with pytest.raises(ConfigError, match=r"others can write to .*\(mode 775\)"):
        compiler_folders(given)


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
    assert f"stacks/env belongs to user {STRANGER}. Next: remove it" in capsys.readouterr().err


def test_a_mode_counts_where_others_get_to_the_file(above: Path) -> None:
    for name in ("a.sif", "b.sif"):
        file = private_folder("images") / name
        file.touch()
        file.chmod(0o666)
    assert not distrust(cache() / "images/a.sif")
    open_for_all(cache())
    assert distrust(cache() / "images/b.sif").endswith("b.sif (mode 666)")


def test_compiled_steps_of_another_user_are_refused(root: Path) -> None:
    step = private_folder("compiled", "inductor") / "step.py"
    step.touch()
    give_away(step)
    with pytest.raises(ConfigError, match=f"step.py belongs to user {STRANGER}. Next: remove {root / 'compiled'}; its"):
        check_cache()


FILES = ("bin/python", "lib/python3.11/site-packages/torch/__init__.py", "lib/python3.11/site-packages/evil.pth")


@pytest.mark.parametrize(
    "given_away", [".", "complete.json", "env", "env/bin", "env/lib/python3.11", *(f"env/{name}" for name in FILES)]
)
def test_an_environment_is_never_executed_of_which_a_file_is_another_user_s(root: Path, given_away: str) -> None:
    folder = made_environment()
    give_away(folder / given_away)
    assert not ready(MINE)
    os.chown(folder / given_away, 0, 0, follow_symlinks=False)
    assert ready(MINE)


@pytest.mark.parametrize("opened", ["complete.json", "env/lib", f"env/{FILES[1]}"])
def test_nor_one_of_which_others_can_write_a_file(above: Path, opened: str) -> None:
    folder = made_environment()
    (folder / opened).chmod(0o777)
    assert ready(MINE)  # Other users cannot enter it.
    remade = shutil.copytree(folder, folder.with_name("other"), symlinks=True)
    shutil.rmtree(folder)
    remade.rename(folder)
    open_for_all(cache())
    assert not ready(MINE)


def open_for_all(root: Path) -> None:
    """As root's own cache may be."""
    if os.geteuid():
        pytest.skip("needs root")
    for place in (root, *root.rglob("*")):
        place.chmod(place.stat().st_mode | 0o055) if place.is_dir() else None


MINE = StackConfig("mine", "uv", torch="2.6.0")


def made_environment() -> Path:
    folder = private_folder("stacks", uv_environment.digest(MINE))
    for name in FILES:
        (folder / "env" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "env" / name).touch()
    (folder / "env" / FILES[0]).unlink()
    (folder / "env" / FILES[0]).symlink_to("/usr/bin/env")
    (folder / "complete.json").write_text('{"declared": {}, "build_sec": 1.0, "size_bytes": 1}')
    return folder


def test_an_image_of_another_user_is_never_run(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "apptainer").write_text("")
    (tmp_path / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    container = ContainerConfig("apptainer", "docker://example.org/trainer:1")
    stack = StackConfig("ours", kind="container", container=container)
    file = private_folder("images") / container_images.file_of(stack).name
    file.write_bytes(b"an image")
    assert container_images.find(stack) is not None
    give_away(file)
    assert container_images.find(stack) is None


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


def test_a_generated_data_set_of_another_user_is_made_anew_and_not_read(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    theirs = private_folder() / "data-v1"
    (theirs / "inner").mkdir(parents=True)
    give_away(theirs / "inner")

    def make(folder: Path, lock: int | None) -> None:
        (folder / "file").touch()

    def made() -> Path:
        return cached_folder("data-v1", "data set", None, make, lambda folder: "")

    assert [path.name for path in made().iterdir()] == ["file"]
    assert f"inner belongs to user {STRANGER}; it is made anew" in capsys.readouterr().err
    assert [path.name for path in root.iterdir() if path.is_dir()] == ["data-v1"]
    root.chmod(0o777)
    with pytest.raises(
        ConfigError, match=r"others can write to .*. Next: set dataset.path or the environment variable"
    ):
        made()


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
    assert "not used, since others can write to it" in capsys.readouterr().err
    theirs.rmdir()
    theirs.symlink_to(tmp_path)
    assert compiler_variables({}) == inner


def test_where_the_compilers_keep_what_they_made(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, above: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    default = tmp_path / f"torchinductor_{getpass.getuser()}"
    assert compiler_folders({}) == {"inductor": default, "triton": tmp_path / ".triton/cache"}
    given = {"TORCHINDUCTOR_CACHE_DIR": str(above / "mine/i"), "TRITON_CACHE_DIR": str(above / "mine/t")}
    assert compiler_folders(given) == {"inductor": above / "mine/i", "triton": above / "mine/t"}
    (above / "mine/t/kernel").mkdir(parents=True)
    (above / "mine/t/kernel").chmod(0o777)
    with pytest.raises(ConfigError, match=r"others can write to .*kernel"):
        compiler_folders(given)
    (above / "mine/t/kernel").chmod(0o700)
    give_away(above / "mine/t/kernel")
    with pytest.raises(ConfigError, match="belongs to"):
        compiler_folders(given)


@pytest.mark.slow
def test_a_launch_refuses_a_cache_that_others_can_write_to(root: Path, tmp_path: Path) -> None:
    root.mkdir(mode=0o700)
    root.chmod(0o777)
    done = launch(tmp_path, "dry_run=true", "gpus=0", TIMETRIAL_CACHE=str(root))
    assert done.code == 2
    assert "refused: cache: not used, since others can write to" in done.output
    shutil.rmtree(root)
    assert launch(tmp_path, "dry_run=true", "gpus=0", TIMETRIAL_CACHE=str(root)).code == 0


def test_a_folder_in_place_of_the_cache_is_removed_by_the_process_that_made_it(tmp_path: Path) -> None:
    mine, others = tmp_path / "mine", tmp_path / "others"
    for folder, pid in ((mine, os.getpid()), (others, os.getppid())):
        folder.mkdir()
        cache_folder._scratches.append((folder, pid))
    cache_folder.remove_scratch()
    assert not mine.exists()
    assert others.exists()
    cache_folder._scratches.clear()
