"""Text files as a dataset: each is a text of its own, and some are held out."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest

from conf.schema import ConfigError
from tests.trainers.data.language.test_loader import steps
from tests.trainers.data.language.unlisted import unlisted
from tests.trainers.data.tokens import gpt2_files
from tests.trainers.processes import ALONE
from trainers.data.language import LanguageData, text
from trainers.data.tokens.tokenizers import Pieces

LINES = [f"line {number} of the text\n" for number in range(200)]


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    root = tmp_path / "texts"
    (root / "sub").mkdir(parents=True)
    (root / "b.txt").write_text("".join(LINES[:100]))
    (root / "sub" / "a.txt").write_text("".join(LINES[100:]))
    (root / "empty.txt").write_text("")
    (root / "other.md").write_text("none of it")
    return root


def read(path: Path, sequence_length: int = 16, tokenizer: str = "bytes") -> LanguageData:
    return text(str(path), tokenizer, sequence_length=sequence_length)


def evaluated(data: LanguageData) -> bytes:
    loader = data.eval_loader(data.sequence_length, ALONE)
    assert loader is not None
    return b"".join(bytes(batch["targets"].flatten().numpy().astype(np.uint8)) for batch in loader)


def test_files_named_val_are_evaluated_on(folder: Path) -> None:
    (folder / "val.txt").write_text("held out " * 10)
    data = read(folder)
    assert evaluated(data) == b"held out " * 8 + b"held out"[:8]
    assert data.bytes_per_token == 1  # The separator is no target.
    assert data.vocabulary == 257
    assert [line.split()[1:] for line in data.record.splitlines()] == [
        ["train", "b.txt"], ["train", "sub/a.txt"], ["validation", "val.txt"],
    ]  # fmt: skip


def test_only_the_whole_word_is_looked_for(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    for name in ("carnival.txt", "valley.txt", "interval_2.txt"):
        (folder / name).write_text("trained on " * 10)
    assert "validation" not in {line.split()[1] for line in read(folder).record.splitlines()}
    words = "dataset=text: evaluated on the last part of b.txt, carnival.txt, interval_2.txt and 2 more"
    assert caplog.messages == [words]
    names = ("wiki.val.txt", "val_1.txt", "2val3.txt", "a validation.txt", "the-valid-part.txt")
    for name in names:
        (folder / name).write_text("held out " * 10)
    parts = dict(line.split("  ")[:0:-1] for line in read(folder).record.splitlines())
    assert {name for name, part in parts.items() if part == "validation"} == {*names}
    assert caplog.messages[1] == "dataset=text: evaluated on 2val3.txt, a validation.txt, the-valid-part.txt and 2 more"


def test_without_such_files_the_last_lines_of_each_are(folder: Path) -> None:
    data = read(folder)
    assert b"line 99 of the text" in evaluated(data)
    assert b"line 199 " in evaluated(data)
    assert [line.split()[1] for line in data.record.splitlines()] == ["both", "both"]


def test_an_epoch_has_all_sequences_in_an_order_of_its_own(folder: Path) -> None:
    data = read(folder)
    orders = []
    for epoch in (0, 1, 0):
        batches = steps(data, 16, 1, epoch=epoch)
        orders.append([tuple(batch["inputs"].flatten().tolist()) for (batch,) in batches])
        assert len(orders[-1]) == data.train_tokens // 16
    assert orders[0] == orders[2] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])


def test_a_run_goes_on_at_the_token_where_it_stopped(folder: Path) -> None:
    data = read(folder)
    whole, resumed = (steps(data, 32, 2, epoch=1, behind=number) for number in (0, 5))
    assert [[batch["inputs"].tolist() for batch in group] for group in resumed] == [
        [batch["inputs"].tolist() for batch in group] for group in whole[5:]
    ]


def test_bytes_a_token_are_those_of_the_tokens_that_are_evaluated(folder: Path, tmp_path: Path) -> None:
    """English is evaluated. The text of another script behind it is not."""
    english = "".join(f"line {number % 9} of the text\n" for number in range(400))
    (folder / "val.txt").write_text(english + "\N{HIRAGANA LETTER A}\N{HIRAGANA LETTER KA}" * 4000)
    first = text(str(folder), vocabulary=320, sequence_length=16, validation_tokens=320)
    whole = text(str(folder), vocabulary=320, sequence_length=16)
    assert first.bytes_per_token is not None
    loader = first.eval_loader(320, ALONE)
    assert loader is not None
    targets = [number for batch in loader for number in batch["targets"].flatten().tolist()]
    [model] = (tmp_path / "cache").rglob("pieces.model")
    said = Pieces(model)._model.decode(targets)
    assert english.startswith(said.strip(" "))
    assert first.bytes_per_token == pytest.approx(len(said.encode()) / 320, abs=1.5 / 320)
    assert whole.bytes_per_token is not None
    assert whole.bytes_per_token < 0.6 * first.bytes_per_token


def test_one_file_is_enough_and_gpt_2s_files_cut_it(folder: Path, tmp_path: Path) -> None:
    files = gpt2_files.write(tmp_path / "gpt2")
    data = read(folder / "b.txt", sequence_length=8, tokenizer=str(files))
    assert data.vocabulary == len(gpt2_files.ids())
    assert data.record.endswith("  both  b.txt\n")
    assert data.facts() == {"data.bytes_per_token": f"{data.bytes_per_token:.6f}"}


def test_other_text_is_another_version(folder: Path) -> None:
    before = read(folder).version()
    assert read(folder).version() == before
    (folder / "b.txt").write_text("".join(LINES[1:101]))
    assert read(folder).version() != before


def test_what_cannot_be_used_is_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"dataset\.path=.*nowhere: .*nowhere does not exist"):
        read(tmp_path / "nowhere")
    (folder / "b.txt").unlink()
    (folder / "sub" / "a.txt").unlink()
    with pytest.raises(ConfigError, match=r"has no \.txt file with text"):
        read(folder)
    (folder / "val.txt").write_text("".join(LINES))
    with pytest.raises(ConfigError, match="has no text left to train on"):
        read(folder)
    (folder / "val.txt").rename(folder / "one.txt")
    with pytest.raises(ConfigError, match=r"dataset=text: has \d+ tokens to evaluate on, but dataset.sequence_length"):
        read(folder, sequence_length=1024)
    (folder / "one.txt").write_bytes("".join(LINES).encode("latin-1", "replace") + b"\xe4\n")
    with pytest.raises(ConfigError, match=r"one\.txt: byte [\d,]+ is not UTF-8. Next: iconv -f ENCODING -t UTF-8 .*"):
        read(folder)
    (folder / "one.txt").write_text("a single line")
    with pytest.raises(ConfigError, match="has no text left to evaluate on"):
        read(folder)


@pytest.mark.slow
@pytest.mark.parametrize(("encoding", "name"), [("utf-16", "UTF-16"), ("utf-32", "UTF-32"), ("utf-16-le", "UTF-16LE"),
                                              ("utf-16-be", "UTF-16BE")])  # fmt: skip
def test_another_encoding_is_named_with_the_command_that_converts_it(folder: Path, encoding: str, name: str) -> None:
    """UTF-16 without a byte order mark is valid UTF-8, whose letters are zeros."""
    file, converted = folder / "b.txt", folder / "b.new"
    text = file.read_text()
    file.write_bytes(text.encode(encoding))
    with pytest.raises(ConfigError, match=rf"b\.txt: is not UTF-8. It looks like {name}. Next: iconv") as refused:
        read(folder)
    command = str(refused.value).partition("Next: ")[2].replace("NEW_FILE", str(converted))
    subprocess.run(["bash", "-c", command], check=True)
    assert converted.read_text() == text


def test_some_zeros_are_text(folder: Path) -> None:
    (folder / "b.txt").write_text("\0" + (folder / "b.txt").read_text())
    read(folder)


def test_a_folder_that_cannot_be_listed_is_refused(folder: Path) -> None:
    with unlisted(folder), pytest.raises(ConfigError, match=r"texts cannot be listed \(Permission denied\)"):
        read(folder)


def test_a_pipe_is_not_waited_for(folder: Path, tmp_path: Path) -> None:
    before = read(folder).record
    os.mkfifo(folder / "val_pipe.txt")
    assert read(folder).record == before
    with pytest.raises(ConfigError, match=r"has no \.txt file with text"):
        read(folder / "val_pipe.txt")
    files = gpt2_files.write(tmp_path / "gpt2")
    (files / "encoder.json").unlink()
    os.mkfifo(files / "encoder.json")
    with pytest.raises(ConfigError, match=r"has no encoder\.json"):
        read(folder, tokenizer=str(files))


def test_names_that_are_not_utf_8_or_of_several_lines_are_in_the_record(
    folder: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    name = b"caf\xe9 \\ of\ntwo\xc2\x85.txt"
    (tmp_path / "texts" / "b.txt").rename(os.fsdecode(os.fsencode(folder) + b"/" + name))
    data = read(folder)
    data.write_record(tmp_path)
    [first, _] = (tmp_path / "data_files.txt").read_bytes().splitlines()
    assert first.endswith(b"  both  caf\xe9 \\\\ of\\ntwo\\x85.txt")
    assert b"caf\\udce9" in caplog.text.encode(), "a log may be of UTF-8"
    assert read(folder).version() == data.version()


def test_a_run_keeps_the_digests_of_its_files(folder: Path, tmp_path: Path) -> None:
    data = read(folder)
    data.write_record(tmp_path)
    assert (tmp_path / "data_files.txt").read_text() == data.record
