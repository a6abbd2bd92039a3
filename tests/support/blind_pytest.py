"""pytest where packages are missing: python -m tests.support.blind_pytest PACKAGE,PACKAGE ARGUMENT..."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

import pytest

HIDDEN = set(sys.argv[1].split(","))


class BlindFinder(PathFinder):
    """Python's finder, which finds all but the hidden packages."""

    @classmethod
    def find_spec(
        cls, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        return None if fullname.partition(".")[0] in HIDDEN else super().find_spec(fullname, path, target)


if __name__ == "__main__":
    sys.meta_path[:] = [BlindFinder if finder is PathFinder else finder for finder in sys.meta_path]
    sys.exit(pytest.main(sys.argv[2:]))
