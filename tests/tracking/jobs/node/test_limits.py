"""The times after which a run is stopped: counted on the training's clock, and not once the target is reached."""

from __future__ import annotations

import dataclasses
import time
from pathlib import Path

import pytest

from conf.dataset_options import DatasetConfig
from conf.launch_options import SearchConfig
from conf.schema import ModelConfig, OptimizerConfig, RunConfig
from tracking.jobs.node.worker_process import Limits, TimedOut
from tracking.record import Journal

MODEL = ModelConfig("m", "m:M", 1, {"accuracy": [0, 1, "higher"]}, {"d": {"accuracy": 0.9}}, OptimizerConfig(0.1))
CAPPED = RunConfig(model=MODEL, dataset=DatasetConfig("d"), search=SearchConfig("quickest", cap_sec=10.0))


@pytest.fixture
def log(tmp_path: Path) -> Journal:
    return Journal(tmp_path / "journal.jsonl")


def limits(tmp_path: Path, config: RunConfig = CAPPED) -> Limits:
    return Limits(config, tmp_path / "journal.jsonl")


def wait(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    later = time.monotonic() + seconds
    monkeypatch.setattr(time, "monotonic", lambda: later)


def test_a_run_is_stopped_so_long_after_its_clock_began(
    tmp_path: Path, log: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    capped = limits(tmp_path)
    wait(monkeypatch, 100)
    capped.check()  # Its clock has not begun: it compiles.
    log.event("run_start")
    wait(monkeypatch, 9)
    capped.check()
    wait(monkeypatch, 11)
    with pytest.raises(TimedOut, match="stopped it 10 s after its clock began") as stopped:
        capped.check()
    assert stopped.value.kind == "search"


@pytest.mark.parametrize(("key", "value"), [("run_stop", None), ("eval_accuracy", 0.95)])
def test_a_run_that_has_its_time_is_let_end(
    tmp_path: Path, log: Journal, monkeypatch: pytest.MonkeyPatch, key: str, value: float | None
) -> None:
    capped = limits(tmp_path)
    log.event("run_start")
    log.event(key, value, **({"metrics": {"accuracy": value}} if value else {}))
    wait(monkeypatch, 11)
    capped.check()
    wait(monkeypatch, 1000)
    capped.check()


def test_an_evaluation_below_the_target_lets_it_not(
    tmp_path: Path, log: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    capped = limits(tmp_path)
    log.event("run_start")
    log.event("eval_accuracy", 0.5, metrics={"accuracy": 0.5})
    wait(monkeypatch, 11)
    with pytest.raises(TimedOut):
        capped.check()


def test_an_earlier_attempts_clock_is_none_of_this_ones(
    tmp_path: Path, log: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.event("run_start")
    capped = limits(tmp_path)
    wait(monkeypatch, 100)
    capped.check()


def test_the_users_limit_counts_from_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limited = limits(tmp_path, dataclasses.replace(CAPPED, timeout_sec=5.0))
    wait(monkeypatch, 6)
    with pytest.raises(TimedOut, match="timeout_sec=5") as stopped:
        limited.check()
    assert stopped.value.kind == "timeout"
