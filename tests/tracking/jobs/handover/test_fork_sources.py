"""Sources that a fork server has imported may be edited. A run is then forked from another server, or started anew."""

from __future__ import annotations

import os
import time

import pytest

from tests.support.commands import HANGS_SEC
from tests.support.folders import wait_for
from tests.tracking.jobs.handover.forked_runs import WORKER, Runs, alive
from tracking.jobs.handover import forked_worker

pytestmark = pytest.mark.slow


def test_a_server_whose_sources_have_changed_waits_for_its_forks(runs: Runs) -> None:
    run = runs.start("a", wait=True)
    server = runs.report("a")["parent"]
    (runs.root / "own.py").write_text("changed = True")
    os.utime(runs.root / "own.py", (1, 1))
    assert runs.start("b").wait(HANGS_SEC) == 3
    assert runs.report("b")["parent"] == os.getpid()
    assert runs.start("c").wait(HANGS_SEC) == 3
    assert runs.report("c")["parent"] not in (os.getpid(), server), "another server, of the new source"
    assert run.poll() is None
    (runs.root / "a/wait").unlink()
    assert run.wait(HANGS_SEC) == 3
    wait_for(lambda: not alive(server))


def test_a_source_that_is_edited_while_its_server_imports_makes_the_run_a_new_process(runs: Runs) -> None:
    runs.hold()
    run = runs.start("a")
    server = runs.importing()
    (runs.root / "own.py").write_text("changed = True")
    os.utime(runs.root / "own.py", (1, 1))
    runs.held.unlink()
    assert run.wait(HANGS_SEC) == 3
    assert runs.report("a")["parent"] == os.getpid()
    assert runs.start("b").wait(HANGS_SEC) == 3
    assert runs.report("b")["parent"] not in (os.getpid(), server), "another server, of the new source"


def test_a_source_that_is_edited_before_its_server_has_noted_it_makes_the_run_a_new_process(runs: Runs) -> None:
    """The edit comes after the file was read, and before the server has looked at it."""
    edited = WORKER.replace("\ndef imports", "\nopen(__file__, 'a').write('# edited')\n\ndef imports")
    assert edited != WORKER
    (runs.root / "worker.py").write_text(edited)
    time.sleep(0.05)
    assert runs.start("a").wait(HANGS_SEC) == 3
    assert runs.report("a")["parent"] == os.getpid()


def test_a_launch_says_once_why_its_workers_are_not_forked(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refused(*asked: object) -> None:
        raise PermissionError(1, "no sockets here")

    monkeypatch.setattr(forked_worker, "start_server", refused)
    assert [runs.start(name).wait(HANGS_SEC) for name in ("a", "b")] == [3, 3]
    assert capfd.readouterr().err.count("no sockets here") == 1


def test_where_a_server_cannot_import_or_its_sources_have_changed_the_run_is_a_new_process(runs: Runs) -> None:
    assert runs.start("a", BROKEN="1").wait(HANGS_SEC) == 3
    assert runs.report("a")["parent"] == os.getpid()
    assert runs.start("b", BROKEN="1").wait(HANGS_SEC) == 3
    assert [process.pid for process in runs.fresh] == [runs.report(name)["pid"] for name in ("a", "b")]
    assert runs.start("c").wait(HANGS_SEC) == 3
    (runs.root / "own.py").write_text("changed = True")
    os.utime(runs.root / "own.py", (1, 1))
    assert runs.start("d").wait(HANGS_SEC) == 3
    assert runs.report("d")["parent"] == os.getpid()
    assert runs.start("e").wait(HANGS_SEC) == 3
    assert runs.report("e")["parent"] not in (os.getpid(), runs.report("c")["parent"]), (
        "another server, of the new source"
    )
