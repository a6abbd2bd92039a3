"""The parts of a command: a name, a summary, options, and a function that answers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

SUCCESS, FAILURE, REFUSED = 0, 1, 2  # exit codes, explained in parser.EXIT_CODES


class Refused(Exception):
    """A request that cannot be answered, with a sentence for the user.

    With the exit code 2 the sentence is printed after "refused: ". Other codes mean that the request was not the cause.
    """

    def __init__(self, message: str, exit_code: int = REFUSED) -> None:
        super().__init__(message)
        self.exit_code = exit_code


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
