"""The shape of every command: a name, a line about it, its options, and a function that answers."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

WELL, WRONG, REFUSED = 0, 1, 2  # exit codes, as EXIT_CODES of the program says them


class Refused(Exception):
    """What was asked cannot be answered, in a sentence for the user.

    `exit_code` is 2, before whose sentence stands "refused: ", unless it was something else than the request.
    """

    def __init__(self, words: str, exit_code: int = REFUSED) -> None:
        super().__init__(words)
        self.exit_code = exit_code


@dataclass(frozen=True)
class Answer:
    """What a command found: `show` prints it for people, `document` is the same for `--json`.

    What is printed before the answer is there is progress, which goes to stderr beside a JSON document.
    """

    exit_code: int
    document: Mapping[str, Any]
    show: Callable[[], None] = lambda: None


@dataclass(frozen=True)
class Command:
    """`python -m tracking NAME`. `run` imports what takes long; the module of a command imports none of it.

    `run` raises Refused, or ValueError or OSError with words for the user, where the request cannot be met.
    """

    name: str
    summary: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], Answer]
