"""Files of tokens made of text: once, by all cores, and kept in the cache with what they are made of."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from conf.schema import ConfigError
from tracking.base import installation
from trainers.data.cached import cached_folder
from trainers.data.cached.work_shares import in_shares, num_shares
from trainers.data.loading.version import MANIFEST
from trainers.data.tokens.encoding import JOB, Job, encode_share, format_of, share_file
from trainers.data.tokens.shards import header
from trainers.data.tokens.stretches import Stretch
from trainers.data.tokens.tokenizers import Tokenizer, learn, tokenizer_of

ELSEWHERE = "set the environment variable TIMETRIAL_CACHE to a folder"
VERSION = 2  # The version of what is made. Raise it when that changes.
NUM_PIECES = 8192  # that are learnt
TRAIN, VALIDATION, MODEL = "train.bin", "val.bin", "pieces.model"
BYTES_PER_PROCESS = 8 << 20  # of text: seconds of a process
LEARNT_BYTES, LEARNT_OF_STRETCH = 4 << 20, 1 << 16  # Pieces are learnt of so much text, so much of a stretch.
UNSEEN = re.compile("[\\x00-\\x1f\\x7f-\\x9f\\\\\\u2028\\u2029]")


@dataclass(frozen=True)
class Source:
    """A file of text: its name in the record, its digest, and its stretches in each part."""

    name: str
    sha256: str
    train: Sequence[Stretch]
    validation: Sequence[Stretch]

    @property
    def part(self) -> str:
        return "both" if self.train and self.validation else "train" if self.train else "validation"


@dataclass(frozen=True)
class Made:
    """The files of both parts, and what is known of them."""

    train: Path
    validation: Path
    num_tokens: tuple[int, int]
    vocabulary: int
    record: str  # of each source a line: its digest, its part, its name
    num_bytes: np.ndarray = field(compare=False)  # bytes of text that each id stands for, float64 [vocabulary]


def made_tokens(
    kind: str, identity: Iterable[str], tokenizer: str | None, vocabulary: int | None,
    sources: Callable[[], list[Source]],
) -> Made:  # fmt: skip
    """The tokens of the sources, which are asked for only where the tokens are not kept.

    `identity` says what the sources follow from. Without a `tokenizer` sentencepiece learns `vocabulary` pieces of the
    text to train on, or NUM_PIECES. Raises ConfigError for text and tokenizers that cannot be used.
    """
    if tokenizer and vocabulary:
        raise ConfigError(
            f"dataset.vocabulary={vocabulary}: has no effect with dataset.tokenizer={tokenizer}, which has its own;"
            " leave one of them out"
        )
    vocabulary = vocabulary or NUM_PIECES
    words = [str(VERSION), *identity, tokenizer or f"learnt {vocabulary}"]
    given = tokenizer_of(tokenizer) if tokenizer else None
    if given:
        words += [hashlib.sha256(file.read_bytes()).hexdigest() for file in given.files]
    name = f"{kind}-tokens-{hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]}"

    def make(folder: Path, lock: int | None) -> None:
        _make(folder, sources(), tokenizer, vocabulary, lock)

    root = cached_folder(name, "files of tokens", None, make, _trouble, ELSEWHERE)
    return _read(root, given or tokenizer_of(str(root / MODEL)))


def _make(folder: Path, sources: Sequence[Source], tokenizer: str | None, vocabulary: int, lock: int | None) -> None:
    train = [stretch for source in sources for stretch in source.train]
    validation = [stretch for source in sources for stretch in source.validation]
    if not tokenizer:
        tokenizer = str(folder / MODEL)
        learn(sample(train), vocabulary, folder / MODEL)
    Job(tokenizer, train, validation).write(folder)
    answers = _encode(folder, sum(stretch.end - stretch.start for stretch in (*train, *validation)), lock)
    counts = [answer["counts"] for answer in answers]
    size = tokenizer_of(tokenizer).vocabulary
    for place, name in enumerate((TRAIN, VALIDATION)):
        _join(folder, folder / name, place, counts, size)
    for share in range(len(counts)):
        share_file(folder, share).unlink()
    (folder / JOB).unlink()
    content = {
        "vocabulary": size,
        "tokens": np.sum(counts, axis=0).tolist(),
        "validation_bytes": np.sum([answer["bytes"] for answer in answers], axis=0).tolist(),
        "files": {name: _described(folder / name) for name in (TRAIN, VALIDATION)},
        "sources": [[source.sha256, source.part, source.name] for source in sources],
    }
    (folder / MANIFEST).write_text(json.dumps(content, indent=1))


def sample(train: Sequence[Stretch]) -> Iterator[str]:
    """Lines of the text to train on, the same share of it from its beginning to its end."""
    every = max(1, sum(min(stretch.end - stretch.start, LEARNT_OF_STRETCH) for stretch in train) // LEARNT_BYTES)
    for stretch in train[::every]:
        yield from filter(None, stretch.text()[:LEARNT_OF_STRETCH].split("\n"))


def _encode(folder: Path, num_bytes: int, lock: int | None) -> list[dict[str, list[int]]]:
    """What `encode_share` says of each share's file. Raises ConfigError for text that cannot be cut."""
    num = max(1, num_shares(num_bytes, BYTES_PER_PROCESS))
    if num == 1:
        printed: Sequence[str | bytes] = [encode_share(folder, 0, 1)]
    else:
        module = installation.module("trainers.data.tokens")
        printed = in_shares(module, ["--folder", str(folder)], num, lock)
    answers: list[Any] = [json.loads(words) for words in printed]
    for answer in answers:
        if "error" in answer:
            raise ConfigError(answer["error"])
    return answers


def _join(folder: Path, path: Path, part: int, counts: Sequence[Sequence[int]], vocabulary: int) -> None:
    """Put together what the shares have of a part."""
    form = format_of(vocabulary)
    width = np.dtype(form.type).itemsize
    with path.open("wb") as file:
        file.write(header(form, sum(count[part] for count in counts)))
        for share, count in enumerate(counts):
            with share_file(folder, share).open("rb") as own:
                own.seek(count[0] * width * part)
                left = count[part] * width
                while chunk := own.read(min(left, 1 << 24)):
                    file.write(chunk)
                    left -= len(chunk)


def _described(path: Path) -> dict[str, str | int]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _trouble(root: Path) -> str:
    """What is missing, or has another size, in words; empty where nothing has."""
    try:
        files = json.loads((root / MANIFEST).read_text())["files"]
        wrong = [name for name in (TRAIN, VALIDATION) if (root / name).stat().st_size != files[name]["bytes"]]
        return f"{wrong[0]} is not whole" if wrong else ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{MANIFEST} or a file of it cannot be read ({error})"


def escaped(name: str) -> str:
    """A file's name on one line: backslashes, and what ends a line or cannot be seen, as Python writes them."""
    return UNSEEN.sub(lambda sign: sign[0].encode("unicode_escape").decode(), name)


def _read(root: Path, tokenizer: Tokenizer) -> Made:
    content = json.loads((root / MANIFEST).read_text())
    train, validation = content["tokens"]
    # A model of sentencepiece that changes or loses text says too much or too little of all ids alike.
    of_text, of_ids = content["validation_bytes"]
    num_bytes = tokenizer.num_bytes() * (of_text / max(1, of_ids))
    record = "".join(f"{sha256}  {part}  {escaped(name)}\n" for sha256, part, name in content["sources"])
    files = root / TRAIN, root / VALIDATION
    return Made(*files, (train, validation), content["vocabulary"], record, num_bytes)
