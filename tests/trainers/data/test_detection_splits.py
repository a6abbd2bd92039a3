"""The two splits of a detection dataset: they have the same categories, and an object each."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from conf.schema import ConfigError
from tests.trainers.detection_folders import CROWD, LYING, SOME, Picture, describe, small

pytestmark = pytest.mark.usefixtures("own_cache")


@pytest.mark.parametrize(
    ("old", "new", "differs"),
    [
        ('"id": 9', '"id": 10', "id 9 '9' in the former and id 10 '9' in the latter"),
        ('"name": "9"', '"name": "dog"', "id 9 '9' in the former and id 9 'dog' in the latter"),
        (', {"id": 9, "name": "9"}', "", "id 9 '9' in the former and missing in the latter"),
    ],
)
def test_splits_of_other_categories_are_refused(tmp_path: Path, old: str, new: str, differs: str) -> None:
    for name in ("train2017", "val2017"):
        describe(tmp_path, name, [Picture(LYING, SOME[:1])], categories=(2, 9))
    val = tmp_path / "annotations/instances_val2017.json"
    val.write_text(re.sub(re.escape(old), new, val.read_text()))
    words = rf"train2017\.json and .*val2017\.json have different categories.*{re.escape(differs)}"
    with pytest.raises(ConfigError, match=words):
        small(tmp_path)


@pytest.mark.parametrize(("empty", "other", "use"), [("train", "val", "train"), ("val", "train", "evaluate")])
def test_a_file_without_an_object_is_refused(tmp_path: Path, empty: str, other: str, use: str) -> None:
    describe(tmp_path, f"{empty}2017", [Picture(LYING, [CROWD]), Picture(LYING)])
    describe(tmp_path, f"{other}2017", [Picture(LYING, SOME)])
    with pytest.raises(ConfigError, match=rf"instances_{empty}2017\.json: no image has an object to {use} on"):
        small(tmp_path)
