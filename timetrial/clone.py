"""In a clone, `timetrial.trainers` and its like are the packages beside this one, under a second name.

Both names give the same module, and so the same classes. What a user writes with the longer one works in a clone as
well as where timetrial is installed.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

PACKAGES = ("conf", "tracking", "trainers")


class SecondName(MetaPathFinder, Loader):
    """Finds `timetrial.X` as X, for our packages and all in them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        above, _, name = fullname.partition(".")
        if above != "timetrial" or name.partition(".")[0] not in PACKAGES:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(spec.name.partition(".")[2])
        spec.loader_state = module.__spec__  # The import system is about to replace it.
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def lead_to_its_packages() -> None:
    """Have Python ask here first: else it would find a package's modules in its folder, and load them once more."""
    if not any(isinstance(finder, SecondName) for finder in sys.meta_path):
        sys.meta_path.insert(0, SecondName())
