"""WMT's files: the pairs in good ones, and the messages for bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.schema import ConfigError
from tests.trainers.data.text.files import write
from trainers.data.text import UNKNOWN, corpus, wmt
from trainers.data.text.corpus import CHUNK, read_lines

pytestmark = pytest.mark.usefixtures("cache")
EN, DE, HELD_EN, HELD_DE = (
    f"{part}_{side}" for part in ("train_tok_clean_bpe_32000", "newstest2014_tok_bpe_32000") for side in ("en", "de")
)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))


def test_byte_pair_pieces_become_ids_and_text_again(tmp_path: Path) -> None:
    data = wmt(str(write(tmp_path / "wmt")))
    assert data.num_tokens == 16  # 4 marks and 10 pieces, and what makes it a multiple of 8
    assert data.train.source.tolist() == [4, 5, 6, 12, 13, 4, 5, 6]
    assert data.train.source_start.tolist() == [0, 5, 8]
    assert data.train.target_start.tolist() == [0, 5, 7]
    assert data.evaluation
    assert data.evaluation.references == ["der hund"]
    assert data.vocabulary.decode([8, 7, 9, 10, 11, 3, 0, 15]) == "der hund bellt"
    assert data.vocabulary.decode([12]) == "bar"  # what a model may say, if it never ends the word


def test_references_are_the_text_before_it_was_cut_where_that_is_there(tmp_path: Path) -> None:
    folder = write(tmp_path / "wmt")
    (folder / "newstest2014.de").write_text("Der Hund!\n")
    data = wmt(str(folder))
    assert data.evaluation
    assert data.evaluation.references == ["Der Hund!"]
    (folder / "newstest2014.de").write_text("Der Hund!\nUnd?\n")
    with pytest.raises(ConfigError, match=r"newstest2014.de, line 2: the file has 2 lines, but .* has 1"):
        wmt(str(folder))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            DE,
            "der hund\n",
            r"train.tok.clean.bpe.32000.en, line 2: has no translation: .* 2 lines, but .*de has 1. Next",
        ),
        (DE, "der hund\n\n", r"train.tok.clean.bpe.32000.de, line 2: is empty"),
        (EN, "the\n \t \n", r"train.tok.clean.bpe.32000.en, line 2: is empty"),
        (EN, b"the\nthe \xe4\n", r"train.tok.clean.bpe.32000.en, line 2: is not UTF-8 at byte 5 of the line"),
        (EN, "the\nthe cat\n", r"bpe.32000.en, line 2: its token 2, 'cat', is not in .*vocab.bpe.32000"),
        (HELD_EN, "", r"newstest2014.tok.bpe.32000.en: is empty"),
        (HELD_DE, "der " * 10_000 + "\n", r"newstest2014.tok.bpe.32000.de, line 1: has 10,000 tokens"),
        (HELD_DE, "der\nder\n", r"newstest2014.tok.bpe.32000.de, line 2: has no translation"),
        ("vocab_bpe_32000", "the\nder\nthe\n", r"vocab.bpe.32000, line 3: the is also in line 1"),
        (
            "vocab_bpe_32000",
            "the\n\nder\n",
            r"vocab.bpe.32000, line 2: is empty, so it names no piece. Next: remove the",
        ),
        (EN, b"\xef\xbb\xbf\nthe\n", r"train.tok.clean.bpe.32000.en, line 1: is empty"),
    ],
)
def test_what_cannot_be_used_is_refused_with_file_and_line(
    tmp_path: Path, name: str, content: str | bytes, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        wmt(str(write(tmp_path / "wmt", **{name: content})))


@pytest.mark.parametrize(
    "missing", ["vocab.bpe.32000", "train.tok.clean.bpe.32000.de", "newstest2014.tok.bpe.32000.en"]
)
def test_a_file_that_is_missing_is_named(tmp_path: Path, missing: str) -> None:
    folder = write(tmp_path / "wmt")
    (folder / missing).unlink()
    with pytest.raises(ConfigError, match=f"{missing}: is missing"):
        wmt(str(folder))


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset.path=.* is not a folder"):
        wmt(str(tmp_path / "nothing"))
    with pytest.raises(ConfigError, match=r"dataset.path=.*: .* has neither"):
        wmt(str(tmp_path))


def test_a_training_line_of_ten_thousand_tokens_is_left_out_and_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = wmt(str(write(tmp_path / "wmt", **{EN: "the " * 10_000 + "\nthe\n"})))
    assert data.pairs.tolist() == [1]
    assert "1 of 2 training pairs have more than 1024 tokens" in caplog.text
    with pytest.raises(ConfigError, match="no training pair has at most 1024 tokens"):
        wmt(str(write(tmp_path / "wmt", **{EN: "the " * 10_000 + "\n" + "the " * 10_000})))


def test_what_is_evaluated_may_have_pieces_that_the_vocabulary_lacks(tmp_path: Path) -> None:
    data = wmt(str(write(tmp_path / "wmt", **{HELD_EN: "the cat\n"})))
    assert data.evaluation
    assert data.evaluation.corpus.source.tolist() == [4, UNKNOWN]


def test_a_reference_keeps_pieces_that_the_vocabulary_lacks(tmp_path: Path) -> None:
    data = wmt(str(write(tmp_path / "wmt", **{HELD_DE: "der hund sch@@ läft\n"})))
    assert data.evaluation
    assert data.evaluation.references == ["der hund schläft"]


def test_text_of_windows_is_read_as_any_other(tmp_path: Path) -> None:
    plain = wmt(str(write(tmp_path / "plain")))
    folder = write(tmp_path / "wmt")
    (folder / "newstest2014.de").write_bytes(b"der hund\n")
    for file in folder.iterdir():
        file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    data = wmt(str(folder))
    assert data.version() == plain.version()
    assert data.evaluation
    assert data.evaluation.references == ["der hund"]


def test_files_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write(tmp_path / "wmt")
    first = wmt(str(folder))
    with monkeypatch.context() as patch:
        patch.setattr(corpus, "_read_side", None)
        assert wmt(str(folder)).version() == first.version()
    write(folder, **{DE: "der\nder\n"})
    assert wmt(str(folder)).train.target.tolist() == [8, 8]
    assert wmt(str(folder)).version() != first.version()


def test_a_cached_index_with_an_id_out_of_range_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "wmt")
    data = wmt(str(folder))
    data.train.target[3] = 16
    with pytest.raises(ConfigError, match=r"target ids are from 7 to 16, but .* has 16"):
        data.train.check("wmt", data.vocabulary)


def test_lines_are_counted_across_chunks_and_end_in_line_feeds_alone(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("a\x85b\u2028c\n".encode() * CHUNK + b"last")
    assert [len(lines) for lines in read_lines(path)] == [CHUNK, 1]
    path.write_bytes(b"a\n" * CHUNK + b"\n")
    with pytest.raises(ConfigError, match=f"text, line {CHUNK + 1}: is empty"):
        list(read_lines(path))
