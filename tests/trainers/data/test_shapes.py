"""The generated data sets: drawn the same everywhere, readable as what they stand for, written once and whole."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image
from pycocotools.coco import COCO

from conf.schema import ConfigError
from tests.support.commands import ROOT
from trainers.data.shapes import generated_files
from trainers.data.shapes.generated_files import CATEGORY_IDS, annotate, ensure
from trainers.data.shapes.rasterizing import CLASS_NAMES
from trainers.data.shapes.scenes import classification_scene, detection_scene

# pycocotools 2.0.11 hands NumPy 2 an array type of before it.
OLD_ARRAY = pytest.mark.filterwarnings("ignore:__array__ implementation:DeprecationWarning")
COMMAND = [sys.executable, "-m", "trainers.data.shapes"]
GOLDEN = {  # kind, split, index: SHA-256 of the pixels, before JPEG, and of the annotations
    ("detection", "train", 0): ("84234a450b344c30", "c0eecaf02464a237"),
    ("detection", "val", 3): ("24ee7d00bcd0c69c", "67686d4628f4caee"),
    ("detection", "train", 12345): ("719d265c5fe5251d", "05c13b91bd24a6d4"),
    ("classification", "train", 0): ("77fafc78dfe338bb", "ea5b307e40d5ffaf"),
    ("classification", "val", 7): ("d43e353c7d6ccd9f", "7f51e81a4a1bc8c5"),
}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


@pytest.mark.parametrize(("kind", "split", "index"), GOLDEN)
def test_pictures_are_the_same_everywhere(kind: str, split: str, index: int) -> None:
    scene = (detection_scene if kind == "detection" else classification_scene)(split, index)
    assert (sha256(scene.pixels.tobytes()), sha256(json.dumps(annotate(scene)).encode())) == GOLDEN[kind, split, index]


def tree(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): sha256(path.read_bytes()) for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture(scope="module")
def detection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return ensure("detection", 4, str(tmp_path_factory.mktemp("detection")))


@pytest.mark.slow
@OLD_ARRAY
def test_coco_reads_the_detection_set(detection: Path) -> None:
    assert detection.name == "shapes-v1-detection-4"
    for split, num in (("train", 4), ("val", 100)):
        coco = COCO(str(detection / "annotations" / f"instances_{split}2017.json"))
        assert sorted(coco.getImgIds()) == list(range(1, num + 1))
        assert [category["name"] for category in coco.loadCats(list(CATEGORY_IDS))] == list(CLASS_NAMES)
        assert np.diff(CATEGORY_IDS).max() > 1
        for record in coco.loadImgs(coco.getImgIds()):
            with Image.open(detection / f"{split}2017" / record["file_name"]) as image:
                assert (image.size, image.mode) == ((record["width"], record["height"]), "RGB")
        annotations = coco.loadAnns(coco.getAnnIds())
        assert [annotation["id"] for annotation in annotations] == list(range(1, len(annotations) + 1))
        for annotation in annotations:
            assert int(coco.annToMask(annotation).sum()) == pytest.approx(annotation["area"], rel=0.1)


@pytest.mark.slow
def test_the_files_show_the_scenes(detection: Path) -> None:
    with Image.open(detection / "train2017" / "000000000003.jpg") as image:
        difference = np.asarray(image).astype(int) - detection_scene("train", 2).pixels
    assert np.abs(difference).mean() < 8


def run(path: Path, size: int, **options: Any) -> subprocess.Popen[str]:
    arguments = ["--kind", "detection", "--size", str(size), "--path", str(path)]
    return subprocess.Popen(
        COMMAND + arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options
    )


@pytest.mark.slow
def test_processes_at_once_draw_it_once_after_one_was_killed(detection: Path, tmp_path: Path) -> None:
    """And a larger set begins with the smaller one, byte for byte."""
    root, partial = tmp_path / "shapes-v1-detection-6", tmp_path / ".shapes-v1-detection-6.partial"
    killed = run(tmp_path, 6)
    while not list(partial.glob("train2017/*")):
        assert killed.poll() is None
        time.sleep(0.01)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not root.exists()
    together = [run(tmp_path, 6) for _ in range(2)]
    for process in together:
        output, errors = process.communicate()
        assert (output, process.returncode) == (f"{root}\n", 0), errors
    assert not partial.exists()
    smaller, larger = tree(detection), tree(root)
    assert {name for name in larger if name.startswith("train2017")} > {
        name for name in smaller if name.startswith("train2017")
    }
    for name in smaller:
        if "train2017.json" not in name and name != "manifest.json":
            assert smaller[name] == larger[name], name
    first = json.loads((detection / "annotations" / "instances_train2017.json").read_text())
    then = json.loads((root / "annotations" / "instances_train2017.json").read_text())
    for key in ("images", "annotations"):
        assert then[key][: len(first[key])] == first[key]
        assert len(then[key]) > len(first[key])


def remove(root: Path) -> None:
    (root / "val2017" / "000000000007.jpg").unlink()


def truncate(root: Path) -> None:
    os.truncate(root / "train2017" / "000000000001.jpg", 1000)


def alter(root: Path) -> None:
    file = root / "annotations" / "instances_val2017.json"
    file.write_text(file.read_text().replace('"iscrowd":1', '"iscrowd":0'))


def forget(root: Path) -> None:
    (root / "manifest.json").unlink()


def garble(root: Path) -> None:
    (root / "manifest.json").write_text("[]")


def link_in_a_circle(root: Path) -> None:
    for name in ("a", "b", "c"):  # followed without end, they would be more folders than can be listed
        (root / "train2017" / name).symlink_to(root, target_is_directory=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (remove, "files"),
        (link_in_a_circle, "is a link to a folder above it"),
        (truncate, "files"),
        (alter, "annotations"),
        (forget, "manifest.json"),
        (garble, "damaged"),
    ],
)
def test_a_damaged_folder_is_refused_and_left_alone(detection: Path, tmp_path: Path, damage: Any, message: str) -> None:
    root = tmp_path / detection.name
    shutil.copytree(detection, root)
    assert ensure("detection", 4, str(tmp_path)) == root
    damage(root)
    before = tree(root)
    with pytest.raises(ConfigError, match=f"(?s){message}.*delete the folder"):
        ensure("detection", 4, str(tmp_path))
    assert tree(root) == before


def test_a_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="TIMETRIAL_CACHE"):
        ensure("classification", 10, str(tmp_path / "file"))


@pytest.mark.slow
def test_a_full_disk_leaves_nothing_behind(tmp_path: Path) -> None:
    """Files may only become 10 kB long; the processes that draw inherit the limit."""
    code = f"""
