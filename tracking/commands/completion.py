"""Completion of commands and options by a shell: `python -m tracking --print-completion bash`.

A shell completes by the first word of a line, which is `python` here. So the script also defines a command `tracking`,
which is `python -m tracking` with this interpreter and these sources, from any folder.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SHELLS = ("bash", "zsh", "tcsh", "fish")
ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = {
    "bash": 'tracking() {{ PYTHONPATH={root}"${{PYTHONPATH:+:$PYTHONPATH}}" {python} -m tracking "$@"; }}',
    "zsh": 'tracking() {{ PYTHONPATH={root}"${{PYTHONPATH:+:$PYTHONPATH}}" {python} -m tracking "$@"; }}',
    "tcsh": "alias tracking 'env PYTHONPATH={root} {python} -m tracking'",
    "fish": "function tracking; env PYTHONPATH={root} {python} -m tracking $argv; end",
}


class Print(argparse.Action):
    """Prints the script and ends, as --help does."""

    def __init__(
        self, option_strings: Sequence[str], dest: str,
        make_parser: Callable[..., argparse.ArgumentParser], commands: Sequence[str],
    ) -> None:  # fmt: skip
        words = "print a script that defines a command `tracking` and completes it in this shell"
        super().__init__(option_strings, argparse.SUPPRESS, choices=SHELLS, help=words)
        self._make_parser = make_parser
        self._commands = commands

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None) -> None:
        print(script(self._make_parser(self._commands, "tracking"), values))
        parser.exit()


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The completion of the program named `tracking`, and the definition of that name."""
    import shtab

    complete_files(parser)
    python, root = shlex.quote(sys.executable), shlex.quote(str(ROOT))
    return f"{shtab.complete(parser, shell)}\n{FUNCTIONS[shell].format(python=python, root=root)}"


def complete_files(parser: argparse.ArgumentParser) -> None:
    """Have every option that takes a path, and every place for a run (which may be its folder), complete files."""
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for part in action.choices.values():
                complete_files(part)
        elif action.type is Path or action.metavar in ("RUN", "RUNS"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
