"""A stack that cannot run here refuses a launch, or in a sweep that asks for it (sweep.run_others) its own jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from conf.schema import ConfigError, RunConfig, StackConfig, SweepConfig
from tests.support.stack_study import BY, H100, STUDY, report_of
from tests.support.studied import CLOCKS, config, make_run, make_sweep
from tracking.analysis.audit.audit import audit
from tracking.jobs.node import outcome
from tracking.jobs.plan import run_setup
from tracking.machine.environment import nvml
from tracking.machine.environment.nvml import Gpu
from tracking.machine.stacks import RefusedStacks, Verdict, judge
from tracking.record import Failure

OLD, NEW = StackConfig("old", "uv", torch="2.6.0"), StackConfig("new", "uv", torch="2.15.0")
GPU = Gpu(0, H100, "GPU-1", 80 * 2**30, 9.0)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(nvml, "driver_version", lambda: "535.9")


def asked(stack: StackConfig, run_others: bool = True) -> RunConfig:
    made = config()
    made.stack, made.gpus, made.sweep = stack, 1, SweepConfig(run_others=run_others)
    return made


def refused(*stacks: StackConfig, run_others: bool = True) -> RefusedStacks:
    made = RefusedStacks(asked(stacks[0], run_others), [GPU])
    made.judged([judge(stack, [GPU], resolve=False) for stack in stacks])
    return made


def test_it_refuses_the_launch_unless_the_others_are_asked_for_and_there_are_others() -> None:
    with pytest.raises(ConfigError, match=r"stack=new: CUDA 13\.2.*needs driver 580.*can run: stack=old"):
        refused(OLD, NEW, run_others=False)
    with pytest.raises(ConfigError, match="stack=new"):
        refused(NEW)
    assert list(refused(OLD, NEW).why) == ["new"]


def test_what_cannot_be_made_is_refused_like_what_cannot_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # there is no uv
    made, said = RefusedStacks(asked(OLD), [GPU]), []
    made.judged([Verdict("old", "", ""), Verdict("native", "", "")])
    made.make([asked(OLD), asked(StackConfig("native"))], said.append)
    assert "pip install uv" in made.why["old"]
    assert "stack old cannot run here, and its jobs fail (sweep.run_others=true)" in said[-1]
    with pytest.raises(ConfigError, match="pip install uv"):
        refused(OLD).make([asked(OLD)], said.append)


def test_its_caches_need_no_warm_up() -> None:
    warm_ups = [replace(asked(stack), warm_up=True) for stack in (OLD, NEW)]
    assert [refused(OLD, NEW).is_idle(each) for each in (*warm_ups, asked(NEW))] == [False, True, False]


def test_its_runs_are_combinations_that_a_report_misses_with_why(tmp_path: Path) -> None:
    sweep = make_sweep(tmp_path, STUDY, "sqlite:///none.db", 2)
    tags = {"env.driver": "535.9", "env.cuda": "12.4", "env.gpu": H100}
    make_run(sweep, config(), "sqlite:///none.db", 0.1, tags=tags, fingerprint=CLOCKS)
    stacks = refused(OLD, NEW)
    with run_setup.make_folder("of-new", sweep, sweep) as owner:
        folder = owner.folder
        run_setup.prepare(folder, "of-new", asked(NEW), [], "sqlite:///none.db", sweep)
    stacks.check(asked(OLD), folder)
    with pytest.raises(ConfigError) as error:
        stacks.check(asked(NEW), folder)
    outcome.end(folder, Failure("bad_input", str(error.value)))
    made = report_of(tmp_path, by=BY)
    (table,) = [table for table in made.tables if table.kind == "missing"]
    ((*combination, why),) = table.rows
    assert combination == ["535.9", "13.2", H100]
    assert str(why).startswith(
        "failed: bad_input (stack=new: CUDA 13.2 of torch 2.15.0 needs driver 580 or later, and this is 535.9. Next:"
    )
    assert str(why).count("needs driver") == 1
    assert audit(made.plain(), [tmp_path]).differences == []
