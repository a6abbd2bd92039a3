"""Shell completion: `timetrial --print-completion bash`, or in a clone `python -m tracking --print-completion bash`.

A shell completes by the first word of a line, which is `python` in a clone. So in a clone the script also defines the
command `tracking`: `python -m tracking` with this interpreter and these sources, from any folder.
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
# Hydra knows the overrides of `timetrial run`. It completes a line that begins with its program. Bash splits words at
# `=` and appends the answer to the last part, so the parts before are cut off.
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


class PrintCompletion(argparse.Action):
    """Prints the script and exits, like --help."""

    def __init__(
        self, option_strings: Sequence[str], dest: str,
        make_parser: Callable[..., argparse.ArgumentParser], program: str,
    ) -> None:  # fmt: skip
        help_text = f"print a completion script for `{program}` in this shell"
        super().__init__(option_strings, argparse.SUPPRESS, choices=SHELLS, help=help_text)
        self._make_parser = make_parser
        self._program = program

    def __call__(self, parser: argparse.ArgumentParser, namespace: Any, values: Any, option: str | None = None) -> None:
        print(script(self._make_parser(prog=self._program), values))
        parser.exit()


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The completion script of the parser's program; in a clone, also the definition of that command."""
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
    """Complete file names for every option that takes a path, and every argument that takes a run or its folder."""
    import shtab

    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                complete_files(subparser)
        elif action.type is Path or action.metavar in ("RUN", "RUNS"):
            action.complete = shtab.FILE  # type: ignore[attr-defined]
