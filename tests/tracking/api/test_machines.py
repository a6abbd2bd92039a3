"""Scripts of several processes: all stop at one evaluation; each machine is sampled, compared and named."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from conf.schema import ConfigError
from tests.support import slurm_cluster
from tests.support.commands import HANGS_SEC, environment
from tests.support.folders import wait_for
from tests.tracking.api import own_script
from tracking.api import machines
from tracking.api.machines import SharedTarget, check_group, unique_names
from tracking.lightning import time_trial
from tracking.measure.training import Ranks
from tracking.record import documents, journal, node_records, run_folder

TRIAL = {"runs_dir": "runs", "offline": True, "system_metrics_interval_sec": 0.2, "log_every_n_steps": 2}
TRAINER = {"max_epochs": 3, "strategy": "ddp", "num_nodes": 2, "devices": 1}
OF_SLURM = {"MASTER_ADDR": "127.0.0.1"}  # Lightning would look up the first node's name, which is no host's here.
LOOP = """
import time, torch.distributed as dist
from tracking.lightning import time_trial
dist.init_process_group("gloo")
with time_trial({"accuracy": 0.9}, offline=True, device="cpu", system_metrics_interval_sec=0.2) as trial:
    for _ in range(10):
        time.sleep(0.1)
        trial.step(8)
    trial.evaluate({"accuracy": 0.95}, epoch=1)
