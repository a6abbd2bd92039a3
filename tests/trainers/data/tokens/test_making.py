"""Text becomes files of tokens once; how many processes cut it, and where, changes nothing."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from conf.schema import ConfigError
from tests.trainers.data.tokens import gpt2_files
from tracking.machine.environment import cache
from trainers.data.tokens import (
    GPT2,
    LLAMA3,
    Made,
    Source,
    Stretch,
    held_out,
    made_tokens,
    making,
    stretches,
    token_files,
)
from trainers.data.tokens.byte_pairs import BytePairs
from trainers.data.tokens.encoding import format_of
from trainers.data.tokens.stretches import shares

TEXT = "".join(f"hello, line {number}\r\n\n   w\t{number % 7}é\n" for number in range(300))


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "some.txt"
    path.write_bytes(TEXT.encode())
    return path


def source(path: Path, most: int = 1 << 20) -> Source:
    size, border = path.stat().st_size, held_out(path)
    parts = [list(stretches(path, *ends, most)) for ends in ((0, border), (border, size))]
    return Source(path.name, hashlib.sha256(path.read_bytes()).hexdigest(), *parts)


def made(path: Path, tokenizer: str | None = "bytes", vocabulary: int | None = None) -> Made:
    return made_tokens("kind", [str(path.stat().st_mtime_ns)], tokenizer, vocabulary, lambda: [source(path)])


def ids(path: Path) -> list[int]:
    [read] = token_files([path], 1)
    return read.tokens().tolist()


def test_both_parts_are_all_of_the_text_each_behind_a_separator(file: Path) -> None:
    files = made(file)
    train, validation = ids(files.train), ids(files.validation)
    assert (train[0], validation[0]) == (256, 256)
    assert bytes(train[1:] + validation[1:]) == TEXT.encode()
    assert 100 < len(validation) <= len(TEXT.encode()) // 50
    assert (files.num_tokens, files.vocabulary) == ((len(train), len(validation)), 257)
    assert files.num_bytes.tolist() == [1.0] * 256 + [0.0]
    assert files.record == f"{hashlib.sha256(TEXT.encode()).hexdigest()}  both  some.txt\n"


@pytest.mark.parametrize("most", [1, 7, 64, 1000])
def test_stretches_have_the_tokens_of_the_whole(file: Path, tmp_path: Path, most: int) -> None:
    pairs = BytePairs(gpt2_files.write(tmp_path / "files"))
    cut = list(stretches(file, 0, file.stat().st_size, most))
    assert [stretch.begins for stretch in cut] == [True] + [False] * (len(cut) - 1)
    assert len(cut) > 1
    assert b"".join(stretch.read() for stretch in cut) == TEXT.encode()
    joined = np.concatenate([pairs.encode(stretch.text()) for stretch in cut])
    assert joined.tolist() == pairs.encode(TEXT).tolist()


@pytest.mark.parametrize("most", [1, 50])
def test_lines_may_end_with_any_letter_but_no_space_of_unicode(tmp_path: Path, most: int) -> None:
    pairs = BytePairs(gpt2_files.write(tmp_path / "files"))
    file = tmp_path / "text.txt"
    file.write_bytes("语言模型。\r\n\n中文の\u3000\nq\u2028\nпривет\n\u3000\nº\xa0\n".encode() * 30)
    cut = list(stretches(file, 0, file.stat().st_size, most))
    ends = [stretch.text()[-1] for stretch in cut[:-1]]
    assert {"。"} <= set(ends) <= {"。", "т"}
    joined = np.concatenate([pairs.encode(stretch.text()) for stretch in cut])
    assert joined.tolist() == pairs.encode(file.read_bytes().decode()).tolist()


def test_a_text_of_one_line_is_one_stretch(tmp_path: Path) -> None:
    path = tmp_path / "line.txt"
    path.write_text("word " * 50_000)  # more than is looked ahead
    assert list(stretches(path, 0, 250_000, 10)) == [Stretch(str(path), 0, 250_000, begins=True)]
    assert held_out(path) == 250_000


def test_shares_are_of_about_as_many_bytes_in_order() -> None:
    parts = [Stretch("", place, place + size, begins=True) for place, size in enumerate([5, 1, 1, 1, 5, 5, 1, 1])]
    for num in (1, 2, 3, 20):
        dealt = shares(parts, num)
        assert len(dealt) == num
        assert [stretch for share in dealt for stretch in share] == parts
    assert [sum(part.end - part.start for part in share) for share in shares(parts, 2)] == [13, 7]


@pytest.mark.slow  # it starts processes
def test_how_many_processes_cut_it_changes_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = made(file)
    before = [path.read_bytes() for path in (alone.train, alone.validation)]
    monkeypatch.setattr(making, "num_shares", lambda amount, worth: 3)
    together = made_tokens("kind", ["again"], "bytes", None, lambda: [source(file, most=500)])
    assert together.train != alone.train
    assert [path.read_bytes() for path in (together.train, together.validation)] == before
    assert sorted(path.name for path in together.train.parent.iterdir()) == ["manifest.json", "train.bin", "val.bin"]


def test_it_is_made_once_and_anew_where_it_is_not_whole(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = made(file)

    def not_asked() -> list[Source]:
        raise AssertionError

    identity = [str(file.stat().st_mtime_ns)]
    assert made_tokens("kind", identity, "bytes", None, not_asked) == first
    content = first.train.read_bytes()
    first.train.write_bytes(content[:-1])
    assert made(file) == first
    assert first.train.read_bytes() == content
    assert "train.bin has another size; it is made anew" in capsys.readouterr().err
    assert made_tokens("kind", ["other"], "bytes", None, lambda: [source(file)]).train != first.train


def test_the_manifest_has_digests(file: Path) -> None:
    files = made(file)
    manifest = json.loads((files.train.parent / "manifest.json").read_text())
    for path in (files.train, files.validation):
        sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
        assert manifest["files"][path.name] == {"bytes": path.stat().st_size, "sha256": sha256}


def test_pieces_are_learnt_of_the_text_and_kept(file: Path) -> None:
    files = made(file, tokenizer=None, vocabulary=320)
    assert 257 < files.vocabulary <= 320
    held = ids(files.validation)
    assert files.num_bytes[held].sum() == len(TEXT.encode()) - held_out(file)
    assert (files.train.parent / "pieces.model").exists()
    again = made(file, str(files.train.parent / "pieces.model"))
    assert again.train != files.train
    assert ids(again.train) == ids(files.train)


def test_text_that_is_not_utf_8_is_refused_with_its_place_and_nothing_is_kept(file: Path) -> None:
    file.write_bytes(TEXT.encode()[:100] + b"\xff" + TEXT.encode()[100:])
    with pytest.raises(ConfigError, match=r"some\.txt: byte 100 is not UTF-8"):
        made(file)
    assert not [path for path in cache().iterdir() if path.is_dir()]


def test_a_mark_of_the_byte_order_is_no_text(file: Path) -> None:
    before = ids(made(file).train)
    file.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    assert ids(made_tokens("kind", ["marked"], "bytes", None, lambda: [source(file)]).train)[:100] == before[:100]


def test_pieces_that_lose_text_count_as_its_bytes(file: Path, tmp_path: Path) -> None:
    """A model that puts a space before each line, and knows no accents."""
    import sentencepiece

    lossy = tmp_path / "lossy.model"
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["hello, line 0123456789", "w 1"] * 9), model_prefix=str(lossy.with_suffix("")),
        model_type="bpe", vocab_size=40, hard_vocab_limit=False, minloglevel=2,
    )  # fmt: skip
    file.write_bytes(b"\xef\xbb\xbf" + TEXT.encode())
    files = made(file, str(lossy))
    held = ids(files.validation)
    assert files.num_bytes[held].sum() == pytest.approx(len(file.read_bytes()) - held_out(file))


def test_a_place_that_cannot_be_written_is_named(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMETRIAL_CACHE", str(file / "cache"))  # below a file
    with pytest.raises(
        ConfigError, match=r"^cache: .*. Next: set the environment variable TIMETRIAL_CACHE to a folder "
    ):
        made(file)


def test_a_number_of_pieces_with_a_tokenizer_is_refused(file: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset\.vocabulary=300: has no effect with dataset\.tokenizer=bytes"):
        made(file, "bytes", 300)


def test_other_files_of_a_tokenizer_make_other_tokens(file: Path, tmp_path: Path) -> None:
    folder = gpt2_files.write(tmp_path / "files")
    first = made(file, str(folder))
    (folder / "vocab.bpe").write_text("#version: 0.2\nh e\n")
    assert made(file, str(folder)).num_tokens > first.num_tokens


def test_ids_have_as_many_bits_as_they_need() -> None:
    assert format_of(2**16) == GPT2
    assert format_of(2**16 + 1) == LLAMA3
