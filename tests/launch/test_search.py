"""A search through launch.py: killed in the middle, gone on with, and its answer, with a program as what trains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support import forked
from tests.support.commands import HANGS_SEC, ROOT, TINY, begin, environment, events, launch, processes_of
from tests.support.folders import wait_for
from tests.support.in_process import answer
from tests.support.searched_program import PROGRAM, trace, words
from tracking.record import journal, run_folder

pytestmark = pytest.mark.slow

# As above, and the first run of all loses its worker to a signal.
LOST_ONCE = f"""
import os, pathlib, signal
if not pathlib.Path("lost").exists():
    pathlib.Path("lost").write_text("")
    os.kill(os.getppid(), signal.SIGKILL)
{PROGRAM}
"""
# One batch crashes each time.
CRASHES = f"""
import os, sys
if sys.argv[2] == "1":
    os.kill(os.getppid(), 9)
{PROGRAM}
"""


@pytest.mark.parametrize(
    ("program", "num_killed", "first", "budget"),
    [(LOST_ONCE, 1, "reached", 3), pytest.param(CRASHES, 3, "failed", 4, marks=pytest.mark.exhaustive)],
)
def test_a_run_that_is_lost_is_made_again_until_it_is_known_to_crash(
    tmp_path: Path, program: str, num_killed: int, first: str, budget: int
) -> None:
    asked = words(tmp_path, "batch_size=1,4", "model.optimizer.lr=0.01", f"search.budget={budget}runs")
    (tmp_path / "program.py").write_text(program)
    ran = launch(tmp_path, *asked)
    assert ran.code == 0, ran.output
    trials = trace(tmp_path)["trials"]
    states = [row["state"] for row in trials]
    # The other setting is quicker. On a busy machine it may still take longer than its cap.
    assert states in ([first, "reached"], [first, "stopped"]), ran.output
    ended = [result for path in ran.folders if (result := read(path))]
    assert len(ended) == len(ran.folders) == sum(row["cost"] for row in trials)
    kinds = [result.failure.kind for result in ended if result.failure and result.status != "stopped"]
    assert kinds == ["signal:9"] * num_killed
    assert "interrupted" not in ran.output


def test_a_search_that_is_killed_goes_on_and_names_the_quickest_setting(tmp_path: Path) -> None:
    (tmp_path / "mine" / "recipe").mkdir(parents=True)
    (tmp_path / "mine" / "recipe" / "own.yaml").write_text("# @package _global_\ntracking: {upload_wait_sec: 50}\n")
    asked = words(tmp_path, "batch_size=1,4", "model.optimizer.lr=0.01,0.1", "search.budget=20runs")
    first = begin(tmp_path, "--config-dir", "mine", *asked, "recipe=own")
    wait_for(lambda: list(tmp_path.glob("runs/*/search.json")) and len(trace(tmp_path)["trials"]) > 2)
    first.kill()
    first.communicate()
    tried = [row["setting"] for row in trace(tmp_path)["trials"]][:-1]
    [sweep] = [path.parent for path in tmp_path.glob("runs/*/search.json")]

    made = {path.name for path in sweep.iterdir() if path.is_dir()}
    spent = launch(tmp_path, f"sweep.resume={sweep.name}", "search.budget=1runs")
    assert {path.name for path in sweep.iterdir() if path.is_dir()} == made, spent.output

    again = launch(tmp_path, f"sweep.resume={sweep.name}")
    assert again.code == 0, again.output
    answer, trials = trace(tmp_path)["answer"], trace(tmp_path)["trials"]
    assert [row["setting"] for row in trials][: len(tried)] == tried
    assert answer["why"] in ("decided", "nothing compared"), again.output
    assert answer["named"] == {"batch_size": 4, "model.optimizer.lr": 0.01}
    assert "batch_size=4 lr=0.01:" in again.output
    assert len(trials) <= 20
    finished = [path for path in sweep.iterdir() if (result := read(path)) and result.status == "finished"]
    assert len(finished) == sum(row["state"] == "reached" for row in trials)  # none ran twice

    check_report(tmp_path, sweep, trials)


def check_report(cwd: Path, sweep: Path, trials: list[dict[str, Any]]) -> None:
    """Its report counts what decided, and is audited."""
    asked, script = ["report", sweep.name, "--from-folders", "--check", "--json"], str(ROOT / "tracking/__main__.py")
    ran = forked.Forked(asked, cwd, environment(), script=script, apart=True)
    printed, errors = ran.communicate(timeout=HANGS_SEC)
    assert ran.wait() == 0, errors
    document = json.loads(printed)
    assert [answer["words"].startswith("batch_size=4 lr=0.01:") for answer in document["search"]] == [True]
    times = [row["n"] for row in document["report"]["figures"] if row["key"] == "time/to_accuracy_sec"]
    assert sum(times) == sum(trial["phase"] == "decide" for trial in trials) > 0
    assert "exploring" not in str(document["report"]["warnings"])
    assert (sweep / "search_progress.png").stat().st_size > 1000


def read(folder: Path) -> run_folder.Result | None:
    return run_folder.read_result(folder) if (folder / run_folder.CONFIG).exists() else None


@pytest.mark.exhaustive
def test_two_objectives_are_typed_without_quotes_and_have_an_answer_each(tmp_path: Path) -> None:
    """All on one CPU at one price, so the quickest is the cheapest."""
    asked = words(tmp_path, "batch_size=1,4", "model.optimizer.lr=0.01", "search.budget=8runs")
    ran = launch(tmp_path, "--json", *asked, "search.objective=time,cost", "price_per_hour=36")
    assert ran.code == 0, ran.output
    lines = [json.loads(line) for line in ran.output.splitlines() if line.startswith("{")]
    [answer] = [line for line in lines if line["event"] == "answer"]
    assert answer["named"] == answer["second"]["named"] == {"batch_size": 4}
    assert "Quickest: batch_size=4" in answer["words"]
    assert "Cheapest: batch_size=4" in answer["words"]
    assert trace(tmp_path)["answer"]["second"]["objective"] == "cost"
    [sweep] = [path.parent for path in tmp_path.glob("runs/*/search.json")]
    again = launch(tmp_path, f"sweep.resume={sweep.name}")
    assert "Cheapest: batch_size=4" in again.output


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("search.objective=time,speed",), "search.objective=time,speed: no such objective. Allowed: time, cost"),
        (("search.budget=20 parsecs",), "search.budget=20 parsecs"),
        (("model.optimizer.lr=interval(1,0.1)",), "give the lower end first"),
        (("seed=1,2",), "seed cannot be an axis of a search"),
        (("batch_size=",), "not an axis of a search"),
    ],
)
def test_a_search_that_cannot_be_made_is_refused_before_anything_runs(
    tmp_path: Path, more: tuple[str, ...], said: str
) -> None:
    refused = answer(tmp_path, *words(tmp_path, *more))
    assert refused.code == 2, refused.output
    assert said in refused.output
    assert not (tmp_path / "runs").exists()


def test_runs_of_a_search_are_forked_from_one_process_that_has_imported_once(tmp_path: Path) -> None:
    asked = ("gpus=0", "batch_size=8,16", "model.optimizer.lr=0.01,0.02", "max_epochs=1", "target=0.01")
    run = launch(tmp_path, "-m", *TINY, "+search=quickest", *asked, "search.budget=2runs", "tracking.offline=true")
    assert run.code == 0, run.output
    assert len(run.folders) == 2
    [[first], [second]] = [events(folder, "forked") for folder in run.folders]
    assert first.value == second.value
    for folder in run.folders:
        keys = [event.key for event in journal.events(folder / run_folder.JOURNAL)]
        assert keys.index("import_stop") < keys.index("run_start")
        assert keys.count("import_start") == keys.count("import_stop")
    wait_for(lambda: not processes_of(tmp_path))  # The server ends with the launcher's pipe.
