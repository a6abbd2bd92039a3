"""A disk that is full, for real: a small file system of its own, which a run or somebody else fills."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from conf.schema import ConfigError, ContainerConfig, StackConfig
from tests.support import quick_launch
from tests.support.cluster_runs import SHORT, tracking
from tests.support.commands import HANGS_SEC, TINY, launch
from tests.support.mlflow_server import MlflowServer
from tests.support.rows import expected_rows, status_of, stored_rows, tags_of
from tests.support.slurm_cluster import Cluster
from tests.support.studied import CLOCKS, config, make_run, make_sweep, measure_place
from tests.tracking.jobs.importing.test_import import submission
from tests.tracking.machine.stacks.wheels import make_index
from tracking.api.script_process import THIS_PROCESS
from tracking.cli import main
from tracking.jobs.follow.mirror_thread import MirrorThread
from tracking.jobs.follow.sync import sync
from tracking.jobs.node.outcome import describe
from tracking.lightning import time_trial
from tracking.machine.stacks import container_images
from tracking.measure.bottleneck import explain
from tracking.record import documents, failures, journal, run_folder
from tracking.record.journal import Journal
from tracking.record.run_folder import Failure, Result
from tracking.store.mirror.mirror import Mirror
from trainers.data.cached import cached_arrays

pytestmark = [
    pytest.mark.service,
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


KB = 1024
# Writes an image of 1 MB, as apptainer does.
APPTAINER = """#!{python} -I
import pathlib, sys
with pathlib.Path(sys.argv[2]).open("wb", buffering=0) as file:
    for _ in range(16):
        file.write(b"x" * 65536)
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    path = tmp_path / "disk"
    path.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(path)], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def fill(disk: Path, left: int = 0) -> Path:
    """Take all the room, down to the last byte or `left` of them."""
    path = disk / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (65536, 1):
            try:
                while file.write(b"x" * size) == size:
                    pass
            except OSError:
                continue
        file.truncate(file.tell() - left)
    return path


def test_a_record_that_does_not_fit_is_an_error_and_costs_that_record_alone(disk: Path) -> None:
    path = disk / "journal.jsonl"
    writer, other = Journal(path), Journal(path)
    written = [writer.event("first")]
    filler = fill(disk)
    with pytest.raises(OSError, match="No space left"):  # a part of a page is there, so one of these is torn
        written.extend(iter(lambda: writer.event("before"), None))
    assert not path.read_bytes().endswith(b"\n")
    filler.unlink()
    written.append(other.event("another writer goes on in the same line"))
    written.append(writer.event("and this one too"))
    assert [record for record, _ in journal.read(path)] == written


def test_a_result_has_its_room(disk: Path) -> None:
    run_folder.reserve(disk)
    documents.write_text(disk / "a", "")  # a folder entry to be replaced
    filler = fill(disk)
    result = Result("failed", failure=Failure("disk_full", "no room", "trace" * 1000))
    run_folder.write_result(disk, result)
    assert run_folder.read_result(disk) == result
    with pytest.raises(OSError, match="No space left"):
        documents.write_json(disk / run_folder.MIRROR, {"a": "b" * 70000})
    filler.unlink()
    run_folder.write_result(disk, result)
    assert {path.name for path in disk.iterdir()} == {"a", "result.json"}  # nothing half written


def test_a_full_disk_fails_its_job_by_name_and_the_rest_is_told_and_done_when_there_is_room(
    server: MlflowServer, disk: Path
) -> None:
    process = quick_launch.begin(
        disk, server.uri, {"then": "finish"}, {"then": "fill"}, {"then": "finish", "rows": 4}, WAIT_SEC="6"
    )
    output, _ = process.communicate(timeout=HANGS_SEC)
    assert process.returncode == 1, output
    assert output.count("failed: disk_full") >= 2, output  # the second job, and the third, which has no folder
    assert "No space left on device" in output
    sweep, *jobs = run_folder.run_folders(disk / "runs")
    # The job without a folder leaves a little room, which may be enough for what says how far MLflow has the rest.
    assert ("not uploaded" in output) == (not all(Mirror(folder).complete for folder in (sweep, *jobs))), output
    results = [run_folder.read_result(folder) for folder in (sweep, *jobs)]
    assert [result.status for result in results if result] == ["failed", "finished", "failed"]
    assert list(sweep.glob("*.tmp")) == []
    (disk / "filler").unlink()
    assert {outcome.state for outcome in sync([sweep, *jobs])} == {"complete"}
    statuses = [status_of(server, Mirror(folder).run_id) for folder in (sweep, *jobs)]
    assert statuses == ["FAILED", "FINISHED", "FAILED"]
    assert tags_of(server, Mirror(jobs[1]).run_id)["failure"] == "disk_full"
    for folder in jobs:
        assert stored_rows(server, Mirror(folder).run_id) == expected_rows(folder)
    again = quick_launch.begin(disk, server.uri, {"then": "finish"}, f"--resume={sweep.name}")
    (disk / "mended").touch()
    output, _ = again.communicate(timeout=HANGS_SEC)
    assert again.returncode == 0, output
    assert status_of(server, Mirror(sweep).run_id) == "FINISHED"