"""


def torchrun(tmp_path: Path, names: tuple[str, str], words: list[str]) -> Path:
    """The run of a script that torchrun starts on two machines, which are called so."""
    port = slurm_cluster.free_ports(1)[0]
    started = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--nnodes=2", f"--node-rank={rank}", "--nproc-per-node=1",
             "--master-addr=127.0.0.1", f"--master-port={port}", *words],
            cwd=tmp_path, env=environment() | ({node_records.NAME: name} if name else {}), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )
        for rank, name in enumerate(names)
    ]  # fmt: skip
    for process in started:
        output, _ = process.communicate(timeout=HANGS_SEC)
        assert process.returncode == 0, output
    (folder,) = (path.parent for path in (tmp_path / "runs").glob(f"*/{run_folder.RUN}"))
    wait_for(lambda: documents.read_json(folder / run_folder.RESULT).get("bottleneck"))
    return folder


def rows(folder: Path, file: str, kind: str) -> dict[str, object]:
    records = [record for record, _ in journal.read(folder / file) if record.kind == kind]
    return {str(key): value for record in records for key, value in record.values.items()}


def check(folder: Path, head: str, other: str) -> None:
    assert node_records.other_journals(folder) == [f"journal-{other}.jsonl"]
    assert f"system/{other}/cpu_utilization_percentage" in rows(folder, f"journal-{other}.jsonl", "metrics")
    assert rows(folder, run_folder.JOURNAL, "tags")["env.nodes"] == f"{head},{other}"
    assert rows(folder, run_folder.JOURNAL, "params")["nodes"] == 2
    assert documents.read_json(folder / f"fingerprint-{other}.json")["host"]["cpu"]
    result = documents.read_json(folder / run_folder.RESULT)
    assert {row["node"] for row in result["nodes"]} == {head, other}
    assert any(key.startswith(f"traffic/{other}/") for key in rows(folder, run_folder.JOURNAL, "metrics"))


@pytest.mark.slow
@pytest.mark.exhaustive
def test_every_machine_of_a_lightning_script_under_torchrun_is_sampled(tmp_path: Path) -> None:
    words = [own_script.__file__, json.dumps({"trial": TRIAL, "trainer": TRAINER, "slow": 0.05})]
    check(torchrun(tmp_path, ("head", "second"), words), "head", "second")


@pytest.mark.exhaustive
@pytest.mark.slow
def test_every_machine_of_a_loop_is_sampled_and_two_of_one_name_are_two(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    check(torchrun(tmp_path, ("host", "host"), ["loop.py"]), "host", "host-1")


@pytest.mark.exhaustive
@pytest.mark.service
@pytest.mark.skipif(bool(slurm_cluster.missing()), reason=slurm_cluster.missing())
def test_every_node_of_a_lightning_script_in_slurm_is_sampled(tmp_path: Path) -> None:
    asked = json.dumps({"trial": TRIAL, "trainer": TRAINER, "slow": 0.05})
    with slurm_cluster.Cluster() as cluster:
        done = subprocess.run(
            ["srun", "--nodes=2", "--ntasks=2", "--ntasks-per-node=1", sys.executable, own_script.__file__, asked],
            cwd=tmp_path, env=environment() | cluster.env | OF_SLURM, capture_output=True, text=True, timeout=HANGS_SEC,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        (folder,) = (path.parent for path in (tmp_path / "runs").glob(f"*/{run_folder.RUN}"))
        wait_for(lambda: documents.read_json(folder / run_folder.RESULT).get("bottleneck"))
    check(folder, "a", "b")


def test_processes_of_a_machine_have_its_name_and_machines_of_one_name_a_number_behind_it() -> None:
    first, second = json.dumps(["host", "0"]), json.dumps(["host", "1"])
    assert unique_names([first, first, second, second]) == ("host", "host", "host-1", "host-1")
    assert unique_names([json.dumps(["a", "0"]), json.dumps(["b", "1"])]) == ("a", "b")


@pytest.mark.parametrize("rank", [0, 1])
def test_all_ranks_reach_the_target_by_the_first_ones_metric_and_it_says_once_that_they_differ(
    rank: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    of_ranks = [[0.4, 0.95], [0.95, 0.5], [0.3, 0.3]]
    monkeypatch.setattr(dist, "get_rank", lambda: rank)
    target = SharedTarget({"accuracy": 0.9})
    hits = []
    for values in of_ranks:
        by_rank = torch.tensor(values, dtype=torch.float64)[:, None]
        monkeypatch.setattr(Ranks, "gather", lambda self, local, by_rank=by_rank: by_rank)
        hits.append(target.is_first_reached_by({"accuracy": values[rank]}, Ranks(2)))
    assert hits == [False, True, False]
    words = capsys.readouterr().out
    assert words.count("differs between the processes, and that of rank 0 counts") == (1 if rank == 0 else 0)
    assert rank or "By rank: accuracy=0.4, 0.95. Next: reduce it over the processes, e.g. self.log(..., sync" in words
    assert target.reached


def test_a_metric_that_is_the_same_or_no_number_on_all_ranks_is_not_told_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Ranks, "gather", lambda self, local: torch.stack([local, local * (1 + 1e-7)]))
    target = SharedTarget({"accuracy": 0.9, "loss": "<=1"})
    assert not target.is_first_reached_by({"accuracy": 0.95}, Ranks(2))
    assert not target.is_first_reached_by({"accuracy": 0.95, "loss": float("nan")}, Ranks(2))
    assert target.is_first_reached_by({"accuracy": 0.95, "loss": 0.5}, Ranks(2))
    assert capsys.readouterr().out == ""


@pytest.mark.slow
@pytest.mark.parametrize(("first", "reached"), [(0.95, True), (0.5, False)])
def test_a_loop_on_another_rank_stops_when_the_first_one_does(
    first: float, reached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dist, "get_rank", lambda: 1)
    with time_trial({"accuracy": 0.9}, runs_dir=str(tmp_path), offline=True, device="cpu") as trial:
        trial.step(8)
        trial.open_evaluation()
        with monkeypatch.context() as two:
            two.setattr(Ranks, "gather", lambda self, local: torch.stack([torch.full_like(local, first), local]))
            assert trial.evaluate({"accuracy": 1.45 - first}, epoch=1) is reached


TORCHRUN = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1"}
SRUN = {"SLURM_PROCID": "1", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "4", "MASTER_ADDR": "a"}


@pytest.fixture
def _pytorch_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in machines.OTHER_FRAMEWORKS:  # Another test may have imported them.
        monkeypatch.delitem(sys.modules, name, raising=False)


@pytest.mark.usefixtures("_pytorch_alone")
@pytest.mark.parametrize(("environ", "words"), [(TORCHRUN, "WORLD_SIZE=2"), (SRUN, "SLURM_STEP_NUM_TASKS=4")])
def test_ranks_without_a_process_group_are_refused(
    environ: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=rf"time_trial: {words}, .* Next: call init_process_group first"):
        check_group(environ)
    with monkeypatch.context() as initialized:
        initialized.setattr(dist, "is_initialized", lambda: True)
        check_group(environ)
    monkeypatch.setitem(sys.modules, "jax", sys)
    check_group(environ)


@pytest.mark.parametrize(
    "environ",
    [
        {},
        TORCHRUN | {"WORLD_SIZE": "1"},
        {"SLURM_NTASKS": "4", "SLURM_PROCID": "0", "MASTER_ADDR": "a"},  # sbatch's script, which is no rank
        {key: value for key, value in SRUN.items() if key != "MASTER_ADDR"},  # a training for each task
    ],
)
def test_what_may_be_a_process_alone_is_not_refused(environ: dict[str, str]) -> None:
    check_group(environ)


@pytest.mark.usefixtures("_pytorch_alone")
def test_a_loop_asks_whether_its_ranks_have_a_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in TORCHRUN.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(ConfigError, match="WORLD_SIZE=2"), time_trial(runs_dir=str(tmp_path), offline=True):
        raise AssertionError("the training began")
    assert not list(tmp_path.iterdir())
