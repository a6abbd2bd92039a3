"""python -m tracking stacks: the declared software stacks, their needs, and their environments.

JSON: `stacks`, each with `stack`, `kind`, `needs`, `found`, `error` (empty if it can run), `made`, `size_bytes`,
`folder` (of an image: where its engine keeps it); `unused`, the environments in the cache that no declared stack
uses; `removed`.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracking.cli.command_type import FAILURE, SUCCESS, Answer, Command, Refused

if TYPE_CHECKING:
    from conf.schema import StackConfig


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "names", nargs="*", metavar="STACK", help="names of stacks (default: all; with --remove: unused ones)"
    )
    add_config_dir(parser)
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--build", action="store_true", help="make environments and fetch images now, before a sweep")
    action.add_argument("--remove", action="store_true", help="remove their environments; without a name, unused ones")


def add_config_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--config-dir",
        type=Path,
        metavar="FOLDER",
        action="append",
        default=[],
        help="folder with YAML files of your own stacks",
    )


def run(arguments: argparse.Namespace) -> Answer:
    """Exit code 1 if a named stack cannot run here. Raises ConfigError if one cannot be made."""
    from tracking.machine.environment import nvml
    from tracking.machine.stacks import declared, judge, make_all, uv_environment, verdict_table

    stacks = declared(arguments.config_dir)
    if unknown := [name for name in arguments.names if name not in stacks]:
        raise Refused(f"{unknown[0]}: no such stack. Allowed: {', '.join(stacks)}")
    selected = {name: stacks[name] for name in arguments.names or stacks}
    if arguments.remove:
        return remove_environments(uv_environment.unused(stacks.values()) if not arguments.names else digests(selected))
    if arguments.build:
        make_all(list(selected.values()), lambda words: print(words, flush=True))
    verdicts = [judge(stack, nvml.visible_gpus(), resolve=False) for stack in selected.values()]
    rows = [json_row(stack, verdict) for stack, verdict in zip(selected.values(), verdicts, strict=True)]
    unused = uv_environment.unused(stacks.values())
    has_error = bool(arguments.names) and any(verdict.error for verdict in verdicts)

    def show() -> None:
        from tracking.base.console import make_console
        from tracking.base.number_text import counted

        make_console().print(verdict_table(verdicts))
        if unused:
            number = counted(len(unused), "environment")
            print(f"unused by declared stacks: {number}. Next: --remove, to remove unused ones")

    return Answer(FAILURE if has_error else SUCCESS, {"stacks": rows, "unused": unused, "removed": []}, show)


def digests(stacks: dict[str, StackConfig]) -> list[str]:
    """The digests of the existing environments of these stacks."""
    from tracking.machine.stacks import uv_environment

    environments = (uv_environment.find(stack) for stack in stacks.values() if stack.kind == "uv")
    return [environment.digest for environment in environments if environment]


def remove_environments(digests: list[str]) -> Answer:
    """Remove the environments with these digests. One that a run uses is left, and the exit code is 1."""
    from conf.schema import ConfigError
    from tracking.machine.stacks import uv_environment

    removed = []
    for digest in digests:
        try:
            uv_environment.remove(digest)
        except ConfigError as error:
            print(error, file=sys.stderr)
            continue
        removed.append(digest)
        print(f"removed {uv_environment.root() / digest}")
    code = SUCCESS if removed == digests else FAILURE
    return Answer(code, {"stacks": [], "unused": [], "removed": removed}, lambda: print(f"{len(removed)} removed"))


def json_row(stack: StackConfig, verdict: Any) -> dict[str, Any]:
    from tracking.machine.stacks import container_images, uv_environment

    facts = {"stack": stack.name, "kind": stack.kind, "needs": verdict.needs, "found": verdict.facts}
    if stack.kind == "container" and not verdict.error:
        image = container_images.find(stack)
        image_facts = {"made": image is not None, "size_bytes": image.size_bytes if image else None}
        return {**facts, "error": "", **image_facts, "folder": str(container_images.store(stack))}
    environment = uv_environment.find(stack) if stack.kind == "uv" else None
    size = environment.size_bytes if environment else None
    folder = str(environment.python.parents[2]) if environment else None
    return {**facts, "error": verdict.error, "made": environment is not None, "size_bytes": size, "folder": folder}


STACKS = Command(
    "stacks",
    "list the software stacks, make their environments or fetch their images, and remove environments",
    add_arguments,
    run,
)
