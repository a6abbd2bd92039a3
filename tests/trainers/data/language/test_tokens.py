"""llm.c's files of tokens: read as they lie, and refused by name where they are not whole or another's."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from conf.schema import ConfigError
from tests.trainers.data.language.test_loader import steps
from tests.trainers.data.language.unlisted import unlisted
from tests.trainers.data.tokens import gpt2_files
from tests.trainers.processes import ALONE
from trainers.data.language import LanguageData, tokens
from trainers.data.language.tokens import Windows, bytes_of_ids, mean_bytes
from trainers.data.tokens.shards import GPT2, LLAMA3, Format, TokenFile, write_tokens

LENGTH = 8


def write(path: Path, ids: list[int] | np.ndarray, form: Format = GPT2) -> Path:
    write_tokens(path, np.asarray(ids), form)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two files to train on, of 4 and 3 sequences and some tokens, and one to evaluate on, of 2."""
    write(tmp_path / "fineweb_train_000002.bin", np.arange(1000, 1000 + 3 * LENGTH + 1))
    write(tmp_path / "fineweb_train_000001.bin", np.arange(4 * LENGTH + 3))
    write(tmp_path / "fineweb_val_000000.bin", np.arange(500, 500 + 2 * LENGTH + 5))
    return tmp_path


def read(folder: Path, **options: int) -> LanguageData:
    return tokens(str(folder), **{"sequence_length": LENGTH} | options)


def test_sequences_come_as_they_lie_and_none_reaches_into_another_file(folder: Path) -> None:
    data = read(folder)
    assert (data.vocabulary, data.train_tokens, data.validation_tokens) == (50_257, 7 * LENGTH, 2 * LENGTH)
    assert data.bytes_per_token is None
    assert data.entropy is None
    batches = [batch for (batch,) in steps(data, LENGTH, 1)]
    starts = [*range(0, 4 * LENGTH, LENGTH), *range(1000, 1000 + 3 * LENGTH, LENGTH)]
    assert [batch["inputs"][0].tolist() for batch in batches] == [list(range(n, n + LENGTH)) for n in starts]
    assert [batch["targets"][0].tolist() for batch in batches] == [list(range(n + 1, n + LENGTH + 1)) for n in starts]
    loader = data.eval_loader(2 * LENGTH, ALONE)
    assert loader is not None
    assert [batch["inputs"].flatten().tolist() for batch in loader] == [list(range(500, 500 + 2 * LENGTH))]


def test_the_last_token_of_a_file_is_a_target_alone(tmp_path: Path) -> None:
    for name, number in (("train.bin", 3 * LENGTH), ("val.bin", 2 * LENGTH + 1)):
        write(tmp_path / name, np.arange(number))
    data = read(tmp_path)
    assert (data.train_tokens, data.validation_tokens) == (2 * LENGTH, 2 * LENGTH)


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_run_goes_on_at_the_token_across_files(folder: Path, world_size: int) -> None:
    data, size = read(folder), 2 * LENGTH // world_size
    whole, resumed = (steps(data, size, world_size, behind=number) for number in (0, 1))
    assert len(whole) == 3
    assert [[batch["inputs"].tolist() for batch in group] for group in resumed] == [
        [batch["inputs"].tolist() for batch in group] for group in whole[1:]
    ]


def test_llama_3s_tokens_have_32_bits(folder: Path) -> None:
    for name in ("train_1", "val_1"):
        write(folder / f"{name}.bin", np.arange(100_000, 100_000 + LENGTH + 1), LLAMA3)
    for file in folder.glob("fineweb*"):
        file.unlink()
    data = read(folder)
    assert data.vocabulary == 128_256
    ((batch,),) = steps(data, LENGTH, 1)
    assert batch["inputs"].tolist() == [list(range(100_000, 100_000 + LENGTH))]


def test_the_first_tokens_are_evaluated_as_many_as_are_asked_for(folder: Path) -> None:
    assert read(folder, validation_tokens=LENGTH + 3).validation_tokens == LENGTH
    with pytest.raises(ConfigError, match=r"dataset\.validation_tokens=24: .* has only 16 to evaluate on"):
        read(folder, validation_tokens=3 * LENGTH)
    with pytest.raises(ConfigError, match=r"dataset\.validation_tokens=7: is less than a sequence"):
        read(folder, validation_tokens=LENGTH - 1)


def cut(path: Path, num_bytes: int) -> None:
    path.write_bytes(path.read_bytes()[:num_bytes])


def with_header(path: Path, place: int, value: int) -> None:
    content = np.fromfile(path, "<i4", 256)
    content[place] = value
    path.write_bytes(content.tobytes() + path.read_bytes()[1024:])


