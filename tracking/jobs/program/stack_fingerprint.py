"""Takes the fingerprint of a program's Python, in a process that runs on it and, if asked, imports its PyTorch.

So the worker stays small, and nothing of ours computes on the machine when the program starts.
"""

from __future__ import annotations

import importlib
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from tracking.machine.environment import Collector, libraries

# The packages that hold a framework, by the fingerprint's key.
FRAMEWORKS = {"jax": ("jax",), "tensorflow": ("tensorflow", "tensorflow-cpu", "tf-nightly")}


def main(num_gpus: int, folder: str, imports_torch: bool) -> None:
    """Print the fingerprint; `folder` is the program's working directory, whose repository gives the commit."""
    collector = Collector(repository=Path(folder))
    torch: Any = None
    if imports_torch:
        with suppress(Exception):  # A stack may have no PyTorch, or one that cannot be loaded.
            torch = importlib.import_module("torch")
    facts = collector.finish(torch, range(num_gpus))
    packages = facts["software"]["packages"]
    for key, names in FRAMEWORKS.items():
        if version := next((packages[name] for name in names if name in packages), None):
            facts["software"][key] = version
    # PyTorch was imported for its versions only; the listener sees which framework the program imports.
    facts["software"].pop("framework", None)
    if framework := libraries.installed_framework(packages):
        facts["software"]["framework"] = framework
    print("\n" + json.dumps(facts))  # on a line of its own: an import may have printed something


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3] == "torch")
