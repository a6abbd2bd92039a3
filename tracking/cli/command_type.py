"""The parts of a command: a name, a summary, options, and a function that answers."""

from __future__ import annotations

import argparse
import errno
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

SUCCESS, FAILURE, REFUSED = 0, 1, 2  # exit codes, explained in parser.EXIT_CODES
ADVICE = {
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST), "check this path"),
    **dict.fromkeys((errno.EACCES, errno.EPERM, errno.EROFS), "get access to it, or give another path"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free space on its disk"),
    errno.ELOOP: "put the file itself there",
}


class Refused(Exception):
    """A request that cannot be answered, with a sentence for the user.

    With the exit code 2 the sentence is printed after "refused: ". Other codes mean that the request was not the cause.
    """

    def __init__(self, message: str, exit_code: int = REFUSED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def sentence_of(error: OSError) -> str:
    """What could not be read or written, why, and the next step; our own errors are sentences already."""
    if error.errno is None:
        return str(error)
    return f"{_what(error)}. Next: {ADVICE.get(error.errno, 'check the file and its disk, and try again')}"


@contextmanager
def writing(option: str, place: str) -> Iterator[None]:
    """Turn a write error into a refusal that names the option. Do not read within: a read error would look alike."""
    try:
        yield
    except OSError as error:
        raise Refused(f"{_what(error)}. Next: give {option} {place} that you can write to") from error


def _what(error: OSError) -> str:
    return f"{error.filename}: {error.strerror}" if error.filename else str(error.strerror)


@dataclass(frozen=True)
class Answer:
    """The result of a command: `show` prints it as text, `document` is the same for `--json`.

    Text printed before the answer is progress. With `--json` it goes to stderr.
    """

    exit_code: int
    document: Mapping[str, Any]
    show: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Command:
    """A command `python -m tracking NAME`. Slow imports are inside `run`, not in the module of the command.

    `run` raises Refused, ValueError or OSError with a message for the user if the request cannot be answered.
    """

    name: str
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Answer]
