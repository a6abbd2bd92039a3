"""Compiled code, exported on one machine and imported on another, which then compiles nothing. Each is a folder."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.commands import ROOT, Launched, events, launch
from tracking.__main__ import main
from tracking.machine.environment import fingerprint
from tracking.record import documents, run_folder

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("g++") is None, reason="PyTorch compiles with g++")]

RUN = ("compile=true", "max_epochs=1", "limit_train_batches=2", "tracking.offline=true")
ON_CPU = ("--config-dir", str(ROOT / "tests/workloads/conf"), "model=compiling", "gpus=0")
# It has Triton kernels of our own, which compute in 16 bits only (trainers/models/ncf/module.py).
ON_GPU = ("model=ncf", "dataset=synthetic", "gpus=1", "precision=bf16")
NEEDS_GPU = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]


class Machine:
    """A folder with the compilers' folders in it, and runs."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        folder.mkdir()
        self._folder, self._monkeypatch, self._capsys = folder, monkeypatch, capsys
        self._variables = {
            "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TRITON_CACHE_DIR": str(folder / "triton"),
        }  # fmt: skip

    def run(self, *words: str) -> Launched:
        done = launch(self._folder, *words, *RUN, **self._variables)
        assert done.code == 0, done.output
        return done

    def cache(self, *words: str) -> tuple[int, dict[str, Any], str]:
        """Exit code, document and words of `tracking cache`."""
        for name, value in self._variables.items():
            self._monkeypatch.setenv(name, value)
        self._capsys.readouterr()
        code = main(["cache", *words, "--json"])
        output, errors = self._capsys.readouterr()
        return code, json.loads(output) if output else {}, errors

    def files(self, *compilers: str) -> set[str]:
        """What the compilers hold, but for their locks."""
        places = [
            path.relative_to(self._folder)
            for name in compilers or ("inductor", "triton")
            for path in self._folder.glob(f"{name}/**/*")
        ]
        return {str(path) for path in places if (self._folder / path).is_file() and "locks" not in path.parts}


def compiled(run: Launched) -> dict[str, Any]:
    (event,) = events(run.folder, "compiled")
    return event.values


@pytest.fixture
def machines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> list[Machine]:
    return [Machine(tmp_path / name, monkeypatch, capsys) for name in ("first", "second")]


@pytest.mark.parametrize("words", [ON_CPU, pytest.param(ON_GPU, marks=NEEDS_GPU)], ids=["cpu", "gpu"])
def test_after_an_import_into_empty_folders_nothing_is_compiled(
    machines: list[Machine], tmp_path: Path, words: tuple[str, ...]
) -> None:
    first, second = machines
    code, _, errors = first.cache("--export", str(tmp_path / "early"))
    assert (code, "refused: no compiled code found" in errors) == (2, True)
    cold = first.run(*words)
    assert compiled(cold)["num_compiled"] > 0
    metrics = cold.result["metrics"]
    parts = {key: sec for key, sec in metrics.items() if key.startswith("time/compile_") and key != "time/compile_sec"}
    assert sum(parts.values()) == pytest.approx(metrics["time/compile_sec"])
    # A function that keeps its trace is traced within "backend".
    assert all(parts[f"time/compile_{part}_sec"] > 0 for part in ("backend", "warmup"))
    assert cold.result["start"]["num_compiled"] == compiled(cold)["num_compiled"]

    code, exported, _ = first.cache("--export", str(tmp_path / "file"))
    facts = documents.read_json(cold.folder / run_folder.FINGERPRINT)
    assert code == 0
    assert exported["identity"]["env.stack_id"] == fingerprint.tags(facts)["env.stack_id"]
    assert exported["num_files"] == len(first.files()) > 0
    code, imported, _ = second.cache("--import", str(tmp_path / "file"))
    assert (code, imported["num_new"]) == (0, exported["num_files"])
    assert second.files() == first.files()

    if words == ON_GPU:
        assert any("_there_and_back" in file for file in first.files("triton")), "a kernel of our own"
    warm = second.run(*words)
    assert compiled(warm)["num_compiled"] == 0 < compiled(warm)["num_cached"]
    (before,) = events(warm.folder, "compiling")
    assert before.values["num_cached"] > 0
    compilers = ("triton",) if words == ON_GPU else ("triton", "inductor")
    assert second.files(*compilers) == first.files(*compilers)


def test_what_cannot_be_imported_is_refused_in_a_sentence(machines: list[Machine], tmp_path: Path) -> None:
    _, second = machines
    (tmp_path / "torn").write_bytes(b"\x1f\x8b")
    for name, words in {"missing": "no such file", "torn": "is damaged"}.items():
        code, _, errors = second.cache("--import", str(tmp_path / name))
        assert code == 2
        assert errors.startswith("refused: ")
        assert words in errors
        assert str(tmp_path / name) in errors
    assert not second.files()
