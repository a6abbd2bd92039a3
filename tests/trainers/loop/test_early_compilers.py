"""What compiles is started before the data only where this process will compile anew, on a GPU with enough cores."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainers.loop import early_compilers
from trainers.loop.warmup import compile_first, parallel
from trainers.ops import compiling
from trainers.workload import Shard

CONFIG = {"compiles": True, "workload": "trainers.models.ncf:WORKLOAD"}


class Journal:
    """Keeps the keys of events."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def event(self, key: str) -> None:
        self.keys.append(key)


@pytest.mark.parametrize(
    ("changed", "rank", "size", "compiler", "helpers"),
    [
        ({}, 0, 1, True, [3]),
        ({"compiles": False}, 0, 1, False, []),
        ({"device": "cpu"}, 0, 1, False, []),
        ({"cores": 4}, 0, 1, False, []),
        ({"was_compiled": True}, 0, 1, False, []),
        ({"workload": "users.net:WORKLOAD"}, 0, 1, True, []),
        ({"keeps": False}, 0, 1, True, []),
        ({}, 0, 2, True, []),
        ({}, 1, 2, False, []),
    ],
)
def test_only_a_process_that_will_compile_anew_starts_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, changed: dict[str, Any], rank: int, size: int, compiler: bool,
    helpers: list[int],
) -> None:  # fmt: skip
    facts = {**CONFIG, "device": "cuda", "cores": 16, "was_compiled": False, "keeps": True} | changed
    config: Any = SimpleNamespace(
        compiled=lambda: facts["compiles"],
        processes_per_node=lambda: size,
        model=SimpleNamespace(workload=facts["workload"]),
    )
    made: list[int] = []
    began: list[bool] = []
    keeper = (lambda function, options: function) if facts["keeps"] else None
    monkeypatch.setattr(compiling, "keeper", None)
    monkeypatch.setattr(early_compilers, "keep_traces", lambda config: setattr(compiling, "keeper", keeper))
    monkeypatch.setattr(compile_first, "was_compiled", lambda config, device: facts["was_compiled"])
    monkeypatch.setattr(parallel, "num_cores", lambda: facts["cores"])
    monkeypatch.setattr(parallel, "Helpers", lambda run_dir, number: made.append(number))
    monkeypatch.setattr(early_compilers, "start_compiler", lambda: began.append(True))
    started = early_compilers.EarlyCompilers(config, tmp_path, Shard(rank, size, torch.device(facts["device"])))
    log: Any = Journal()
    started.join(log)
    assert (began, made) == ([True] if compiler else [], helpers)
    assert log.keys == (["import_start", "import_stop"] if compiler else [])
