"""Reads pairs of sentences from two files into arrays of ids; checks them line by line, and caches them."""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from conf.schema import ConfigError
from trainers.data.cached import Arrays, cached_arrays
from trainers.data.reading.regular_file import check_encoding, conversion, opened
from trainers.data.text.vocabulary import UNKNOWN, Vocabulary

FORMAT = 2  # version of the cached arrays; raise it when `_read_side` returns or refuses something else
MOST_TOKENS = 1024  # A longer line is not a sentence: training skips it, and an evaluation refuses it.
MOST_SHOWN = 40  # characters of a piece in a message
MOST_UNKNOWN = 0.1  # In plain text a larger share of unknown tokens means that the model is of another language.
SIDES = ("source", "target")
CHUNK = 50_000  # lines in memory at a time
OF_NO_SENTENCE = "nothing is to translate. Next: remove the line from the files of both languages"


@dataclass(frozen=True)
class Corpus:
    """N pairs. Ids exclude marks; pair i has the ids from start[i] to start[i + 1] of each side."""

    source: np.ndarray  # int32
    source_start: np.ndarray  # int64 [N + 1]
    target: np.ndarray  # int32
    target_start: np.ndarray  # int64 [N + 1]

    def __len__(self) -> int:
        return len(self.source_start) - 1

    def lengths(self) -> tuple[np.ndarray, np.ndarray]:
        """Return the tokens of each pair's source and target, including the end mark: int64 [N] each."""
        return np.diff(self.source_start) + 1, np.diff(self.target_start) + 1

    def check(self, name: str, vocabulary: Vocabulary) -> None:
        """Raise ConfigError for an id that is not in the vocabulary."""
        for side, ids in zip(SIDES, (self.source, self.target), strict=True):
            if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < vocabulary.size:
                raise ConfigError(
                    f"{name}: {side} ids are from {ids.min()} to {ids.max()}, but {vocabulary.name} has"
                    f" {vocabulary.size}. Next: delete the cached index ($TIMETRIAL_CACHE/text) to have it made anew"
                )


def read_corpus(
    source: Path, target: Path, vocabulary: Vocabulary, identity: list[Path], all_known: bool, limited: bool
) -> Corpus:
    """Return the pairs of two files with equally many lines: line i of one file translates line i of the other.

    With `all_known`, every piece must be in the vocabulary. With `limited`, for evaluation, no line may have more than
    MOST_TOKENS; other text may have a share of up to MOST_UNKNOWN of unknown tokens. `identity` are the files of the
    vocabulary. The arrays are made once and cached. Raises ConfigError if the files do not fit each other or the
    vocabulary, and for anything that `read_lines` refuses.
    """

    def make() -> Arrays:
        sides = [_read_side(path, vocabulary, all_known) for path in (source, target)]
        _check_counts(source, target, len(sides[0][1]), len(sides[1][1]))
        return {
            f"{name}{part}": array
            for name, (ids, lengths) in zip(SIDES, sides, strict=True)
            for part, array in (("", ids), ("_start", np.concatenate(([0], lengths.cumsum()))))
        }

    files = [source, target, *identity]
    for file in files:
        if not file.is_file():
            raise ConfigError(f"{file}: is missing. Next: put the dataset's file in place")
    corpus = Corpus(**cached_arrays("text", files, f"{all_known}", FORMAT, make))
    corpus.check(f"{source} and {target}", vocabulary)
    if limited:
        _check_longest(corpus, source, target)
    else:
        _check_known(corpus, source, target, vocabulary)
    return corpus


def _read_side(path: Path, vocabulary: Vocabulary, all_known: bool) -> tuple[np.ndarray, np.ndarray]:
    parts = list(_encoded(path, vocabulary, all_known))
    ids, lengths = (np.concatenate(arrays) for arrays in zip(*parts, strict=True))
    return ids, lengths


