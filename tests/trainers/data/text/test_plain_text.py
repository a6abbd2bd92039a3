"""Plain text with a model of sentencepiece: whether the two belong together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sentencepiece

from conf.schema import ConfigError
from trainers.data.text import UNKNOWN, wmt

NUM = 40
TEXT = {"en": [f"the dog sees {n} cats" for n in range(NUM)], "de": [f"der hund sieht {n} katzen" for n in range(NUM)]}
pytestmark = pytest.mark.usefixtures("own_cache")


def write(folder: Path, **replaced: list[str]) -> Path:
    """The text, and a model that was made of it before lines were `replaced`, by language."""
    folder.mkdir()
    for language, lines in TEXT.items():
        (folder / f"train.{language}").write_text("\n".join(lines) + "\n")
        (folder / f"newstest2014.{language}").write_text(lines[0] + "\n")
    sentencepiece.SentencePieceTrainer.train(
        input=",".join(str(folder / f"train.{language}") for language in TEXT), model_prefix=str(folder / "pieces"),
        model_type="bpe", vocab_size=60, hard_vocab_limit=False, num_threads=1, minloglevel=2,
    )  # fmt: skip
    for language, lines in replaced.items():
        (folder / f"train.{language}").write_text("\n".join(lines) + "\n")
    return folder


def test_some_characters_may_be_unknown_and_most_may_not(tmp_path: Path) -> None:
    data = wmt(str(write(tmp_path / "one", en=[*TEXT["en"][1:], "漢"])))
    assert UNKNOWN in data.train.source
    foreign = [TEXT["de"][0], *["漢 字"] * (NUM - 1)]
    folder = write(tmp_path / "most", de=foreign)
    message = rf"{folder}/train\.de, line 2: is the first line with tokens that are not in .*pieces\.model, which"
    with pytest.raises(ConfigError, match=message):
        wmt(str(folder))


def test_a_line_of_which_nothing_is_left_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "text", en=[*TEXT["en"][:2], "\u200b", *TEXT["en"][3:]])
    with pytest.raises(ConfigError, match=re.escape(f"{folder}/train.en, line 3: has no ids in")):
        wmt(str(folder))
