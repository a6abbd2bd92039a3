"""python -m tracking: one parser for all commands, with one way to answer, refuse and exit."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Collection, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from typing import Any, NoReturn

from tracking.base import installation, paths, secrets
from tracking.base.console import LastingStream, open_closed_streams
from tracking.base.installation import LAUNCH, TRACKING
from tracking.base.safe_text import printable
from tracking.cli import completion
from tracking.cli.audit import AUDIT
from tracking.cli.command_type import FAILURE, REFUSED, Answer, Command, Refused, sentence_of
from tracking.cli.diff import DIFF
from tracking.cli.doctor import DOCTOR
from tracking.cli.follow import FOLLOW, WATCH
from tracking.cli.gate import GATE
from tracking.cli.import_logs import IMPORT
from tracking.cli.machine import CACHE, CEILINGS, FINGERPRINT
from tracking.cli.mlperf import MLPERF
from tracking.cli.report import REPORT
from tracking.cli.stacks import STACKS
from tracking.cli.sync import SYNC
from tracking.record import documents

Others = Sequence[tuple[str, str]]  # name and summary of each
COMMANDS = (
    AUDIT, CACHE, CEILINGS, DIFF, DOCTOR, FINGERPRINT, FOLLOW, GATE, IMPORT, MLPERF, REPORT, STACKS, SYNC, WATCH,
)  # fmt: skip
EXIT_CODES = """\
exit codes of every command:
  0  success
  1  something to fix: a failed check, a slower candidate, a figure that differs, a run that is not uploaded
  2  the request was refused, with a sentence on stderr; gate: also if the runs cannot tell"""


def main(argv: list[str] | None = None, prog: str = TRACKING, others: Others = ()) -> int:
    """Run a command and return its exit code. A closed output, as by `head`, changes nothing; a full disk is refused.

    `prog` precedes a command's name in messages. `others` are commands of the program that are only listed here.
    """
    open_closed_streams()
    argv = sys.argv[1:] if argv is None else argv
    output, errors = (LastingStream(stream, BrokenPipeError) for stream in (sys.stdout, sys.stderr))
    with redirect_stdout(output), redirect_stderr(errors):
        try:
            try:
                return execute(argv, prog, others)
            finally:
                output.flush()
        except OSError as error:  # from the output: `execute` handles those of the command
            print(f"refused: standard output: {error.strerror}. Next: write it elsewhere", file=sys.stderr)
            output.give_up()
            return REFUSED
        except KeyboardInterrupt:
            print("stopped", file=sys.stderr)
            return FAILURE
        finally:
            errors.flush()


def execute(argv: list[str], prog: str = TRACKING, others: Others = ()) -> int:
    """Parse, run, and print the answer or the refusal. Returns the exit code."""
    if others and argv and argv[0].endswith((".py", ".sh")):
        from tracking.request.refusal import program_advice

        print(printable(f"refused: {argv[0]}: not a command. {program_advice(argv[0])}"), file=sys.stderr)
        return REFUSED
    if reason := paths.missing_folder():
        print(f"refused: {reason}", file=sys.stderr)
        return REFUSED
    arguments = make_parser(argv, prog, others).parse_args(argv)
    secrets.guard_tracebacks()
    command: Command = arguments.chosen
    try:
        answer = run_command(command, arguments)
    except Refused as error:
        sentence = f"refused: {error}" if error.exit_code == REFUSED else str(error)
        print(printable(sentence), file=sys.stderr)
        return error.exit_code
    if arguments.json:
        print(json.dumps(documents.finite(answer.document), indent=2, default=str))
    else:
        answer.show()
    return answer.exit_code


def run_command(command: Command, arguments: argparse.Namespace) -> Answer:
    """The command's answer. With --json, its prints go to stderr. Raises Refused."""
    try:
        with redirect_stdout(sys.stderr if arguments.json else sys.stdout):
            return command.run(arguments)
    except ValueError as error:
        raise Refused(str(error)) from error
    except OSError as error:
        raise Refused(sentence_of(error)) from error
    except Exception as error:
        from tracking.store.server import TrackingRefused, TrackingUnavailable

        if isinstance(error, (TrackingRefused, TrackingUnavailable)):
            raise Refused(str(error)) from error
        raise


def make_parser(argv: Collection[str], prog: str = TRACKING, others: Others = ()) -> argparse.ArgumentParser:
    """The parser. Only the commands among `argv` get their options, since some are slow to build."""
    description = "Measures the time to accuracy of trainings." if others else f"The commands beside {LAUNCH}."
    parser = CommandParser(prog=prog, description=description, epilog=EXIT_CODES, formatter_class=Formatter)
    parser.add_argument("--version", action="version", version=f"timetrial {installation.version()}")
    parser.add_argument(
        "--print-completion",
        action=completion.PrintCompletion,
        make_parser=partial(make_parser, [each.name for each in COMMANDS], others=others),
        program="timetrial" if others else "tracking",
    )
    commands = parser.add_subparsers(dest="command", required=True, parser_class=CommandParser)
    for name, summary in others:
        commands.add_parser(name, help=summary)
    for command in COMMANDS:
        subparser = commands.add_parser(
            command.name, help=command.summary, description=command.summary, epilog=EXIT_CODES,
            formatter_class=Formatter,
        )  # fmt: skip
        subparser.set_defaults(chosen=command)
        if command.name in argv:
            command.add_arguments(subparser)
            subparser.add_argument("--json", action="store_true", help="one JSON document on standard output")
    return parser


class CommandParser(argparse.ArgumentParser):
    """Refuses wrong arguments with its command's usage, in the words of all refusals.

    For unknown arguments argparse would print the main parser's usage.
    """

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(REFUSED, printable(f"refused: {message}. Next: {self.prog} --help") + "\n")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        known, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(f"unrecognized arguments: {' '.join(unknown)}")
        return known, unknown


class Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the line breaks of the exit codes."""