def _encoded(path: Path, vocabulary: Vocabulary, all_known: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    first = 1
    for lines in read_lines(path):
        ids, lengths = vocabulary.encode(lines)
        ends = lengths.cumsum()
        unknown = np.flatnonzero(ids == UNKNOWN)
        if all_known and len(unknown):
            line = int(np.searchsorted(ends, unknown[0], side="right"))
            place = int(unknown[0] - ends[line] + lengths[line])
            raise ConfigError(
                f"{path}, line {first + line}: its token {place + 1}, {lines[line].split()[place][:MOST_SHOWN]!r}, is"
                f" not in {vocabulary.name}. Next: put the vocabulary of this text in place"
            )
        if len(nothing := np.flatnonzero(lengths == 0)):
            raise ConfigError(
                f"{path}, line {first + nothing[0]}: has no ids in {vocabulary.name}, as with invisible characters."
                " Next: remove the line from the files of both languages"
            )
        yield ids, lengths
        first += len(lines)


def _check_counts(source: Path, target: Path, num_source: int, num_target: int) -> None:
    if num_source != num_target:
        longer, shorter = (source, target) if num_source > num_target else (target, source)
        more, less = max(num_source, num_target), min(num_source, num_target)
        raise ConfigError(
            f"{longer}, line {less + 1}: has no translation: the file has {more:,} lines, but {shorter} has {less:,}."
            " Next: put the original files in place"
        )


def _check_longest(corpus: Corpus, source: Path, target: Path) -> None:
    for path, lengths in zip((source, target), corpus.lengths(), strict=True):
        longest = int(lengths.argmax())
        if lengths[longest] > MOST_TOKENS:
            raise ConfigError(
                f"{path}, line {longest + 1}: has {lengths[longest] - 1:,} tokens, too many for a sentence. Next:"
                " split it, or remove it from the files of both languages"
            )


def _check_known(corpus: Corpus, source: Path, target: Path, vocabulary: Vocabulary) -> None:
    sides = ((source, corpus.source, corpus.source_start), (target, corpus.target, corpus.target_start))
    for path, ids, start in sides:
        unknown = np.flatnonzero(ids == UNKNOWN)
        if len(unknown) > MOST_UNKNOWN * len(ids):
            line = int(np.searchsorted(start, unknown[0], side="right"))
            raise ConfigError(
                f"{path}, line {line}: is the first line with tokens that are not in {vocabulary.name}, which are"
                f" {len(unknown) / len(ids):.0%} of the file's. Next: put the model of this text in place"
            )


def plain_lines(path: Path) -> list[str]:
    """Return all lines of a small file."""
    return [line for lines in read_lines(path) for line in lines]


def read_lines(path: Path, of_nothing: str = OF_NO_SENTENCE) -> Iterator[list[str]]:
    """Yield the lines of a UTF-8 file in chunks, without line ends and a byte order mark.

    Only a line feed ends a line, with or without a carriage return before it, as in the tools that make such files.
    Raises ConfigError for an empty line, with the explanation `of_nothing`, for a line that is not UTF-8, and for a
    file that cannot be read or has no lines.
    """
    first = 1
    try:
        check_encoding(path)
        with opened(path) as file:
            while chunk := list(islice(file, CHUNK)):
                if first == 1:
                    chunk[0] = chunk[0].removeprefix(BOM_UTF8)
                yield _checked(path, chunk, first, of_nothing)
                first += len(chunk)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror}). Next: put the file in place") from error
    if first == 1:
        raise ConfigError(f"{path}: is empty. Next: put the dataset's original file in place")


def _checked(path: Path, chunk: list[bytes], first: int, of_nothing: str) -> list[str]:
    try:
        text = b"".join(chunk).decode()
    except UnicodeDecodeError:
        for number, line in enumerate(chunk, first):
            try:
                line.decode()
            except UnicodeDecodeError as error:
                raise ConfigError(
                    f"{path}, line {number}: is not UTF-8 at byte {error.start + 1} of the line. {conversion(path)}"
                ) from error
        raise
    lines = text.removesuffix("\n").removesuffix("\r").replace("\r\n", "\n").split("\n")
    for number, content in enumerate(lines, first):
        if not content.strip():
            raise ConfigError(f"{path}, line {number}: is empty, so {of_nothing}")
    return lines
