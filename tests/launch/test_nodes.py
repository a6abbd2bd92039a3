"""One run on several machines, which are here several launch.py on one host."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

import psutil
import pytest
from mlflow import MlflowClient

from tests.support.commands import TINY, Launched, begin, collect, events, launch, processes_of
from tests.support.folders import wait_for
from tests.support.forked import Forked
from tests.support.in_process import answer
from tracking.record import checkpoints, journal, node_records, run_folder
from tracking.store.mirror.mirror import Mirror

pytestmark = pytest.mark.slow
SHORT = (*TINY, "gpus=0", "max_epochs=2", "log_every_n_steps=1", "tracking.system_metrics_interval_sec=0.3")
# Its steps rest: whoever waits for the run, or ends it, has the cores.
ENDLESS = (
    *TINY, "gpus=0", "max_epochs=100000", "target=1", "stop_at_target=false", "model.hparams.rest_sec=0.02",
    "tracking.offline=true", "tracking.system_metrics_interval_sec=0",
)  # fmt: skip


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def start_nodes(cwd: Path, *arguments: str) -> list[Forked | subprocess.Popen[str]]:
    # So long a busy machine may take to start two launchers.
    asked = (*arguments, "nodes=2", f"rendezvous=127.0.0.1:{free_port()}", "rendezvous_timeout_sec=600")
    return [begin(cwd, *asked, f"node_rank={rank}", TIMETRIAL_NODE_NAME=name) for rank, name in enumerate(["a", "b"])]


def wait_for_training(cwd: Path, first: Forked | subprocess.Popen[str]) -> None:
    """Wait until an epoch has begun, or the first node's launcher has ended without one."""

    def begun() -> bool:
        return any("epoch_start" in path.read_text() for path in cwd.glob("runs/*/journal.jsonl"))

    wait_for(lambda: begun() or first.poll() is not None)
    assert begun(), collect(first, cwd).output


def losses(launched: Launched) -> list[float]:
    records = (record for record, _ in journal.read(launched.folder / run_folder.JOURNAL))
    return [record.values["train/loss"] for record in records if "train/loss" in record.values]


def samples(launched: Launched) -> list[int]:
    return [window.values["samples"] for window in events(launched.folder, "throughput_window")]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    """Two nodes of two processes each; the second has to end well, too."""
    cwd = tmp_path_factory.mktemp("two")
    first, second = start_nodes(cwd, *SHORT, "cpu_processes=2")
    ended = collect(second, cwd)
    assert ended.code == 0, ended.output
    return collect(first, cwd)


def test_two_nodes_train_as_one_of_as_many_processes(two: Launched, tmp_path: Path) -> None:
    assert two.code == 0, two.output
    single = launch(tmp_path, *SHORT, "cpu_processes=4", "tracking.offline=true")
    assert single.code == 0, single.output
    assert losses(two)
    assert losses(two) == pytest.approx(losses(single), rel=1e-5)
    for key in ("world_size", "best/accuracy"):
        assert two.result["metrics"].get(key) == pytest.approx(single.result["metrics"].get(key)), key
    assert samples(two) == samples(single) != []


def test_every_row_of_every_node_is_in_one_run_of_mlflow(two: Launched) -> None:
    mirror = Mirror(two.folder)
    assert mirror.complete
    client = MlflowClient(f"sqlite:///{two.cwd / 'mlflow.db'}")
    assert mirror.run_id
    run = client.get_run(mirror.run_id)
    assert run.data.tags["env.nodes"] == "a,b"
    assert "env.differs" not in run.data.tags
    # A run can be over before a sample is taken: as many as there are.
    own = {"b": node_records.file_of(run_folder.JOURNAL, "b"), "": run_folder.JOURNAL}
    for node, name in own.items():
        key = f"system/{node}/cpu_utilization_percentage".replace("//", "/")
        path = two.folder / name
        rows = [record for record, _ in journal.read(path) if key in record.values] if path.exists() else []
        assert len(client.get_metric_history(mirror.run_id, key)) == len(rows)


LIKE_A_RANK = [pytest.param(victim, marks=pytest.mark.exhaustive) for victim in ("launcher", "interrupt")]


@pytest.mark.parametrize("victim", ["rank", *LIKE_A_RANK])
def test_a_dead_second_node_ends_the_first_which_names_it(victim: str, tmp_path: Path) -> None:
    first, second = start_nodes(tmp_path, *ENDLESS)
    try:
        wait_for_training(tmp_path, first)
        if victim == "rank":
            ranks = [p for p in psutil.Process(second.pid).children(recursive=True) if not p.children()]
            os.kill(ranks[-1].pid, signal.SIGKILL)
        else:
            second.send_signal(signal.SIGKILL if victim == "launcher" else signal.SIGINT)
        ended = collect(first, tmp_path)
        assert collect(second, tmp_path).code != 0
    finally:
        for process in (first, second):
            process.kill()
    assert ended.code == 1, ended.output
    assert "node b" in json.dumps(ended.result["failure"])
    wait_for(lambda: not processes_of(tmp_path))


def test_a_dead_first_node_ends_the_second(tmp_path: Path) -> None:
    first, second = start_nodes(tmp_path, *ENDLESS)
    try:
        wait_for_training(tmp_path, first)
        first.kill()
        collect(first, tmp_path)
        ended = collect(second, tmp_path)
    finally:
        for process in (first, second):
            process.kill()
    assert ended.code == 1, ended.output
    assert "node a" in ended.output
    wait_for(lambda: not processes_of(tmp_path))


def test_nodes_that_do_not_fit_are_refused_before_a_run_is_made(tmp_path: Path) -> None:
    asked = (*SHORT, "nodes=2", f"rendezvous=127.0.0.1:{free_port()}", "rendezvous_timeout_sec=600")
    first = begin(tmp_path, *asked, TIMETRIAL_NODE_NAME="a")
    second = begin(tmp_path, *asked, "node_rank=1", "cpu_processes=3", TIMETRIAL_NODE_NAME="b")
    for process in (first, second):
        ended = collect(process, tmp_path)
        assert ended.code == 2, ended.output
        assert "cpu_processes: " in ended.output
        assert not ended.folders


def test_a_node_that_nobody_meets_names_its_path_and_what_is_missing(tmp_path: Path) -> None:
    asked = (*SHORT, "nodes=2", f"rendezvous=127.0.0.1:{free_port()}", "rendezvous_timeout_sec=1")
    for rank, words in enumerate(["1 of 2 nodes", "node 0 is not"]):
        alone = answer(tmp_path, *asked, f"node_rank={rank}")
        assert alone.code == 2, alone.output
        assert words in alone.output
        assert str(tmp_path / "runs" / ".nodes-127.0.0.1") in alone.output


@pytest.mark.parametrize("told", [pytest.param(0, marks=pytest.mark.exhaustive), 1])
def test_whichever_node_is_told_to_stop_the_run_saves_once_more(tmp_path: Path, told: int) -> None:
    started = start_nodes(tmp_path, *ENDLESS, "log_every_n_steps=2", "checkpoint_every_steps=100000")
    wait_for_training(tmp_path, started[0])
    started[told].send_signal(signal.SIGTERM)
    first, second = (collect(process, tmp_path) for process in started)
    assert (first.code, second.code) == (1, 1) if told else (1, 0), first.output + second.output
    (made,) = checkpoints.in_folder(first.folder)
    assert made.place > (0, 0)
    assert first.result["failure"]["kind"] == f"signal:{signal.SIGTERM}", first.result
    assert not list(first.folder.glob(run_folder.STOPPING))