def test_a_mirror_goes_on_when_there_is_room_again(server: MlflowServer, disk: Path) -> None:
    from tests.support.folders import end, make_folder, wait_for, write_rows

    folder = make_folder(disk, server.uri)
    write_rows(folder, range(3))
    end(folder)
    filler = fill(disk)
    thread = MirrorThread(folder, interval_sec=0.1).start()
    wait_for(lambda: thread.status)
    assert "No space left" in thread.status
    filler.unlink()
    assert thread.close(wait_sec=HANGS_SEC), thread.status
    assert stored_rows(server, Mirror(folder).run_id) == expected_rows(folder)


def test_a_training_that_fills_the_disk_fails_as_disk_full(disk: Path) -> None:
    launched = launch(disk, *TINY, "model.hparams.fault=fill", "tracking.offline=true", "log_every_n_steps=2")
    assert launched.code == 1, launched.output
    assert launched.result["status"] == "failed"
    assert launched.result["failure"]["kind"] == "disk_full"
    assert "failed: disk_full" in launched.output


# It ends by Python's own error.
PROGRAM = """
import sys
print("started", flush=True)
file = open(sys.argv[1], "wb", buffering=65536)
while True:
    file.write(b"x" * 65536)
    file.flush()
"""


@pytest.mark.parametrize("where", ["elsewhere", "in the folder of runs"])
def test_a_program_that_dies_of_a_full_disk_fails_as_disk_full(disk: Path, tmp_path: Path, where: str) -> None:
    cwd = tmp_path / "own" if where == "elsewhere" else disk
    cwd.mkdir(exist_ok=True)
    (cwd / "script.py").write_text(PROGRAM)
    command = f"program.command={sys.executable} script.py {disk / 'out'}"
    options = ("gpus=0", "tracking.offline=true", "tracking.system_metrics_interval_sec=0")
    launched = launch(cwd, "model=program", command, *options)
    assert launched.code == 1, launched.output
    assert launched.result["failure"]["kind"] == "disk_full"
    if where == "elsewhere":
        assert "No space left on device" in launched.result["failure"]["message"]


def test_a_script_on_a_full_disk_trains_on_and_its_run_is_disk_full(disk: Path) -> None:
    filler: list[Path] = []
    with time_trial(runs_dir=str(disk / "runs"), offline=True, device="cpu", log_every_n_steps=1,
                    system_metrics_interval_sec=0) as trial:  # fmt: skip
        for step in range(200):
            trial.step(8, 0.5)
            if step == 20:
                filler.append(fill(disk))
        assert not trial.evaluate({"accuracy": 0.5}, epoch=1)
    for companion in THIS_PROCESS.companions:
        companion.wait(HANGS_SEC)  # Without the disk it would wait for the run's result until this process ends.
    (folder,) = (disk / "runs").iterdir()
    result = run_folder.read_result(folder)
    assert result is not None
    assert result.failure is not None
    assert (result.status, result.failure.kind) == ("failed", "disk_full")


