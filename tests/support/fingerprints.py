"""Fingerprints of machines whose commands answer what files in tests/fixtures hold."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tracking.machine.environment import host
from tracking.machine.environment.fingerprint import Collector

FIXTURES = Path(__file__).parent.parent / "fixtures"


def torch_module(**changes: Any) -> SimpleNamespace:
    """A stand-in for torch with CUDA 13.0, cuDNN 9.10.2 and NCCL 2.28.3."""
    module = SimpleNamespace(
        __version__="2.11.0+cu130",
        version=SimpleNamespace(cuda="13.0"),
        cuda=SimpleNamespace(nccl=SimpleNamespace(version=lambda: (2, 28, 3)), is_initialized=lambda: False),
    )
    vars(module).update(changes)
    return module


def fingerprint(
    fixture: str, gpu_indices: Sequence[int | str] | None = None, torch: Any = None, **environ: str
) -> dict[str, Any]:
    """The fingerprint where the commands answer what the fixture's files hold, and the others are missing."""

    def start(command: Sequence[str], folder: Path | None) -> host.Output:
        files = sorted((FIXTURES / fixture).glob("_".join(command) + ".*"))
        return lambda: files[0].read_text() if files else None

    with pytest.MonkeyPatch.context() as patch:
        # Not of the real torch, where another test has imported it.
        patch.setattr(host, "library_version", lambda name, _: "9.10.2" if "cudnn" in name else None)
        facts = Collector(environ, start).finish(torch, gpu_indices)
    assert json.loads(json.dumps(facts, allow_nan=False)) == facts
    return facts
