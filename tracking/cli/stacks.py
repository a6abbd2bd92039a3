"""python -m tracking stacks: the software stacks that are declared, what they need, and the environments made of them.

JSON: `stacks`, each with `stack`, `kind`, `needs`, `found`, `error` (empty where it can run), `made`, `size_bytes`,
`folder` (of an image, where its engine keeps it); `unused`, the environments in the cache that no declared stack is
made of; `removed`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracking.cli.command_type import WELL, WRONG, Answer, Command, Refused

if TYPE_CHECKING:
    from conf.schema import StackConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", metavar="STACK", help="names of stacks (default: all; of --remove: unused)")
    parser.add_argument(
        "--config-dir", type=Path, metavar="FOLDER", action="append", default=[], help="where stacks of your own are"
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--build", action="store_true", help="make environments and fetch images now, ahead of a sweep")
    what.add_argument("--remove", action="store_true", help="remove their environments; without a name, unused ones")


def run(arguments: argparse.Namespace) -> Answer:
    """Exit code 1 where a named stack cannot run here, or cannot be made."""
    from tracking.machine.environment import nvml
    from tracking.machine.stacks import declared, judge, make_all, uv_environment, verdict_table

    every = declared(arguments.config_dir)
    if unknown := [name for name in arguments.names if name not in every]:
        raise Refused(f"{unknown[0]}: no such stack; declared are {', '.join(every)}")
    asked = {name: every[name] for name in arguments.names or every}
    if arguments.remove:
        return removed(uv_environment.unused(every.values()) if not arguments.names else digests(asked))
    if arguments.build:
        make_all(list(asked.values()), lambda words: print(words, flush=True))
    verdicts = [judge(stack, nvml.visible_gpus(), resolve=False) for stack in asked.values()]
    rows = [row(stack, verdict) for stack, verdict in zip(asked.values(), verdicts, strict=True)]
    unused = uv_environment.unused(every.values())
    wrong = bool(arguments.names) and any(verdict.error for verdict in verdicts)

    def show() -> None:
        from tracking.base.console import make_console

        make_console().print(verdict_table(verdicts))
        if unused:
            number = f"{len(unused)} environment{'s' if len(unused) > 1 else ''}"
            print(f"kept of no declared stack: {number}; --remove removes what is unused")

    return Answer(WRONG if wrong else WELL, {"stacks": rows, "unused": unused, "removed": []}, show)


def digests(asked: dict[str, StackConfig]) -> list[str]:
    """The environments of these stacks that are there."""
    from tracking.machine.stacks import uv_environment

    environments = (uv_environment.find(stack) for stack in asked.values() if stack.kind == "uv")
    return [environment.digest for environment in environments if environment]


def removed(these: list[str]) -> Answer:
    from tracking.machine.stacks import uv_environment

    for digest in these:
        uv_environment.remove(digest)
        print(f"removed {uv_environment.root() / digest}")
    return Answer(WELL, {"stacks": [], "unused": [], "removed": these}, lambda: print(f"{len(these)} removed"))


def row(stack: StackConfig, verdict: Any) -> dict[str, Any]:
    from tracking.machine.stacks import container_images, uv_environment

    facts = {"stack": stack.name, "kind": stack.kind, "needs": verdict.needs, "found": verdict.facts}
    if stack.kind == "container" and not verdict.error:
        image = container_images.find(stack)
        here = {"made": image is not None, "size_bytes": image.size_bytes if image else None}
        return {**facts, "error": "", **here, "folder": str(container_images.store(stack))}
    made = uv_environment.find(stack) if stack.kind == "uv" else None
    size = made.size_bytes if made else None
    folder = str(made.python.parents[2]) if made else None
    return {**facts, "error": verdict.error, "made": made is not None, "size_bytes": size, "folder": folder}


STACKS = Command(
    "stacks",
    "list the software stacks, make their environments or fetch their images, and remove environments",
    add_arguments,
    run,
)
