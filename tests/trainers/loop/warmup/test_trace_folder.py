"""Traces are kept where this user alone writes, and are made anew after a failure."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from conf.schema import ConfigError
from tests.support.studied import config
from tracking.machine.compiled import contents
from trainers.loop.warmup import (
    compile_times,
    forgotten_on_failure,
    keep_traces,
    kept_flops,
    kept_sources,
    kept_traces,
    trace_folder,
)
from trainers.loop.warmup.trace_folder import VARIABLE, TraceFolder
from trainers.ops import compiling


def test_what_is_written_is_read_and_exported(tmp_path: Path) -> None:
    folder = TraceFolder(tmp_path / "traces")
    assert folder.read("f0") is None
    folder.write("f0", b"content")
    assert folder.read("f0") == b"content"
    [file] = (tmp_path / "traces").iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    assert contents.is_carried(Path("timetrial/traces") / file.name)


def test_a_trace_that_others_may_have_written_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(trace_folder, "check_way", lambda path: True)  # as if others could enter pytest's folder
    folder = TraceFolder(tmp_path / "traces")
    folder.write("f0", b"content")
    assert folder.read("f0")
    (tmp_path / "traces/f0.trace").chmod(0o666)
    assert folder.read("f0") is None
    assert "not used, since" in caplog.text


def test_kept_traces_count_as_cached_graphs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiling, "keeper", None)
    monkeypatch.delenv(VARIABLE, raising=False)
    asked: Any = SimpleNamespace(sharded=lambda: False, precision=SimpleNamespace(name="bf16"))
    keep_traces(asked)
    if compiling.keeper is None:
        pytest.skip("this PyTorch cannot keep traces")
    assert compile_times.num_cached_graphs() == 0
    kept: Any = compiling.keeper(keep_traces, {})
    kept._store.write("f0", b"content")
    assert compile_times.num_cached_graphs() == 1


@pytest.mark.parametrize(
    ("variable", "sharded", "precision", "kept"),
    [
        (None, False, "bf16", True),
        ("0", False, "bf16", False),
        (None, True, "bf16", False),
        (None, False, "fp8", False),
    ],
)
def test_traces_are_kept_of_what_a_gpu_has_shown(
    variable: str | None, sharded: bool, precision: str, kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiling, "keeper", None)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    if variable is not None:
        monkeypatch.setenv(VARIABLE, variable)
    asked: Any = SimpleNamespace(sharded=lambda: sharded, precision=SimpleNamespace(name=precision))
    keep_traces(asked)
    assert (compiling.keeper is not None) == (kept and find_spec("torch._dynamo.aot_compile") is not None)


@pytest.mark.parametrize(
    ("error", "forgotten"), [(RuntimeError, True), (ConfigError, False), (torch.OutOfMemoryError, False)]
)
def test_what_was_loaded_is_made_anew_after_a_failure(
    error: type[Exception],
    forgotten: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    folder = TraceFolder(tmp_path)
    folder.write("f0", b"content")
    monkeypatch.setattr(kept_traces, "LOADED", [(folder, "f0")])
    with pytest.raises(error), forgotten_on_failure():
        raise error("x")
    assert folder.read("f0") == (None if forgotten else b"content")
    assert ("The 1 loaded traces were deleted" in caplog.text) == forgotten


class Counted(nn.Module):
    """A module that counts how often its FLOPs were counted, and states none."""

    stated: float | None = None

    def flops_per_sample(self) -> float | None:
        return self.stated


def test_flops_of_a_step_are_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.delenv(VARIABLE, raising=False)
    if not trace_folder.are_kept():
        pytest.skip("this PyTorch cannot keep traces")
    counted: list[float] = []

    def count(trainer: Any, module: Any, batch: Any) -> float:
        counted.append(1e9 + len(counted))
        return counted[-1]

    monkeypatch.setattr(trace_folder, "flops_per_sample", count)
    module: Any = Counted()

    def flops(width: int = 4, **changes: Any) -> float:
        asked = config(**changes)
        asked.model.workload = changes.get("workload", asked.model.workload)
        return kept_flops(asked, cast(Any, None), module, {"images": torch.zeros(8, width), "num_samples": 8})

    assert [flops(), flops(seed=2), flops(batch_size=8)] == [1e9, 1e9, 1e9]
    assert flops(width=5) == 1e9 + 1
    module.add_module("head", nn.Linear(2, 3))
    assert flops() == 1e9 + 2
    assert [flops(workload="mine:WORKLOAD"), flops(workload="mine:WORKLOAD")] == [1e9 + 3, 1e9 + 4]
    assert flops(strategy="fsdp") == 1e9 + 5
    with monkeypatch.context() as edited:
        edited.setattr(kept_sources, "_digest", lambda module: "edited")
        assert flops() == 1e9 + 6
    files = list((tmp_path / "timetrial").glob("*.flops"))
    assert len(files) == 3
    for path in files:
        assert contents.is_carried(path.relative_to(tmp_path))
        path.write_bytes(path.read_bytes() + b"damaged")
    assert flops() == 1e9 + 7
    module.stated = 5.0
    assert flops() == 5.0
    module.stated = None
    monkeypatch.setenv(VARIABLE, "0")
    assert flops() == 1e9 + 8
