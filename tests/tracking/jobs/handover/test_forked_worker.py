"""Workers forked from a server: each is as a new one would be, and a new one is started where the server fails."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import pytest

from tests.support.commands import HANGS_SEC
from tests.support.folders import wait_for
from tests.tracking.jobs.handover.forked_runs import Runs
from tracking.jobs.handover import Inheritance
from tracking.jobs.node.machine_shares import MPOL_BIND

pytestmark = pytest.mark.slow


def test_each_run_is_as_a_new_one_whatever_the_one_before_has_left(runs: Runs) -> None:
    codes = [runs.start(name, torch=True).wait(HANGS_SEC) for name in ("a", "b")]
    assert codes == [3, 3]
    assert not runs.fresh
    first, second = runs.report("a"), runs.report("b")
    assert first["parent"] == second["parent"], "one server, which has imported once"
    assert first["pid"] != second["pid"]
    for each, name in ((first, "a"), (second, "b")):
        assert each["session"] == each["pid"]
        assert (each["launcher"], each["words"]) == (name, [str(runs.root / name)])
        assert (each["dtype"], each["left"], each["modules"]) == ("torch.float32", None, False)
        assert each["set_by_imports"] == "1"
        assert each["descriptors"] == []
    assert first["threads"] == second["threads"]
    assert first["seed"] == second["seed"] != 7
    assert first["folder"] == second["folder"] != "/"
    assert first["random"] != second["random"]
    assert first["numpy"] != second["numpy"]
    assert (runs.root / "b/worker.log").read_text() == "these are its words\n"


def test_a_fork_has_the_signals_limits_and_streams_of_a_new_process(runs: Runs) -> None:
    assert runs.start("forked").wait(HANGS_SEC) == 3
    assert not runs.fresh
    assert runs.start("new", BROKEN="1").wait(HANGS_SEC) == 3
    assert len(runs.fresh) == 1
    assert runs.report("forked")["alike"] == runs.report("new")["alike"]


def test_the_first_run_does_not_wait_for_the_compilers_import(runs: Runs) -> None:
    first = runs.start("a", COMPILES="a")  # The import ends when this run has begun.
    assert first.wait(HANGS_SEC) == 3
    assert runs.start("b", COMPILES="a").wait(HANGS_SEC) == 3
    assert runs.report("a")["parent"] == runs.report("b")["parent"] == int((runs.root / "imported later").read_text())


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="it takes two cores")
def test_a_fork_has_the_cores_memory_and_gpus_of_its_supervisor_whatever_those_of_the_server_are(runs: Runs) -> None:
    whole = Inheritance.own()
    share = Inheritance(whole.cores[:1], whole.memory and (MPOL_BIND, [1, *[0] * 15]))
    try:
        for name, own in (("a", share), ("b", whole), ("c", share)):
            own.take()
            runs.environ["CUDA_VISIBLE_DEVICES"] = f"GPU-{name}"
            assert runs.start(name).wait(HANGS_SEC) == 3
            own_words = json.loads(json.dumps(vars(Inheritance.own())))
            assert (runs.report(name)["inherited"], runs.report(name)["gpus"]) == (own_words, f"GPU-{name}")
    finally:
        whole.take()
    assert len({runs.report(name)["parent"] for name in "abc"}) == 1
    assert not runs.fresh, "one server has forked them all"


def test_the_first_runs_fingerprint_is_begun_while_its_server_imports(runs: Runs) -> None:
    command, asked = runs.root / "bin/lscpu", runs.root / "asked"
    command.parent.mkdir()
    command.write_text(f"#!/bin/sh\ntouch {asked}\necho 'Socket(s): 77'\n")
    command.chmod(0o755)
    runs.environ["PATH"] = f"{command.parent}:{runs.environ['PATH']}"
    runs.hold()
    first, second = runs.start("a"), runs.start("b")
    runs.importing()
    wait_for(asked.exists)
    runs.held.unlink()
    assert [first.wait(HANGS_SEC), second.wait(HANGS_SEC)] == [3, 3]
    assert (runs.report("a")["sockets"], runs.report("b")["sockets"]) == (77, None)


def test_the_folder_for_temporary_files_may_have_a_long_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("long" * 40)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    runs = Runs(tmp_path)
    try:
        assert runs.start("a").wait(HANGS_SEC) == 3
        assert not runs.fresh
    finally:
        runs.close()
