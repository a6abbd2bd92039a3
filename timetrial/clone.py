"""In a clone, makes `conf`, `tracking` and `trainers` importable as `timetrial.conf` and so on, too.

Both names give the same module, and so the same classes. Code with the longer name works in a clone and with an
installed timetrial.
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
    """Imports `timetrial.X` as X, for our packages and their modules."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        above, _, name = fullname.partition(".")
        if above != "timetrial" or name.partition(".")[0] not in PACKAGES:
            return None
        return ModuleSpec(fullname, self)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(spec.name.partition(".")[2])
        spec.loader_state = module.__spec__  # The import system replaces it before `exec_module`.
        return module

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__spec__ = module.__spec__.loader_state


def lead_to_its_packages() -> None:
    """Put the finder first: else Python would find a package's modules in its folder, and load them a second time."""
    if not any(isinstance(finder, SecondName) for finder in sys.meta_path):
        sys.meta_path.insert(0, SecondName())