DAMAGES = {
    "empty": (lambda path: cut(path, 0), r"has 0 bytes, less than a header of 1024"),
    "half a header": (lambda path: cut(path, 512), r"has 512 bytes, less than a header"),
    "torn": (lambda path: cut(path, 1040), r"is truncated or damaged: its header says 25.*1,074 bytes,.* 1,040"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b"xx"), r"is truncated or damaged: .* has 1,076"),
    "foreign": (lambda path: path.write_bytes(b"PK" + path.read_bytes()[2:]), r"is not in llm.*begins"),
    "another version": (lambda path: with_header(path, 1, 2), r".* 20240520 and version 2, expected"),
    "text": (lambda path: path.write_text("once upon a time " * 100), r"is not in llm\.c's format"),
    "a negative number": (lambda path: with_header(path, 2, -1), r"is truncated or damaged: its header says -1 tokens"),
    "too short": (lambda path: write(path, [1] * LENGTH), r"has 8 tokens, but dataset\.sequence_length=8 needs 9"),
    "no token": (lambda path: write(path, []), r"has 0 tokens, but dataset\.sequence_length"),
    "another tokenizer": (lambda path: write(path, [1] * 9, LLAMA3), r"has Llama 3's tokens, but .*_000001.bin has"),
    "a folder": (lambda path: (path.unlink(), path.mkdir()), r"cannot be read as tokens"),
    "a pipe": (lambda path: (path.unlink(), os.mkfifo(path)), r"cannot be read as tokens .*is not a regular file"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_file_that_cannot_be_used_is_refused_by_name(folder: Path, damage: str) -> None:
    do, words = DAMAGES[damage]
    do(folder / "fineweb_train_000002.bin")
    with pytest.raises(ConfigError, match=rf"fineweb_train_000002\.bin: {words}"):
        read(folder)


def test_links_to_files_are_followed(folder: Path, tmp_path: Path) -> None:
    kept = (tmp_path / "kept").resolve()
    (folder / "fineweb_val_000000.bin").rename(kept)
    (folder / "fineweb_val_000000.bin").symlink_to(kept)
    assert read(folder).validation_tokens == 2 * LENGTH


def test_a_sequence_longer_than_a_file_is_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"train_000001\.bin: has 35 tokens.*sequence_length=1024 needs 1,025"):
        tokens(str(folder))


@pytest.mark.parametrize("form", [GPT2, LLAMA3])
def test_an_id_above_the_vocabulary_is_refused_with_its_file_and_place(tmp_path: Path, form: Format) -> None:
    ids = np.arange(3 * LENGTH + 1)
    ids[2 * LENGTH + 3] = form.vocabulary if form is GPT2 else 2**32 - 1
    write(tmp_path / "train.bin", ids, form)
    write(tmp_path / "val.bin", ids[: LENGTH + 1], form)
    loader = iter(read(tmp_path).train_loader(LENGTH, 1, ALONE))
    next(loader), next(loader)
    with pytest.raises(ConfigError, match=rf"train\.bin: its token 19, .* {ids[19]}, .* below {form.vocabulary}"):
        next(loader)
    if form is GPT2:
        wider = read(tmp_path, vocabulary=2**16)
        assert (wider.vocabulary, len(list(wider.train_loader(LENGTH, 1, ALONE)))) == (2**16, 3)


@pytest.mark.parametrize(("left", "words"), [("train", r"has no \*val\*\.bin"), ("val", r"has no \*train\*\.bin")])
def test_a_folder_without_one_of_the_parts_is_refused(folder: Path, left: str, words: str) -> None:
    for file in folder.iterdir():
        if left not in file.name:
            file.unlink()
    with pytest.raises(ConfigError, match=rf"dataset\.path=.*{words}"):
        read(folder)


def test_a_folder_that_is_not_there_and_a_name_of_both_parts_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="is not a folder"):
        read(folder / "nowhere")
    with unlisted(folder), pytest.raises(ConfigError, match=r"dataset\.path=.* cannot be listed \(Permission denied\)"):
        read(folder)
    write(folder / "train_val.bin", [1] * 9)
    with pytest.raises(ConfigError, match=r"train_val\.bin: its name matches both"):
        read(folder)


def test_gpt_2s_files_say_how_many_bytes_the_evaluated_tokens_stand_for(folder: Path, tmp_path: Path) -> None:
    files = gpt2_files.write(tmp_path / "gpt2")
    ids = gpt2_files.ids()
    small = Format(GPT2.magic, GPT2.version, GPT2.type, len(ids), "small")
    held = [ids[piece] for piece in ("hel", "lo", "Ġw", "<|endoftext|>", "Ã©", "a", "b", "c", "hel", "lo")]
    write(folder / "fineweb_val_000000.bin", held)
    windows = Windows(
        [TokenFile(folder / "fineweb_val_000000.bin", small, len(held))], sequence_length=LENGTH, vocabulary=len(ids)
    )
    of_ids = bytes_of_ids(windows.files[0], str(files))
    assert mean_bytes(windows, of_ids) == (2 + 2 + 0 + 2 + 1 + 1 + 1 + 3) / 8  # of the targets of one sequence
    with pytest.raises(ConfigError, match=r"dataset\.tokenizer=.*has 266 tokens, but the files have GPT-2's 50,257"):
        tokens(str(folder), LENGTH, tokenizer=str(files))
    with pytest.raises(ConfigError, match=r"dataset\.tokenizer=bytes: has 257 tokens"):
        tokens(str(folder), LENGTH, tokenizer="bytes")
    write(folder / "fineweb_val_000000.bin", [*held[:-2], 999, 1])
    with pytest.raises(ConfigError, match=r"val_000000\.bin: has the id 999, but dataset\.tokenizer has ids below 266"):
        mean_bytes(windows, of_ids)


def test_its_version_is_of_what_the_files_hold(folder: Path) -> None:
    (folder / "fineweb_train_000002.bin").rename(folder / os.fsdecode(b"train\xe9\n.bin"))
    before = read(folder).version()
    assert read(folder).version() == before
    write(folder / "fineweb_val_000000.bin", np.arange(501, 501 + 2 * LENGTH + 5))
    assert read(folder).version() != before
