"""Tensor2tensor's subwords: ids and text against the format's definition, character by character."""

from __future__ import annotations

import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.schema import ConfigError
from trainers.data.text import NUM_MARKS, UNKNOWN, wmt
from trainers.data.text.subwords import Subwords

WORDS = ["the_", "hund_", "d", "og_", "og", " , _", "_", "s", "the"]
SINGLE = [*"\\u;0123456789", *"abcdefghijklmnopqrstuvwxyz", " ", ",", "ä", "'"]
SUBWORDS = [*WORDS, *(character for character in SINGLE if character not in WORDS)]
pytestmark = pytest.mark.usefixtures("own_cache")


def write(path: Path, subwords: list[str], quote: str = "'") -> Path:
    lines = ["<pad>", "<EOS>", *subwords]
    path.write_text("".join(f"{quote}{line}{quote}\n" for line in lines), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory: pytest.TempPathFactory) -> Subwords:
    return Subwords(write(tmp_path_factory.mktemp("vocabulary") / "vocab.ende.32768", SUBWORDS))


def kind(character: str) -> bool:
    return unicodedata.category(character)[0] in "LN"


def defined(text: str) -> list[str]:
    """The subwords of a text by the definition: tokens, escapes, and the longest one from the left."""
    tokens: list[str] = []
    for place, character in enumerate(text):
        if place and kind(character) == kind(text[place - 1]):
            tokens[-1] += character
        else:
            tokens.append(character)
    known = set("".join(SUBWORDS))
    cut = []
    for token in (token for place, token in enumerate(tokens) if token != " " or place == 0):
        left = token.replace("\\", "\\\\").replace("_", "\\u")
        left = "".join(character if character in known else f"\\{ord(character)};" for character in left) + "_"
        while left:
            cut.append(max((subword for subword in SUBWORDS if left.startswith(subword)), key=len))
            left = left[len(cut[-1]) :]
    return cut


@given(text=st.text(st.sampled_from("theog d,_\\9ä漢\u2028!;'"), max_size=20))
def test_any_text_is_cut_as_defined_and_comes_back(vocabulary: Subwords, text: str) -> None:
    text = text.strip()
    ids, lengths = vocabulary.encode([text, "hund"])
    of_text = ids[: lengths[0]].tolist()
    assert [SUBWORDS[number - NUM_MARKS - 2] for number in of_text] == defined(text)
    assert vocabulary.decode(of_text) == text
    assert vocabulary.decode(ids[lengths[0] :].tolist()) == "hund"


def test_a_model_may_say_anything(vocabulary: Subwords) -> None:
    ids = [0, 1, 2, 3, 4, 5, vocabulary.size, *(4 + 2 + SUBWORDS.index(part) for part in ("\\", "9", ";", "d"))]
    assert vocabulary.decode(ids) == "\td"
    assert vocabulary.decode([]) == ""
    numbers = [4 + 2 + SUBWORDS.index(part) for part in ("\\", *"9999999", ";", "_")]
    assert vocabulary.decode(numbers) == "\u3013"


def test_its_size_is_the_file_s_with_marks(vocabulary: Subwords, tmp_path: Path) -> None:
    assert vocabulary.size == -(-(NUM_MARKS + 2 + len(SUBWORDS)) // 8) * 8
    without = Subwords(write(tmp_path / "vocab.translate.subwords", WORDS, quote=""))
    assert without.encode(["the dog"])[0].tolist() == vocabulary.encode(["the dog"])[0].tolist()


def test_what_cannot_be_cut_is_unknown(tmp_path: Path) -> None:
    few = Subwords(write(tmp_path / "vocab.ende.8", ["the_", "a"]))
    assert few.encode(["the a"])[0].tolist() == [6, 7, UNKNOWN]  # no subword ends the token "a"


def text(folder: Path) -> Path:
    for name in ("train", "newstest2014"):
        (folder / f"{name}.en").write_text("the dog\nthe dogs\n")
        (folder / f"{name}.de").write_text("hund, hund\nhund\n")
    return folder


def test_wmt_s_plain_text_is_read_with_it(tmp_path: Path) -> None:
    write(text(tmp_path) / "vocab.ende.32768", SUBWORDS)
    data = wmt(str(tmp_path))
    first = data.train.source[: data.train.source_start[1]].tolist()
    assert data.vocabulary.decode(first) == "the dog"
    assert data.evaluation
    assert data.evaluation.references == ["hund, hund", "hund"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("'<pad>'\n\n'the_'\n", r"vocab\.ende\.32768, line 2: is empty, so it names no subword. Next: remove the line"),
        ("the\nd@@\n", r"vocab\.ende\.32768: has no subword that ends in _, as tensor2tensor's do"),
        ("'xyz_'\n", r"train\.en, line 1: is the first line with tokens that are not in .*32768, which are"),
    ],
)
def test_one_that_does_not_fit_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (text(tmp_path) / "vocab.ende.32768").write_text(content)
    with pytest.raises(ConfigError, match=message):
        wmt(str(tmp_path))


def test_of_two_vocabularies_none_is_taken(tmp_path: Path) -> None:
    for name in ("vocab.ende.32768", "a.subwords"):
        write(text(tmp_path) / name, SUBWORDS)
    with pytest.raises(ConfigError, match=r"must have one vocabulary, but has a\.subwords, vocab\.ende\.32768\. Next"):
        wmt(str(tmp_path))
