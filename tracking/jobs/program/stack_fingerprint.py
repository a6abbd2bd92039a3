"""Takes the fingerprint of a program's Python, in a process that runs on it; if asked, with its PyTorch's versions.

So the worker stays small, and nothing of ours computes on the machine when the program starts. PyTorch is imported only
if kept_versions has no valid record of it.
"""

from __future__ import annotations

import importlib
import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from tracking.jobs.program import kept_versions
from tracking.machine.environment import Collector, libraries

# The packages that hold a framework, by the fingerprint's key.
FRAMEWORKS = {"jax": ("jax",), "tensorflow": ("tensorflow", "tensorflow-cpu", "tf-nightly")}


def main(num_gpus: int, folder: str, tells_torch: bool) -> None:
    """Print the fingerprint; `folder` is the program's working directory, whose repository gives the commit."""
    collector = Collector(repository=Path(folder))
    torch: Any = None
    of_torch = kept_versions.torch_folder() if tells_torch else None
    kept = kept_versions.read(of_torch) if of_torch else {}
    if of_torch and not kept:
        with suppress(Exception):  # This PyTorch may be broken.
            torch = importlib.import_module("torch")
    facts = collector.finish(torch, range(num_gpus))
    if torch is not None and of_torch:
        kept_versions.write(of_torch, facts["software"])
    facts["software"] |= kept
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
