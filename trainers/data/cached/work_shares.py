"""Work in several processes, a share for each. What they make must not depend on how many there are.

They are new processes, because this one may be a fork, or have a CUDA context, which must not be forked. Threads would
wait for each other at the interpreter's lock, for memory and in BLAS.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from tracking.base import installation

CANNOT_WRITE = 3  # exit code
Item = TypeVar("Item")


def num_shares(amount: int, worth_a_process: int) -> int:
    """How many processes an amount of work is worth, of this process's cores at most."""
    return min(len(os.sched_getaffinity(0)), -(-amount // worth_a_process))


def in_shares(module: str, arguments: Sequence[str], num: int, lock: int | None = None) -> list[bytes]:
    """What `python -m module *arguments --share k/num` prints, for each k of 0 to num - 1; all run at once.

    They keep the descriptor `lock`, so that it stays locked until the last of them has ended, even if this process is
    killed. Raises OSError where one ended with CANNOT_WRITE, with its words, and RuntimeError where one failed.
    """
    command = [sys.executable, "-P", "-m", module, *arguments]
    paths = [str(installation.SEARCH_FOLDER), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for number in range(num):
            process = subprocess.Popen(
                [*command, "--share", f"{number}/{num}"], env=environment, stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE, stderr=subprocess.PIPE, pass_fds=[] if lock is None else [lock],
            )  # fmt: skip
            processes.append(process)
        return [_printed(process) for process in processes]
    finally:
        for process in processes:
            process.kill()  # nothing where it has ended
            if process.stderr and not process.stderr.closed:
                process.communicate()


def _printed(process: subprocess.Popen[bytes]) -> bytes:
    output, errors = process.communicate()
    words = errors.decode(errors="replace").strip()
    if process.returncode == CANNOT_WRITE:
        raise OSError(words)
    if process.returncode:
        raise RuntimeError(f"a process that makes a share ended with {process.returncode}: {words}")
    return output


def share_parser(description: str) -> argparse.ArgumentParser:
    """A parser of `--share k/num`, as two numbers, for the module that `in_shares` runs."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--share", type=lambda text: tuple(map(int, text.split("/"))), default=(0, 1))
    return parser


def while_wanted(items: Iterable[Item]) -> Iterator[Item]:
    """The items, as long as the process lives that started this one; then this one exits."""
    parent = os.getppid()
    for item in items:
        if os.getppid() != parent:
            sys.exit("the process that wanted this share has ended")
        yield item
