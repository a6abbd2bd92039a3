"""The cores that a process may use and the NUMA nodes of its memory, which a new process inherits.

A fork inherits those of its server, and takes those of its supervisor in their place.
"""

from __future__ import annotations

import ctypes
import os
import platform
from dataclasses import dataclass

# get_mempolicy and set_mempolicy; the numbers are from the kernel's tables of system calls.
SYSTEM_CALLS = {"x86_64": (239, 238), "aarch64": (236, 237)}
WORDS, BITS = 16, 64  # a mask has a bit for each of the 1,024 NUMA nodes that Linux can have


@dataclass(frozen=True)
class Inheritance:
    """`memory`: the mode and the words of the mask of set_mempolicy(2); None where the kernel does not tell them."""

    cores: list[int]
    memory: tuple[int, list[int]] | None

    @classmethod
    def own(cls) -> Inheritance:
        """What a process that is started here inherits."""
        return cls(sorted(os.sched_getaffinity(0)), memory_policy())

    def take(self) -> None:
        """Make it this process's. Raises OSError where the cores are not there."""
        os.sched_setaffinity(0, self.cores)
        if self.memory and self.memory != memory_policy():
            set_memory_policy(*self.memory)


def memory_policy() -> tuple[int, list[int]] | None:
    """The mode and the mask of this process's memory; None where the kernel does not tell them, as in containers."""
    mode, mask = ctypes.c_int(), (ctypes.c_ulong * WORDS)()
    numbers = SYSTEM_CALLS.get(platform.machine())
    most = ctypes.c_ulong(WORDS * BITS + 1)  # The kernel takes one off.
    libc = ctypes.CDLL(None, use_errno=True)
    if numbers is None or libc.syscall(numbers[0], ctypes.byref(mode), mask, most, None, ctypes.c_ulong(0)) != 0:
        return None
    return mode.value, list(mask)


def set_memory_policy(mode: int, mask: list[int]) -> str:
    """Set it; says what the kernel has against it."""
    numbers = SYSTEM_CALLS.get(platform.machine())
    words = (ctypes.c_ulong * WORDS)(*mask)
    libc = ctypes.CDLL(None, use_errno=True)
    if numbers is None or libc.syscall(numbers[1], mode, words, ctypes.c_ulong(WORDS * BITS + 1)) != 0:
        return os.strerror(ctypes.get_errno() or 38)
    return ""
