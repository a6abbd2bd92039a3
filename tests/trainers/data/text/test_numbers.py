"""Generated number phrases, and plain text with a model of sentencepiece, which they are."""

from __future__ import annotations

from pathlib import Path

import pytest

from conf.schema import ConfigError
from trainers.data.text import numbers
from trainers.data.text import numbers as make
from trainers.data.text import wmt as read_wmt
from trainers.data.text.numbers import part_of, sentences

LARGE = {"train": 30, "valid": 20, "test": 20}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("numbers")


@pytest.fixture(autouse=True)
def few(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Few large numbers, since saying each takes a millisecond."""
    module = __import__("trainers.data.text.numbers", fromlist=["LARGE"])
    monkeypatch.setattr(module, "LARGE", LARGE)
    monkeypatch.setattr(module, "HELD_OUT", 40)
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path))


def test_the_text_is_written_once_and_reads_back(folder: Path) -> None:
    data = make(300, str(folder))
    assert len(data.train) == 300
    assert data.evaluation
    assert data.test
    assert len(data.evaluation.corpus) == len(data.test.corpus) == 40
    held = data.evaluation
    ids = held.corpus.target[held.corpus.target_start[3] : held.corpus.target_start[4]]
    assert data.vocabulary.decode([*ids.tolist(), 3, 0]) == held.references[3]
    written = (folder / "numbers-v1-300" / "train.en").stat().st_mtime_ns
    assert make(300, str(folder)).version() == data.version()
    assert (folder / "numbers-v1-300" / "train.en").stat().st_mtime_ns == written


def test_parts_share_no_sentence_and_no_large_number_and_larger_sets_begin_alike() -> None:
    texts = {part: list(sentences(part, 40)) for part in ("train", "valid", "test")}
    english = {part: {source for source, _ in pairs} for part, pairs in texts.items()}
    assert (
        not english["train"] & english["valid"]
        | english["train"] & english["test"]
        | english["valid"] & english["test"]
    )
    assert all(part_of(source) == part for part, sources in english.items() for source in sources)
    assert len(english["valid"]) == 40
    assert list(sentences("train", 10)) == texts["train"][:10]


def test_phrases_are_translations() -> None:
    from trainers.data.text.numbers import _words

    assert _words("cardinal", 471) == ("four hundred and seventy-one", "vierhunderteinundsiebzig")
    assert _words("ordinal", 12) == ("the twelfth", "der zwölfte")
    assert _words("year", 1905) == ("nineteen oh-five", "neunzehnhundertfünf")


def test_what_was_changed_is_refused(tmp_path: Path) -> None:
    make(5, str(tmp_path))
    (tmp_path / "numbers-v1-5" / "valid.de").write_text("eins\n")
    with pytest.raises(ConfigError, match=r"is damaged: valid.de has changed. Next: delete the folder"):
        make(5, str(tmp_path))
    with pytest.raises(ConfigError, match=r"dataset.size=0: must be 1 or more"):
        numbers(0)
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"dataset.path=.*cannot be written"):
        make(5, str(tmp_path / "file"))


def test_plain_text_wants_one_vocabulary(folder: Path, tmp_path: Path) -> None:
    root = make(300, str(folder)).vocabulary.name
    plain = tmp_path / "plain"
    plain.mkdir()
    for name, text in (("train", "one hundred"), ("newstest2014", "hundert ☂")):
        for side in ("en", "de"):
            (plain / f"{name}.{side}").write_text(f"{text}\n")
    with pytest.raises(ConfigError, match=r"must have one vocabulary, but has none"):
        read_wmt(str(plain))
    (plain / "a.model").write_text("nothing of it")
    with pytest.raises(ConfigError, match=r"a.model: is not a sentencepiece model"):
        read_wmt(str(plain))
    (plain / "a.model").write_bytes(Path(root).read_bytes())
    data = read_wmt(str(plain))
    assert data.name == "wmt"
    assert data.vocabulary.decode(data.train.source.tolist()) == "one hundred"
    assert data.evaluation
    assert 1 in data.evaluation.corpus.source  # a character that the model does not know
