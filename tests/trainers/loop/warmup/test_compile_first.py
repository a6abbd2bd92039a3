"""Where nothing is compiled, one process of a node compiles and the others wait; where it is, nobody waits."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from conf.schema import RunConfig
from tests.support.studied import config as studied
from trainers.loop.warmup import compile_first
from trainers.loop.warmup.compile_first import compile_in_turn, note_compiled, was_compiled
from trainers.workload import Shard

CPU = torch.device("cpu")
COMPILING_SEC, LONG_SEC = 1.0, 60.0


def asked(**changes: object) -> RunConfig:
    config = studied(gpus=0, cpu_processes=2, **{key: value for key, value in changes.items() if key != "workload"})
    config.model.workload = str(changes.get("workload", config.model.workload))
    return config


def child_that_stays() -> int:
    """A process that has open what its parent has, as the compiler's own have."""
    pid = os.fork()
    if not pid:
        time.sleep(10 * COMPILING_SEC)
        os._exit(0)
    return pid


def one_process(rank: int, folder: Path, wait_sec: float, leader: str) -> None:
    """Takes its turn, and leaves a file of when it was done."""
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder / "inductor")
    compile_first.LONGEST_WAIT_SEC = wait_sec
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)

    def compile_alone() -> None:
        assert rank == 0
        time.sleep(COMPILING_SEC if leader != "slow" else 10 * COMPILING_SEC)
        if leader == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if leader == "forks":
            child_that_stays()
        (folder / "compiled").touch()

    workload = {"workload": "mine:WORKLOAD"} if leader == "a user's" else {}
    compile_in_turn(asked(**workload), folder, Shard(rank, 2, CPU), compile_alone, True)
    if rank:
        (folder / "went on").write_text("after" if (folder / "compiled").exists() else "without")
    os._exit(0)  # A peer may be gone.


@pytest.mark.slow
@pytest.mark.parametrize(
    ("leader", "wait_sec", "known", "went_on"),
    [
        ("compiles", LONG_SEC, False, "after"),
        ("compiles", LONG_SEC, True, "without"),
        ("killed", LONG_SEC, False, "without"),
        ("slow", 0.1, False, "without"),
        ("forks", LONG_SEC, False, "after"),
        ("a user's", LONG_SEC, False, "without"),  # Its step may be a collective call.
    ],
)
def test_the_others_wait_for_who_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leader: str, wait_sec: float, known: bool, went_on: str
) -> None:
    (tmp_path / "config.yaml").touch()
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "inductor"))
    if known:
        note_compiled(asked(), CPU)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed", __name__])
    ranks = [context.Process(target=one_process, args=(rank, tmp_path, wait_sec, leader)) for rank in range(2)]
    for process in ranks:
        process.start()
    ranks[1].join(5 * COMPILING_SEC if leader == "forks" else LONG_SEC)
    assert (tmp_path / "went on").read_text() == went_on
    ranks[0].kill() if leader == "slow" else ranks[0].join(LONG_SEC)
    assert (tmp_path / "compiled").exists() is (leader in ("compiles", "forks") and not known)


def test_what_a_graph_depends_on_is_asked_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    assert not was_compiled(asked(), CPU)
    note_compiled(asked(), CPU)
    other_rate = asked(seed=2)
    other_rate.model.optimizer.lr = 0.5
    assert was_compiled(other_rate, CPU)
    assert not was_compiled(asked(batch_size=8), CPU)
    assert not was_compiled(asked(precision="bf16"), CPU)
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", "/proc/nowhere")
    note_compiled(asked(), CPU)
    assert not was_compiled(asked(), CPU)


@pytest.mark.parametrize(("has_helpers", "known", "compiles"), [(True, False, 1), (True, True, 0), (False, False, 0)])
def test_a_single_process_compiles_first_where_it_has_helpers(
    has_helpers: bool, known: bool, compiles: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    if known:
        note_compiled(asked(), CPU)
    calls: list[int] = []
    compile_in_turn(asked(), tmp_path, Shard(0, 1, CPU), lambda: calls.append(1), has_helpers)
    assert len(calls) == compiles
