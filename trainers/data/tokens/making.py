"""Makes files of tokens from text, once, on all cores, and caches them with a record of their sources."""

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
VERSION = 2  # version of the files; raise it when they change
NUM_PIECES = 8192  # number of pieces to learn
TRAIN, VALIDATION, MODEL = "train.bin", "val.bin", "pieces.model"
BYTES_PER_PROCESS = 8 << 20  # bytes of text for which a process takes seconds
LEARNT_BYTES, LEARNT_OF_STRETCH = 4 << 20, 1 << 16  # bytes of text to learn pieces from, in all and per stretch
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
    """The files of both parts, and their facts."""

    train: Path
    validation: Path
    num_tokens: tuple[int, int]
    vocabulary: int
    record: str  # a line for each source: digest, part and name
    num_bytes: np.ndarray = field(compare=False)  # bytes of text of each id, float64 [vocabulary]


def made_tokens(
    kind: str, identity: Iterable[str], tokenizer: str | None, vocabulary: int | None,
    sources: Callable[[], list[Source]],
) -> Made:  # fmt: skip
    """Return the tokens of the sources; `sources` is called only if the tokens are not cached.

    `identity` determines the sources. Without a `tokenizer`, sentencepiece learns `vocabulary` pieces, by default
    NUM_PIECES, from the training text. Raises ConfigError for text and tokenizers that cannot be used.
    """
    if tokenizer and vocabulary:
        raise ConfigError(
            f"dataset.vocabulary={vocabulary}: has no effect with dataset.tokenizer={tokenizer}, which has its own"
            " vocabulary. Next: leave one of them out"
        )
    vocabulary = vocabulary or NUM_PIECES
    words = [str(VERSION), *identity, tokenizer or f"learnt {vocabulary}"]
    existing = tokenizer_of(tokenizer) if tokenizer else None
    if existing:
        words += [hashlib.sha256(file.read_bytes()).hexdigest() for file in existing.files]
    name = f"{kind}-tokens-{hashlib.sha256(json.dumps(words).encode()).hexdigest()[:16]}"

    def make(folder: Path, lock: int | None) -> None:
        _make(folder, sources(), tokenizer, vocabulary, lock)

    root = cached_folder(name, "files of tokens", None, make, _trouble, ELSEWHERE)
    return _read(root, existing or tokenizer_of(str(root / MODEL)))


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
    """Yield lines of the training text, sampled evenly from its beginning to its end."""
    every = max(1, sum(min(stretch.end - stretch.start, LEARNT_OF_STRETCH) for stretch in train) // LEARNT_BYTES)
    for stretch in train[::every]:
        yield from filter(None, stretch.text()[:LEARNT_OF_STRETCH].split("\n"))


def _encode(folder: Path, num_bytes: int, lock: int | None) -> list[dict[str, list[int]]]:
    """Encode all shares, and return the answers of `encode_share`. Raises ConfigError for unusable text."""
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
    """Join the shares' tokens of a part into one file."""
    form = format_of(vocabulary)
    width = np.dtype(form.type).itemsize
    with path.open("wb") as file:
        file.write(header(form, sum(count[part] for count in counts)))
        for share, count in enumerate(counts):
            with share_file(folder, share).open("rb") as share_tokens:
                share_tokens.seek(count[0] * width * part)
                left = count[part] * width
                while chunk := share_tokens.read(min(left, 1 << 24)):
                    file.write(chunk)
                    left -= len(chunk)


def _described(path: Path) -> dict[str, str | int]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _trouble(root: Path) -> str:
    """Return what is missing or has another size; empty if nothing has."""
    try:
        files = json.loads((root / MANIFEST).read_text())["files"]
        wrong = [name for name in (TRAIN, VALIDATION) if (root / name).stat().st_size != files[name]["bytes"]]
        return f"{wrong[0]} has another size" if wrong else ""
    except (OSError, ValueError, KeyError, TypeError) as error:
        return f"{MANIFEST}, or a file that it lists, cannot be read ({error})"


def escaped(name: str) -> str:
    """Return a file's name on one line, with Python's escapes for backslashes, line ends and invisible characters."""
    return UNSEEN.sub(lambda sign: sign[0].encode("unicode_escape").decode(), name)


def _read(root: Path, tokenizer: Tokenizer) -> Made:
    content = json.loads((root / MANIFEST).read_text())
    train, validation = content["tokens"]
    # If a sentencepiece model normalises text, the bytes of all ids are wrong by one factor: correct it.
    of_text, of_ids = content["validation_bytes"]
    num_bytes = tokenizer.num_bytes() * (of_text / max(1, of_ids))
    record = "".join(f"{sha256}  {part}  {escaped(name)}\n" for sha256, part, name in content["sources"])
    files = root / TRAIN, root / VALIDATION
    return Made(*files, (train, validation), content["vocabulary"], record, num_bytes)
