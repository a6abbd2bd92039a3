"""Numbers in English and German words: an exact translation task of any size, without a download.

A sentence is a sequence of one to four cardinal numbers, ordinal numbers or years:

    four hundred and seventy-one; the twelfth; nineteen oh-five
    vierhunderteinundsiebzig; der zwölfte; neunzehnhundertfünf

German puts units before tens, writes a number as one word, and says years in its own way, so a model has to learn more
than words. The package num2words writes the numbers, and sentencepiece learns byte-pair pieces of both languages. The
plain text is written once. Each number of 1,000 and more, and each sentence, belongs to one part only.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Iterator
from pathlib import Path

from conf.schema import ConfigError
from trainers.data.cached import cached_folder
from trainers.data.loading.version import MANIFEST
from trainers.data.text.data import TextData
from trainers.data.text.wmt import SOURCE, TARGET, plain_text

VERSION = 1  # version of the text; raise it when the text changes
SIZE = 20_000
HELD_OUT = 500  # sentences for evaluation, and as many for the test set
PARTS = ("train", "valid", "test")
SHARES = {"train": 0.8, "valid": 0.1, "test": 0.1}  # shares of the large numbers, and of the possible sentences
SMALL = 1_000
LARGE = {"train": 8_000, "valid": 600, "test": 600}  # number of large numbers that a part uses
MOST_DIGITS = 6
MOST_NUMBERS = 4
NUM_PIECES = 400
KINDS = ("cardinal", "cardinal", "cardinal", "ordinal", "year")


def numbers(size: int = SIZE, path: str | None = None) -> TextData:
    """Return `size` training pairs; the first use writes them to folder `path`, by default in the user's cache.

    Raises ConfigError if the folder cannot be written, or if an existing one has changed.
    """
    if size < 1:
        raise ConfigError(f"dataset.size={size}: must be 1 or more")
    return plain_text("numbers", ensure(size, path), evaluation="valid", test="test")


def ensure(size: int, path: str | None = None) -> Path:
    """Return the folder of the text. Raises ConfigError if it cannot be written, or one in `path` has changed."""

    def make(folder: Path, lock: int | None) -> None:
        _write(size, folder)

    return cached_folder(f"numbers-v{VERSION}-{size}", "text", path, make, _trouble)


def _write(size: int, folder: Path) -> None:
    for part in PARTS:
        pairs = list(sentences(part, size if part == "train" else HELD_OUT))
        for language, lines in zip((SOURCE, TARGET), zip(*pairs, strict=True), strict=True):
            (folder / f"{part}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    _learn_pieces(folder)
    (folder / MANIFEST).write_text(json.dumps(_digests(folder), indent=1))


def sentences(part: str, num: int) -> Iterator[tuple[str, str]]:
    """Yield `num` pairs of English and German. Part and place determine a pair: longer texts begin with shorter ones.

    The sentences of evaluation and test are all different, and no sentence is in two parts.
    """
    rng = random.Random(f"{part} {VERSION}")  # A text as seed gives the same numbers on every Python.
    large = list(_large(part))
    spoken: dict[tuple[str, int], tuple[str, str]] = {}
    seen = set()
    while num:
        chosen = []
        for _ in range(rng.randint(1, MOST_NUMBERS)):
            kind = rng.choice(KINDS)
            number = rng.choice(large) if kind == "cardinal" and rng.random() < 0.7 else rng.randrange(1, SMALL)
            chosen.append((kind, rng.randrange(1100, 2100) if kind == "year" else number))
        words = [spoken.get(number) or spoken.setdefault(number, _words(*number)) for number in chosen]
        english, german = ("; ".join(languages) for languages in zip(*words, strict=True))
        if part_of(english) == part and (part == "train" or english not in seen):
            seen.add(english)
            num -= 1
            yield english, german


def part_of(text: str) -> str:
    """Return the part that a text belongs to, by its digest."""
    place = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") / 2**32
    return "train" if place < SHARES["train"] else "valid" if place < SHARES["train"] + SHARES["valid"] else "test"


def _large(part: str) -> Iterator[int]:
    """Yield the part's different numbers of four digits and more; each number of digits is equally frequent."""
    rng = random.Random(f"large {part} {VERSION}")
    seen: set[int] = set()
    while len(seen) < LARGE[part]:
        digits = rng.randint(4, MOST_DIGITS)
        number = rng.randrange(10 ** (digits - 1), 10**digits)
        if number not in seen and part_of(str(number)) == part:
            seen.add(number)
            yield number


def _words(kind: str, number: int) -> tuple[str, str]:
    from num2words import num2words  # Only writing the text needs this import.

    english, german = (num2words(number, to=kind, lang=language) for language in (SOURCE, TARGET))
    return (f"the {english}", f"der {german}") if kind == "ordinal" else (english, german)


def _learn_pieces(folder: Path) -> None:
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        input=",".join(str(folder / f"train.{language}") for language in (SOURCE, TARGET)),
        model_prefix=str(folder / "pieces"), model_type="bpe", vocab_size=NUM_PIECES, hard_vocab_limit=False,
        num_threads=1, minloglevel=2,
    )  # fmt: skip


def _digests(folder: Path) -> dict[str, str]:
    files = [folder / f"{part}.{language}" for part in PARTS for language in (SOURCE, TARGET)]
    return {file.name: hashlib.sha256(file.read_bytes()).hexdigest() for file in [*files, folder / "pieces.model"]}


def _trouble(root: Path) -> str:
    """Return what has changed; empty if nothing has."""
    try:
        expected, actual = json.loads((root / MANIFEST).read_text()), _digests(root)
        return next((f"{name} has changed" for name in actual if actual[name] != expected.get(name)), "")
    except (OSError, ValueError, AttributeError) as error:
        return str(error) or type(error).__name__
