"""The cores that a process may use and the NUMA nodes of its memory, which a new process inherits.

A fork inherits them from its server, and then takes its supervisor's.
"""

from __future__ import annotations

import ctypes
import os
import platform
from dataclasses import dataclass

# get_mempolicy and set_mempolicy; the numbers are from the kernel's tables of system calls.
SYSTEM_CALLS = {"x86_64": (239, 238), "aarch64": (236, 237)}
WORDS, BITS = 16, 64  # a mask has 1,024 bits, one for each NUMA node that Linux supports


@dataclass(frozen=True)
class Inheritance:
    """Cores and NUMA memory policy of a process.

    `memory`: the mode and the mask's words of set_mempolicy(2); None if the kernel does not report them.
    """

    cores: list[int]
    memory: tuple[int, list[int]] | None

    @classmethod
    def own(cls) -> Inheritance:
        """What a child of this process inherits."""
        return cls(sorted(os.sched_getaffinity(0)), memory_policy())

    def take(self) -> None:
        """Apply it to this process. Raises OSError if the cores do not exist."""
        os.sched_setaffinity(0, self.cores)
        if self.memory and self.memory != memory_policy():
            set_memory_policy(*self.memory)


def memory_policy() -> tuple[int, list[int]] | None:
    """The mode and the mask of this process's memory; None if the kernel refuses, as in containers."""
    mode, mask = ctypes.c_int(), (ctypes.c_ulong * WORDS)()
    numbers = SYSTEM_CALLS.get(platform.machine())
    most = ctypes.c_ulong(WORDS * BITS + 1)  # The kernel subtracts one.
    libc = ctypes.CDLL(None, use_errno=True)
    if numbers is None or libc.syscall(numbers[0], ctypes.byref(mode), mask, most, None, ctypes.c_ulong(0)) != 0:
        return None
    return mode.value, list(mask)


def set_memory_policy(mode: int, mask: list[int]) -> str:
    """Set the policy; returns the kernel's error, or an empty text."""
    numbers = SYSTEM_CALLS.get(platform.machine())
    words = (ctypes.c_ulong * WORDS)(*mask)
    libc = ctypes.CDLL(None, use_errno=True)
    if numbers is None or libc.syscall(numbers[1], mode, words, ctypes.c_ulong(WORDS * BITS + 1)) != 0:
        return os.strerror(ctypes.get_errno() or 38)
    return ""