def test_what_finds_no_room_is_refused_without_a_traceback(disk: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Reports, imports, and a launch itself; the cache costs nobody his data."""
    sweep = make_sweep(disk / "runs", "s", "sqlite:///x", 2)
    for seed in (1, 2):
        make_run(sweep, config(seed=seed), "sqlite:///x", 0.1)
    log = submission(disk.parent / "log", 40, 7)
    filler = fill(disk)
    words = [
        ["report", "s", "--from-folders", "--runs-dir", str(disk / "runs"), "--out", str(disk / "out")],
        ["import", str(log), "--gpus", "8", "--runs-dir", str(disk / "imported")],
    ]
    for command in words:
        assert main(command) == 2, command
        printed = capsys.readouterr()
        assert "No space left on device" in printed.err, command
        assert "Traceback" not in printed.err
    filler.unlink()
    for command in words:
        assert main(command) == 0, capsys.readouterr()


def test_a_cache_without_room_costs_nobody_his_arrays(disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIMETRIAL_CACHE", str(disk / "cache"))
    (disk / "data").touch()
    filler = fill(disk)
    made = cached_arrays("room", [disk / "data"], "", 1, lambda: {"a": np.arange(500_000)})
    assert int(made["a"][-1]) == 499_999
    filler.unlink()
    cached_arrays("room", [disk / "data"], "", 1, lambda: {"a": np.arange(100_000)})
    kept = cached_arrays("room", [disk / "data"], "", 1, lambda: {"a": np.arange(3)})
    assert len(kept["a"]) == 100_000


def test_a_worker_that_finds_no_room_for_its_first_word_is_disk_full(disk: Path) -> None:
    worker = subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"])
    worker.wait()
    failure = failures.unexplained(disk, worker)
    assert failure is not None
    assert failure.kind == "error"
    fill(disk)
    failure = failures.unexplained(disk, worker)
    assert failure is not None
    assert failure.kind == "disk_full"
    assert failure.message == f"the worker ended with exit code 1 and no result; its disk has no room left: {disk}"


@pytest.mark.skipif(shutil.which("uv") is None, reason="needs uv on the PATH")
@pytest.mark.parametrize("left", [0, 16 * KB, 64 * KB])
def test_an_environment_that_finds_no_room_is_made_when_there_is_room(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], left: int
) -> None:
    """Before its folder, in the middle, and near its end."""
    monkeypatch.setenv("TIMETRIAL_CACHE", str(disk / "cache"))
    monkeypatch.setenv("UV_LINK_MODE", "copy")
    (tmp_path / "mine/stack").mkdir(parents=True)
    declared = f"kind: uv\ntorch: 2.6.0\nindex: {make_index(tmp_path / 'index')}\n"
    (tmp_path / "mine/stack/mine.yaml").write_text(declared)
    words = ["stacks", "mine", f"--config-dir={tmp_path / 'mine'}", "--build"]
    filler = fill(disk, left)
    assert main(words) == 2
    printed = capsys.readouterr()
    assert any(words in printed.err for words in ("No space left", "Failed to install"))  # uv may not say why
    assert "Traceback" not in printed.err
    assert not list(disk.glob("cache/stacks/*/complete.json"))
    assert not list(disk.glob("cache/stacks/*/env")), "what is half made takes the room that others need"
    filler.unlink()
    assert main(words) == 0, capsys.readouterr()
    assert "made in" in capsys.readouterr().out


@pytest.mark.parametrize("left", [0, 256 * KB])
def test_an_image_that_finds_no_room_is_fetched_when_there_is_room(
    disk: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: int
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin/apptainer").write_text(APPTAINER.format(python=sys.executable))
    (tmp_path / "bin/apptainer").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setenv("TIMETRIAL_CACHE", str(disk / "cache"))
    stack = StackConfig("ours", kind="container", container=ContainerConfig("apptainer", "docker://example.org/t:1"))
    filler = fill(disk, left)
    with pytest.raises(ConfigError, match="No space left on device"):
        container_images.pull(stack)
    assert container_images.find(stack) is None
    assert sum(path.stat().st_size for path in (disk / "cache").rglob("*") if path.is_file()) == 0
    filler.unlink()
    image = container_images.pull(stack)
    assert image.size_bytes == 1024 * KB


@pytest.mark.pictures
def test_a_log_of_mlperf_s_without_room_costs_the_run_nothing(disk: Path) -> None:
    """The chart of its roofline is missing too. Both can be made later."""
    sweep = make_sweep(disk / "runs", "s", "sqlite:///x", 1)
    asked = config(model="resnet50")
    asked.model.workload, asked.model.hparams = "trainers.models.resnet:WORKLOAD", {"epochs": 3}
    folder = make_run(sweep, asked, "sqlite:///x", 0.1, fingerprint=CLOCKS)
    measure_place(folder)
    explain(folder)
    before = {path.name for path in folder.iterdir()}
    filler = fill(disk)
    describe(folder)
    assert {path.name for path in folder.iterdir()} == before, "nothing half written"
    filler.unlink()
    describe(folder)
    assert {path.name for path in folder.iterdir()} - before == {"mlperf.log", "roofline.png"}


@pytest.mark.slow
@pytest.mark.exhaustive
def test_jobs_on_a_full_disk_are_followed_to_their_end(cluster: Cluster, disk: Path) -> None:
    """The follower says which files do not fit, and ends. A later one, with room, finds everything."""
    asked = (*SHORT, "seed=1", "detach=true", "tracking.system_metrics_interval_sec=0")
    run = launch(disk, *asked, **cluster.env)
    assert run.code == 0, run.output
    filler = fill(disk)
    words, _ = (first := tracking(disk, "follow", str(run.folder), **cluster.env)).communicate(timeout=HANGS_SEC)
    assert first.returncode in (0, 1), words
    assert "Traceback" not in words
    assert "not uploaded" in words, words
    assert "failed: disk_full" in words, words
    filler.unlink()
    assert {outcome.state for outcome in sync([run.folder])} == {"complete"}
    result = run_folder.read_result(run.folder)
    assert result is not None
    assert result.failure is not None
    assert result.failure.kind == "disk_full"
