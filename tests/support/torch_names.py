"""Which names and keywords of PyTorch's and Lightning's the worker's code uses, and this Python lacks: a line each.

Run by the Python of a stack: python tests/support/torch_names.py. It imports none of our code and computes nothing.
"""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("trainers", "tracking/measure/training", "tracking/machine/environment")
PACKAGES = ("torch", "pytorch_lightning", "triton")


def member(module: ModuleType, name: str) -> Any:
    return getattr(module, name) if hasattr(module, name) else importlib.import_module(f"{module.__name__}.{name}")


def imported(tree: ast.Module) -> dict[str, Any]:
    """What the file's imports of these packages give; raises what they raise."""
    known: dict[str, Any] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if (top := alias.name.partition(".")[0]) in PACKAGES:
                    module = importlib.import_module(alias.name)
                    known[alias.asname or top] = module if alias.asname else importlib.import_module(top)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in PACKAGES:
            module = importlib.import_module(node.module or "")
            known |= {alias.asname or alias.name: member(module, alias.name) for alias in node.names}
    return known


def value(node: ast.expr, known: dict[str, Any]) -> Any:
    """Raises KeyError for what does not begin with a known name, AttributeError for what is not there."""
    if isinstance(node, ast.Attribute):
        if ast.unparse(node).startswith("torch.ops."):
            raise KeyError("libraries put it there when they are loaded")
        return getattr(value(node.value, known), node.attr)
    return known[node.id if isinstance(node, ast.Name) else ""]


def lacking(path: Path) -> Iterator[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    try:
        known = imported(tree)
    except (ImportError, AttributeError) as error:
        yield f"{path.relative_to(ROOT)}: {error}"
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Call):
            named = node.func if isinstance(node, ast.Call) else node
            try:
                thing = value(named, known)
            except KeyError:
                continue
            except AttributeError as error:
                yield f"{path.relative_to(ROOT)}: {ast.unparse(named)}: {error}"
                continue
            for keyword in unknown_keywords(thing, node) if isinstance(node, ast.Call) else ():
                yield f"{path.relative_to(ROOT)}: {ast.unparse(named)}({keyword}=)"


def unknown_keywords(function: Any, call: ast.Call) -> set[str]:
    with suppress(TypeError, ValueError):  # it does not tell what it takes
        taken = inspect.signature(function).parameters.values()
        if not any(each.kind is each.VAR_KEYWORD for each in taken):
            return {each.arg for each in call.keywords if each.arg} - {each.name for each in taken}
    return set()


if __name__ == "__main__":
    for folder in FOLDERS:
        for file in sorted((ROOT / folder).rglob("*.py")):
            for words in dict.fromkeys(lacking(file)):
                print(words)
