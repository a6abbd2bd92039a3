"""A stack that cannot run here refuses a launch, or in a sweep that asks for it (sweep.run_others) its own jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conf.schema import ConfigError, RunConfig, StackConfig, SweepConfig
from tests.support.stack_study import BY, H100, STUDY, report_of
from tests.support.studied import CLOCKS, config, make_run, make_sweep
from tracking.analysis.audit.audit import audit
from tracking.jobs.node import outcome
from tracking.jobs.plan import run_setup
from tracking.machine.environment import nvml
from tracking.machine.environment.nvml import Gpu
from tracking.machine.stacks import RefusedStacks, by_name, judge_all, make_all, uv_environment, verdict
from tracking.record import Failure

OLD, NEW = StackConfig("old", "uv", torch="2.6.0"), StackConfig("new", "uv", torch="2.15.0")
GPU = Gpu(0, H100, "GPU-1", 80 * 2**30, 9.0)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TIMETRIAL_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(nvml, "driver_version", lambda: "535.9")
    monkeypatch.setattr(uv_environment, "resolve", lambda stack: None)
    monkeypatch.setattr(uv_environment, "to_fetch", lambda stack: "")
    monkeypatch.setattr(verdict, "check_room", lambda *room: None)


def asked(stack: StackConfig, run_others: bool = True) -> RunConfig:
    made = config()
    made.stack, made.gpus, made.sweep = stack, 1, SweepConfig(run_others=run_others)
    return made


def refused(*stacks: StackConfig, run_others: bool = True) -> RefusedStacks:
    made = RefusedStacks(asked(stacks[0], run_others), [GPU])
    made.judged(judge_all([asked(stack) for stack in stacks], [GPU]))
    return made


def test_it_refuses_the_launch_unless_the_others_are_asked_for_and_there_are_others() -> None:
    with pytest.raises(ConfigError, match=r"stack=new: CUDA 13\.2.*needs driver 580.*can run: stack=old"):
        refused(OLD, NEW, run_others=False)
    with pytest.raises(ConfigError, match="stack=new"):
        refused(NEW)
    made = refused(OLD, NEW)
    assert not made.why(asked(OLD))
    assert "stack=new" in made.why(asked(NEW))


def test_what_cannot_be_made_is_refused_like_what_cannot_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # there is no uv
    made, said = RefusedStacks(asked(OLD), [GPU]), list[str]()  # as on a cluster, without verdicts
    made.make([asked(OLD), asked(StackConfig("native"))], said.append)
    assert "pip install uv" in made.why(asked(OLD))
    assert "stack old cannot run here, and its jobs fail (sweep.run_others=true)" in said[-1]
    with pytest.raises(ConfigError, match="pip install uv"):
        refused(OLD).make([asked(OLD)], said.append)


V100 = Gpu(1, "Tesla V100", "GPU-2", 32 * 2**30, 7.0)
WITHOUT_V100 = StackConfig("new", "uv", torch="2.11.0")


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
@pytest.mark.parametrize(("driver", "gpus"), [("580.1", [[0], [1]]), ("535.1", [0, 1])])
def test_each_job_has_the_verdict_of_its_own_gpus_whatever_their_order(
    monkeypatch: pytest.MonkeyPatch, order: tuple[int, int], driver: str, gpus: list[Any]
) -> None:
    monkeypatch.setattr(nvml, "driver_version", lambda: driver)
    jobs = [replace(asked(WITHOUT_V100), gpus=chosen) for chosen in gpus]
    runs, cannot = (jobs[0], jobs[1])
    made, said = RefusedStacks(jobs[0], [GPU, V100]), list[str]()
    verdicts = judge_all([jobs[index] for index in order], [GPU, V100])
    (row,) = by_name(verdicts.values())
    assert row.error
    made.judged(verdicts)
    assert (made.why(runs), made.why(cannot)) == ("", row.error)
    monkeypatch.setattr("tracking.machine.stacks.refused_stacks.make_all", lambda *stacks: None)
    made.make(jobs, said.append)
    assert said == [
        "stack new cannot run on some of the chosen GPUs, and those jobs fail (sweep.run_others=true): " + row.error
    ]


def test_a_job_that_a_search_adds_is_judged_too() -> None:
    assert "needs driver 580" in refused(OLD).why(asked(NEW))


def test_two_stacks_of_one_name_are_refused_but_not_two_variables() -> None:
    jobs = [asked(replace(OLD, torch=torch)) for torch in ("2.6.0", "2.9.1")]
    with pytest.raises(ConfigError, match=r"^stack.torch=2.9.1: another job has stack.torch=2.6.0, .*stack.name=old"):
        judge_all(jobs, [GPU])
    assert len(judge_all([asked(OLD), asked(replace(OLD, env={"A": "b"}))], [GPU])) == 1


def test_both_stacks_of_one_name_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str | None] = []
    monkeypatch.setattr("tracking.machine.stacks.check.ready", lambda stack: False)
    monkeypatch.setattr("tracking.machine.stacks.check.make", lambda stack, say, needed: made.append(stack.torch))
    make_all([OLD, OLD, replace(OLD, torch="2.9.1")], print)
    assert made == ["2.6.0", "2.9.1"]


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
