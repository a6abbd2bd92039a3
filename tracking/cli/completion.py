"""Completion by a shell: `timetrial --print-completion bash`, in a clone `python -m tracking --print-completion bash`.

A shell completes by the first word of a line, which is `python` in a clone. There the script also defines a command
`tracking`, which is `python -m tracking` with this interpreter and these sources, from any folder.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tracking.base.installation import CODE, PREFIX

SHELLS = ("bash", "zsh", "tcsh", "fish")
FUNCTIONS = {
    "bash": '{name}() {{ PYTHONPATH={code}"${{PYTHONPATH:+:$PYTHONPATH}}" {python} -m {name} "$@"; }}',
    "zsh": '{name}() {{ PYTHONPATH={code}"${{PYTHONPATH:+:$PYTHONPATH}}" {python} -m {name} "$@"; }}',
    "tcsh": "alias {name} 'env PYTHONPATH={code} {python} -m {name}'",
    "fish": "function {name}; env PYTHONPATH={code} {python} -m {name} $argv; end",
}
# The overrides of `timetrial run` are known to Hydra, which completes a line that begins with its program. Bash has cut
# the word at `=`, and puts the answer behind the last one.
RUN_IN_BASH = r"""
_timetrial_run() {
    local line=${COMP_LINE:0:COMP_POINT} folder=() known current cut
    current=${line##* }
    [[ $line == *" --config-dir $current" ]] && COMPREPLY=($(compgen -d -- "$current")) && return
    [[ $line =~ \ --config-dir[=\ ]([^\ ]+)\  ]] && folder=(--config-dir "${BASH_REMATCH[1]}")
    known=$(COMP_LINE="timetrial${line#"${COMP_WORDS[0]}"*run}" timetrial run "${folder[@]}" -sc query=bash 2>/dev/null)
    COMPREPLY=($(compgen -W "$known" -- "$current"))
    [[ ${#COMPREPLY[@]} == 1 && $COMPREPLY == *[=./] ]] && compopt +o filenames -o nospace 2>/dev/null
    cut=${current%"${current##*=}"}
    [[ $COMP_WORDBREAKS == *=* ]] && COMPREPLY=("${COMPREPLY[@]#"$cut"}")
}
_timetrial() {
    if [[ $COMP_CWORD -gt 1 && ${COMP_WORDS[1]} == run ]]; then _timetrial_run; else _shtab_timetrial "$@"; fi
}
complete -o default -o filenames -F _timetrial timetrial
"""


class Print(argparse.Action):
    """Prints the script and ends, as --help does."""

    def __init__(
        self, option_strings: Sequence[str], dest: str,
        make_parser: Callable[..., argparse.ArgumentParser], program: str,
    ) -> None:  # fmt: skip
        words = f"print a script that completes the command `{program}` in this shell"
        super().__init__(option_strings, argparse.SUPPRESS, choices=SHELLS, help=words)
        self._make_parser = make_parser
        self._program = program

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None) -> None:
        print(script(self._make_parser(prog=self._program), values))
        parser.exit()


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The completion of the program that the parser is named after and, in a clone, the definition of that name."""
    import shtab

    complete_files(parser)
    parts = [shtab.complete(parser, shell)]
    if parser.prog == "timetrial" and shell == "bash":
        parts.append(RUN_IN_BASH)
    if not PREFIX:
        python, code = shlex.quote(sys.executable), shlex.quote(str(CODE))
        parts.append(FUNCTIONS[shell].format(name=parser.prog, python=python, code=code))
    return "\n".join(parts)


def complete_files(parser: argparse.ArgumentParser) -> None:
    """Have every option that takes a path, and every place for a run (which may be its folder), complete files."""
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for part in action.choices.values():
                complete_files(part)
        elif action.type is Path or action.metavar in ("RUN", "RUNS"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
