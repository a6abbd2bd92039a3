"""Images of engines that keep them in files: fetched whole or not at all, once, and known by what is in them."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock
import pytest

from conf.launch_options import ContainerConfig
from conf.schema import ConfigError, StackConfig
from tracking.machine.stacks import container_images

CONTENT = b"an image"
# Like apptainer, it writes over no file. It is cut off in the middle while there is a file `cut` beside it.
PROGRAM = """#!{python} -I
import pathlib, sys
here, (word, file, image) = pathlib.Path(__file__).resolve().parent, sys.argv[1:]
with (here / "asked").open("a") as asked:
    asked.write(image + "\\n")
assert word == "pull"
if pathlib.Path(file).exists():
    sys.exit("FATAL: Image file already exists")
cut = (here / "cut").exists()
pathlib.Path(file).write_bytes({content!r}[: 3 if cut else None])
sys.exit("FATAL: unexpected EOF" if cut else 0)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of an apptainer that is alone on the PATH, with a cache beside it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "apptainer").write_text(PROGRAM.format(python=sys.executable, content=CONTENT))
    (folder / "apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))
    return folder


def stack(image: str) -> StackConfig:
    return StackConfig("ours", kind="container", container=ContainerConfig("apptainer", image))


@pytest.mark.slow
def test_an_image_that_was_cut_off_is_never_used_and_the_next_try_begins_anew(program: Path, tmp_path: Path) -> None:
    asked = stack("docker://example.org/trainer:1")
    (program / "cut").touch()
    with pytest.raises(ConfigError, match=r"cannot be fetched \(exit code 1: FATAL: unexpected EOF\)"):
        container_images.pull(asked)
    assert container_images.find(asked) is None
    (program / "cut").unlink()
    image = container_images.pull(asked)
    assert image == container_images.find(asked)
    assert image.digest == f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"
    assert Path(image.run).read_bytes() == CONTENT
    assert Path(image.run).is_relative_to(tmp_path / "cache")
    assert (program / "asked").read_text().splitlines() == ["docker://example.org/trainer:1"] * 2
    assert container_images.find(stack("docker://example.org/trainer:2")) is None


def test_an_image_that_another_sweep_fetched_meanwhile_is_not_fetched_again(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = stack("docker://example.org/trainer:1")

    @contextmanager
    def lock(_: str) -> Iterator[None]:
        """Comes once the other sweep has the image."""
        container_images.file_of(asked).write_bytes(CONTENT)
        yield

    monkeypatch.setattr(filelock, "FileLock", lock)
    assert container_images.pull(asked) == container_images.find(asked)
    assert not (program / "asked").exists()


def test_a_file_that_was_changed_has_another_digest(program: Path, tmp_path: Path) -> None:
    file = tmp_path / "own.sif"
    for content in (CONTENT, b"another"):
        file.write_bytes(content)
        image = container_images.find(stack(str(file)))
        assert image
        assert image.digest == f"sha256:{hashlib.sha256(content).hexdigest()}"
        assert image == container_images.find(stack(str(file))), "kept"


def test_a_cache_that_cannot_be_written_to_is_named(program: Path, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("no folder")
    with pytest.raises(ConfigError, match=r"cannot be kept in .*cache/images.*TIMETRIAL_CACHE"):
        container_images.pull(stack("docker://example.org/trainer:1"))
