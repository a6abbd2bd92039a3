"""Tokenizers of bytes, of learnt pieces and of given models cut text, and other files are refused."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from conf.schema import ConfigError
from tests.trainers.data.tokens import gpt2_files
from trainers.data.tokens.tokenizers import Pieces, learn, tokenizer_of

LINES = [f"def name_{number}(first, second):\n    return first + {number} * second\n" for number in range(200)]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pieces") / "pieces.model"
    learn((line for text in LINES for line in text.split("\n")), 400, path)
    return path


def test_bytes_are_those_of_utf_8() -> None:
    by_bytes = tokenizer_of("bytes")
    assert by_bytes.encode("aé\n").tolist() == [97, 0xC3, 0xA9, 10]
    assert (by_bytes.vocabulary, by_bytes.separator) == (257, 256)
    assert by_bytes.num_bytes().tolist() == [1] * 256 + [0]


def test_learnt_pieces_lose_nothing_and_join_spaces(model: Path) -> None:
    pieces = Pieces(model)
    text = "def name_7(first):\n\n        return  first\t# naïve 日本語\r\n  "
    ids = pieces.encode(text).tolist()
    assert pieces._model.decode(ids) == text
    assert len(ids) < len(text)
    assert pieces.num_bytes()[ids].sum() == len(text.encode())
    assert pieces.num_bytes()[pieces.separator] == 0
    assert max(ids) < pieces.vocabulary <= 400
    assert pieces.separator not in ids
    assert not model.with_suffix(".vocab").exists()


def test_the_same_lines_give_the_same_pieces(model: Path, tmp_path: Path) -> None:
    again = tmp_path / "again.model"
    learn((line for text in LINES for line in text.split("\n")), 400, again)
    text = "".join(LINES[:5])
    assert Pieces(again).encode(text).tolist() == Pieces(model).encode(text).tolist()


def test_a_file_or_a_folder_says_what_it_is(model: Path, tmp_path: Path) -> None:
    folder = gpt2_files.write(tmp_path)
    assert isinstance(tokenizer_of(str(model)), Pieces)
    assert tokenizer_of(str(folder)).separator == len(gpt2_files.ids()) - 1
    assert tokenizer_of(str(folder / "vocab.bpe")).files == [folder / "encoder.json", folder / "vocab.bpe"]


def test_what_is_no_tokenizer_is_refused(tmp_path: Path) -> None:
    (tmp_path / "other.model").write_bytes(b"nothing of the kind")
    (tmp_path / "empty.model").touch()
    os.mkfifo(tmp_path / "pipe.model")
    unknown_home = Path("~no.such.user/pieces.model")
    for path in (*(tmp_path / f"{name}.model" for name in ("other", "nowhere", "empty", "pipe")), unknown_home):
        with pytest.raises(ConfigError, match=rf"dataset\.tokenizer={path}: is not a sentencepiece model"):
            tokenizer_of(str(path))
    with pytest.raises(ConfigError, match=r"has no encoder\.json and vocab\.bpe"):
        tokenizer_of(str(tmp_path))


def test_too_few_pieces_are_refused(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"dataset\.vocabulary=100: sentencepiece cannot learn pieces .*tokenizer=bytes"
    ):
        learn(LINES, 100, tmp_path / "pieces.model")
