"""A disk that is full, for real: a small file system of its own, which a run or somebody else fills."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.commands import HANGS_SEC, TINY, launch
from tests.tracking import quick_launch
from tests.tracking.mlflow_server import MlflowServer
from tests.tracking.rows import expected_rows, status_of, stored_rows, tags_of
from tracking.jobs.mirror_thread import MirrorThread
from tracking.jobs.sync import sync
from tracking.mirror.mirror import Mirror
from tracking.run import documents, journal, run_folder
from tracking.run.journal import Journal
from tracking.run.run_folder import Failure, Result

pytestmark = [
    pytest.mark.service,
    pytest.mark.usefixtures("mlflow_environment"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


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
    from tests.tracking.folders import end, make_folder, wait_for, write_rows

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