import resource
from trainers.data import shapes
resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
shapes.ensure("classification", 10, {str(tmp_path)!r})
"""
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert "ConfigError: dataset.path=" in answer.stderr
    assert "File too large" in answer.stderr
    assert [path.name for path in tmp_path.iterdir()] == [".shapes-v1-classification-10.lock"]


@pytest.mark.slow
def test_a_folder_for_classification_has_all_classes_whatever_wrote_the_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Files of another libjpeg are reported, and are used."""
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path))
    monkeypatch.setitem(generated_files.REFERENCE["classification"], "images", "another")
    root = ensure("classification", 12)
    assert "libjpeg" in capfd.readouterr().err
    assert root == tmp_path / "shapes-v1-classification-12"
    assert sorted(path.name for path in (root / "train").iterdir()) == sorted(CLASS_NAMES) == list(CLASS_NAMES)
    assert sorted(path.name for path in (root / "train" / "arrow").iterdir()) == ["00000000.JPEG", "00000010.JPEG"]
    assert len(list(root.glob("val/*/*.JPEG"))) == 100
    with Image.open(root / "train" / "crescent" / "00000001.JPEG") as image:
        assert np.abs(np.asarray(image).astype(int) - classification_scene("train", 1).pixels).mean() < 8


@pytest.mark.slow
def test_other_annotations_than_the_reference_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(generated_files.REFERENCE["classification"], "annotations", "another")
    with pytest.raises(ConfigError, match="expected another"):
        ensure("classification", 10, str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [".shapes-v1-classification-10.lock"]


@pytest.mark.parametrize(("kind", "least"), [("detection", 1), ("classification", len(CLASS_NAMES))])
def test_a_size_without_an_image_of_each_class_is_refused(tmp_path: Path, kind: Any, least: int) -> None:
    with pytest.raises(ConfigError, match=f"dataset.size={least - 1}: must be {least} or more training images"):
        ensure(kind, least - 1, str(tmp_path))
