"""Splits work over several processes, a share for each. The result must not depend on the number of processes.

The processes are started anew, because this one may be a fork or have a CUDA context, which must not be forked. Threads
would wait for each other at the GIL, in memory allocation and in BLAS.
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
    """Return how many processes an amount of work is worth, up to the number of this process's cores."""
    return min(len(os.sched_getaffinity(0)), -(-amount // worth_a_process))


def in_shares(module: str, arguments: Sequence[str], num: int, lock: int | None = None) -> list[bytes]:
    """Run `python -m module *arguments --share k/num` for each k from 0 to num - 1 at once; return what they print.

    The processes inherit the descriptor `lock`, so it stays locked until the last of them has ended, even if this
    process is killed. Raises OSError with the error text of a process that exited with CANNOT_WRITE, and RuntimeError
    for one that failed otherwise.
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
            process.kill()  # no effect on an ended process
            if process.stderr and not process.stderr.closed:
                process.communicate()


def _printed(process: subprocess.Popen[bytes]) -> bytes:
    output, errors = process.communicate()
    words = errors.decode(errors="replace").strip()
    if process.returncode == CANNOT_WRITE:
        raise OSError(words)
    if process.returncode:
        raise RuntimeError(f"a process for a share of the work ended with exit code {process.returncode}: {words}")
    return output


def share_parser(description: str) -> argparse.ArgumentParser:
    """Return a parser of `--share k/num`, as two numbers, for the module that `in_shares` runs."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--share", type=lambda text: tuple(map(int, text.split("/"))), default=(0, 1))
    return parser


def while_parent_lives(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items while the parent process lives; exit once it has ended."""
    parent = os.getppid()
    for item in items:
        if os.getppid() != parent:
            sys.exit("the process that started this share has ended")
        yield item
