"""Numbers in English words and the same in German: a translation task without end, exact, and with no download.

A sentence is one to four numbers, cardinal or ordinal, or years, one behind the other:

    four hundred and seventy-one; the twelfth; nineteen oh-five
    vierhunderteinundsiebzig; der zwölfte; neunzehnhundertfünf

German says the units before the tens, writes a number in one word, and has years of its own, so that more is to be
learnt than words. Package num2words says them, and sentencepiece learns byte-pair pieces of both languages. Everything
is written as plain text once. Numbers of 1,000 and more belong to one part alone, and so does every sentence.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock

from conf.schema import ConfigError
from tracking.machine.environment import cache, distrust, private_folder
from trainers.data.loading.version import MANIFEST
from trainers.data.text.data import TextData
from trainers.data.text.wmt import SOURCE, TARGET, plain_text

VERSION = 1  # The version of the text. Raise it when that changes.
SIZE = 20_000
HELD_OUT = 500  # sentences for evaluation, and as many for the test
PARTS = ("train", "valid", "test")
SHARES = {"train": 0.8, "valid": 0.1, "test": 0.1}  # shares of the large numbers, and of the sentences that could be
SMALL = 1_000
LARGE = {"train": 8_000, "valid": 600, "test": 600}  # how many large numbers a part draws from
MOST_DIGITS = 6
MOST_NUMBERS = 4
NUM_PIECES = 400
KINDS = ("cardinal", "cardinal", "cardinal", "ordinal", "year")


def numbers(size: int = SIZE, path: str | None = None) -> TextData:
    """`size` training pairs; written into folder `path`, else the user's cache, the first time.

    Raises ConfigError where the folder cannot be written, and where one that is there is not what was written.
    """
    if size < 1:
        raise ConfigError(f"dataset.size={size}: must be 1 or more")
    return plain_text("numbers", ensure(size, path), evaluation="valid", test="test")


def ensure(size: int, path: str | None = None) -> Path:
    """The folder of the text. Of the processes that ask at once one writes it, and the others wait."""
    parent = Path(path).expanduser() if path else cache()
    root = parent / f"numbers-v{VERSION}-{size}"
    if not path and (why := distrust(root)):
        raise ConfigError(
            f"cache: the generated text is not used, since {why}; remove it, or set dataset.path or the environment"
            " variable TIMETRIAL_CACHE to a folder of your own"
        )
    if not root.exists():
        try:
            parent.mkdir(parents=True, exist_ok=True) if path else private_folder()
            with FileLock(parent / f".{root.name}.lock", fallback_to_soft=False):
                if not root.exists():
                    _write(size, root)
        except OSError as error:
            raise ConfigError(
                f"dataset.path={path}: the generated text cannot be written to {root} ({error}); set dataset.path or"
                " the environment variable TIMETRIAL_CACHE to a folder that has room and can be written"
            ) from error
    _check(root)
    return root


def _write(size: int, root: Path) -> None:
    """Into a folder of another name, which is renamed once it is whole. The caller holds the lock."""
    partial = root.with_name(f".{root.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # Whoever began it is dead, or it would hold the lock.
    partial.mkdir()
    try:
        for part in PARTS:
            pairs = list(sentences(part, size if part == "train" else HELD_OUT))
            for language, lines in zip((SOURCE, TARGET), zip(*pairs, strict=True), strict=True):
                (partial / f"{part}.{language}").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        _learn_pieces(partial)
        (partial / MANIFEST).write_text(json.dumps(_digests(partial), indent=1))
        partial.rename(root)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def sentences(part: str, num: int) -> Iterator[tuple[str, str]]:
    """English and German, `num` times. They follow from part and place alone: more of them begin with the same ones.

    Those of evaluation and test are all different, and none of a part is in another.
    """
    rng = random.Random(f"{part} {VERSION}")  # A seed that is a text gives the same numbers on every Python.
    large = list(_large(part))
    said: dict[tuple[str, int], tuple[str, str]] = {}
    seen = set()
    while num:
        chosen = []
        for _ in range(rng.randint(1, MOST_NUMBERS)):
            kind = rng.choice(KINDS)
            number = rng.choice(large) if kind == "cardinal" and rng.random() < 0.7 else rng.randrange(1, SMALL)
            chosen.append((kind, rng.randrange(1100, 2100) if kind == "year" else number))
        words = [said.get(number) or said.setdefault(number, _words(*number)) for number in chosen]
        english, german = ("; ".join(languages) for languages in zip(*words, strict=True))
        if part_of(english) == part and (part == "train" or english not in seen):
            seen.add(english)
            num -= 1
            yield english, german


def part_of(text: str) -> str:
    """The part that a text belongs to, by its digest."""
    place = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big") / 2**32
    return "train" if place < SHARES["train"] else "valid" if place < SHARES["train"] + SHARES["valid"] else "test"


def _large(part: str) -> Iterator[int]:
    """Different numbers of four digits and more, each as many digits as often, that belong to the part."""
    rng = random.Random(f"large {part} {VERSION}")
    seen: set[int] = set()
    while len(seen) < LARGE[part]:
        digits = rng.randint(4, MOST_DIGITS)
        number = rng.randrange(10 ** (digits - 1), 10**digits)
        if number not in seen and part_of(str(number)) == part:
            seen.add(number)
            yield number


def _words(kind: str, number: int) -> tuple[str, str]:
    from num2words import num2words  # Here alone: the text is written once.

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


def _check(root: Path) -> None:
    try:
        expected, there = json.loads((root / MANIFEST).read_text()), _digests(root)
        wrong = next((f"{name} has changed" for name in there if there[name] != expected.get(name)), None)
    except (OSError, ValueError, AttributeError) as error:
        wrong = str(error)
    if wrong:
        raise ConfigError(
            f"dataset.path={root.parent}: the generated text in {root} is damaged: {wrong}; delete the folder, and it"
            " is written again"
        )
