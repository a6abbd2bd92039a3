"""python -m deploy.native.confine FOLDER... -- COMMAND...: run a command that can write only in these folders.

It uses Landlock, which does not need root: the kernel refuses to create, change, move and delete files elsewhere, for
the command and all its descendants. docs.kernel.org/userspace-api/landlock.html; Linux 5.13 or later.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from pathlib import Path

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # numbers of the system calls on every architecture
PATH_BENEATH = 1
PR_SET_NO_NEW_PRIVS = 38
WRITE_FILE, TRUNCATE, REFER = 1 << 1, 1 << 14, 1 << 13
CHANGES = sum(1 << bit for bit in range(4, 13))  # remove and make files, folders, sockets, pipes, devices, links
DEVICES = ("/dev/null", "/dev/shm", "/dev/tty")


class _Ruleset(ctypes.Structure):
    _fields_ = [("handled_access_fs", ctypes.c_uint64)]


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed_access", ctypes.c_uint64), ("parent_fd", ctypes.c_int32)]


_libc = ctypes.CDLL(None, use_errno=True)


def version() -> int:
    """Landlock's version in this kernel; 0 without Landlock."""
    return max(0, int(_libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1)))


def write_only_in(folders: list[Path]) -> None:
    """Confine this process. Raises OSError if a folder is missing, or if the kernel has no Landlock."""
    landlock_version = version()
    rights = WRITE_FILE | CHANGES | (REFER if landlock_version >= 2 else 0) | (TRUNCATE if landlock_version >= 3 else 0)
    rules = _Ruleset(rights)
    ruleset = _checked(_libc.syscall(CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(ctypes.sizeof(rules)), 0))
    for path in [*folders, *(Path(name) for name in DEVICES if Path(name).exists())]:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        allowed = rights if stat.S_ISDIR(os.fstat(descriptor).st_mode) else rights & (WRITE_FILE | TRUNCATE)
        rule = _PathBeneath(allowed, descriptor)
        _checked(_libc.syscall(ADD_RULE, ruleset, PATH_BENEATH, ctypes.byref(rule), 0))
        os.close(descriptor)
    _checked(_libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    _checked(_libc.syscall(RESTRICT_SELF, ruleset, 0))
    os.close(ruleset)


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"Landlock: {os.strerror(number)}")
    return int(result)


def main(argv: list[str]) -> None:
    end = argv.index("--")
    if version():
        write_only_in([Path(word) for word in argv[:end]])
    else:
        print("this kernel has no Landlock: MLflow can write wherever its user can", file=sys.stderr, flush=True)
    os.execvp(argv[end + 1], argv[end + 1 :])


if __name__ == "__main__":
    main(sys.argv[1:])
