"""Training steps of two published scripts, assembled from the scripts' own statements.

Statements are executed unchanged. Those that log, evaluate, or repeat a setup are left out.
"""

from __future__ import annotations

import ast
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch

VOCABULARY = 50_257


def run(statements: list[ast.stmt], names: dict[str, Any], path: Path) -> None:
    exec(compile(ast.Module(statements, []), str(path), "exec"), names)


def plain_script(path: Path, tokens: int) -> tuple[Callable[[], None], dict[str, Any]]:
    """modded-nanogpt's step of `tokens` tokens, and the script's namespace."""
    script = ModuleType("plain_script")
    sys.modules[script.__name__] = script  # The compiler imports it by its name.
    names: dict[str, Any] = vars(script)
    names |= {"print0": lambda *_, **__: None, "step": 0}
    body = ast.parse(path.read_text(encoding="utf-8")).body
    defined = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef)
    run([part for part in body if isinstance(part, defined) and getattr(part, "name", "") != "print0"], names, path)
    trials = next(part for part in body if isinstance(part, ast.For))
    sizes = [part for part in body if assigned(part) in ("batch_size", "mbs", "model")]
    compiles = [part for part in body if ast.unparse(part).startswith("model.compile")]
    assert (len(sizes), len(compiles)) == (3, 1), f"{path}: expected train_gpt_simple.py of modded-nanogpt"
    run(sizes + compiles, names, path)
    names["batch_size"] = tokens
    *firsts, loop = trials.body
    run(firsts, names, path)
    assert isinstance(loop, ast.For)
    ends = [isinstance(part, ast.If) and isinstance(part.body[0], ast.Break) for part in loop.body]
    code = compile(ast.Module(loop.body[ends.index(True) + 1 :], []), str(path), "exec")

    def step() -> None:
        exec(code, names)
        names["step"] += 1

    return step, names


def assigned(part: ast.stmt) -> str:
    return ast.unparse(part.targets[0]) if isinstance(part, ast.Assign) else ""


def nanogpt(path: Path, folder: Path) -> tuple[Callable[[], None], int]:
    """nanoGPT's step, and its number of tokens. The script joins the process group itself."""
    shutil.copytree(path.resolve().parent, folder / "nanoGPT", ignore=shutil.ignore_patterns(".git"))
    data = folder / "nanoGPT/data/openwebtext"
    data.mkdir(parents=True, exist_ok=True)
    for name in ("train.bin", "val.bin"):
        np.random.default_rng(1).integers(0, VOCABULARY, 20_000_000, dtype=np.uint16).tofile(data / name)
    os.chdir(folder / "nanoGPT")
    sys.path.insert(0, str(folder / "nanoGPT"))
    sys.argv = [path.name]
    names: dict[str, Any] = {"__name__": "__main__", "__file__": path.name}
    body = ast.parse(path.read_text(encoding="utf-8")).body
    place = next(number for number, part in enumerate(body) if isinstance(part, ast.While))
    run(body[:place], names, path)
    loop = body[place]
    assert isinstance(loop, ast.While)
    first = next(number for number, part in enumerate(loop.body) if "backward" in ast.unparse(part))
    last = next(number for number, part in enumerate(loop.body) if "zero_grad" in ast.unparse(part))
    code = compile(ast.Module(loop.body[first : last + 1], []), str(path), "exec")
    return lambda: exec(code, names), int(names["tokens_per_iter"])


def plain_weights(model: Any) -> dict[str, torch.Tensor]:
    """The plain script's weights, under our names."""
    weights = {
        "embedding": model.embed.weight, "embedding_norm": model.norm1.gains, "last_norm": model.norm2.gains,
        "head": model.proj.weight, "head_bias": model.proj.bias,
    }  # fmt: skip
    for number, block in enumerate(model.blocks):
        projections = [block.attn.q, block.attn.k, block.attn.v]
        weights |= {
            f"layers.{number}.{name}": tensor
            for name, tensor in {
                "norm1": block.norm1.gains, "norm2": block.norm2.gains,
                "parts": torch.stack([part.weight for part in projections]),
                "parts_bias": torch.stack([part.bias for part in projections]),
                "out": block.attn.proj.weight, "out_bias": block.attn.proj.bias,
                "widen": block.mlp.fc.weight, "widen_bias": block.mlp.fc.bias,
                "narrow": block.mlp.proj.weight, "narrow_bias": block.mlp.proj.bias,
            }.items()
        }  # fmt: skip
    return {name: tensor.detach().float() for name, tensor in weights.items()}
