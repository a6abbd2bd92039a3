"""What a search leaves and says: its trace, its pictures, and its words."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.tracking.jobs.search.made_searches import BEST, ended, run, search
from tracking.analysis.search import Axis, SearchTrial
from tracking.jobs.plan import sweep
from tracking.jobs.search import answer_in, fronts, pictures


def test_its_words_say_the_setting_the_ratio_and_what_it_took() -> None:
    made, _ = ended()
    console = Console(width=200, record=True)
    made.show(console)
    said = console.export_text()
    assert "gpus=2 batch_size=16" in said
    assert "times as fast" in said
    assert "of 60 runs, starts included" in said
    assert "not run: gpus=2 batch_size=4" in said
    assert "batch_size=4: too small for two" in said


def test_the_trace_holds_every_trial_and_the_answer(tmp_path: Path) -> None:
    made, ran = ended()
    made.finish(tmp_path)
    written: dict[str, Any] = json.loads((tmp_path / "search.json").read_text())
    assert written["version"] == 1
    assert written["asked"] == {"objective": "time", "budget": "60runs", "axes": ["gpus=1,2"]}
    tried = [row for row in written["trials"] if row["run"]]
    assert [row["setting"] for row in tried] == [job.config.search.setting for job in ran]
    assert {key: written["answer"]["named"][key] for key in BEST} == BEST
    assert [group["group"] for group in written["answer"]["groups"]] == [1, 2]
    assert answer_in(tmp_path) == written["answer"]
    assert written["answer"]["words"] == made.words()
    assert answer_in(tmp_path / "nowhere") is None


def test_the_trace_of_a_search_that_runs_says_that_there_is_no_answer_yet(tmp_path: Path) -> None:
    made = search()
    run(made, most=3)
    made.write(tmp_path)
    known = answer_in(tmp_path)
    assert known
    assert known["words"] == "No answer yet, after 3 runs."


@pytest.mark.pictures
def test_a_landscape_has_a_panel_for_each_number_of_gpus() -> None:
    def trial(gpus: int, batch_size: int, lr: float) -> SearchTrial:
        return SearchTrial({"gpus": gpus, "batch_size": batch_size, "lr": lr}, 1, "explore", state="reached", value=lr)

    known = [(1, trial(1, 8, 0.1), 3.0), (2, trial(4, 16, 0.2), 1.0), (3, trial(4, 8, 0.2), 2.0)]
    sizes, rates = Axis("batch_size", choices=(8, 16)), Axis("lr", low=0.1, high=0.2)
    *panels, _ = pictures.landscape(known, sizes, rates, "time").axes
    assert [panel.get_title() for panel in panels] == ["gpus=1", "gpus=4"]
    assert panels[0].get_ylim() == panels[1].get_ylim()
    scales = {(each.get_clim()) for panel in panels for each in panel.collections}
    assert scales == {(1.0, 3.0)}, "one scale of colours"


@pytest.mark.pictures
def test_its_pictures_are_drawn(tmp_path: Path) -> None:
    made, _ = ended()
    made.finish(tmp_path)
    assert {path.name for path in tmp_path.glob("*.png")} == {
        "search_progress.png", "search_landscape.png", "search_front.png",
    }  # fmt: skip


def test_the_front_is_of_what_was_decided_and_no_setting_on_it_missed(tmp_path: Path) -> None:
    def of(gpus: int, phase: str, state: str = "reached") -> SearchTrial:
        return SearchTrial({"gpus": gpus}, 1, phase, 1 if phase == "decide" else 0, state=state)

    lucky, named, unsteady = of(2, "explore"), of(4, "decide"), of(1, "decide")
    points = [fronts.Point(lucky, 15.0, 1.0), fronts.Point(named, 15.6, 2.0), fronts.Point(unsteady, 20.0, 0.5)]
    assert fronts.front_of(points) == [(named, 15.6, 2.0), (unsteady, 20.0, 0.5)]
    steady = fronts.means(points[1:], [named, unsteady, of(1, "decide", "missed")])
    assert steady == points[1:2]
    pictures.write_front(tmp_path, steady, ("time", "cost"))
    assert not (tmp_path / "search_front.png").exists(), "one setting has no front"


def test_a_full_disk_ends_a_search_with_what_it_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = search()
    run(made, most=3)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(sweep, "extend", full)
    num_jobs = len(made.jobs)
    assert made.next_jobs(tmp_path) == []
    assert len(made.jobs) == num_jobs, "no run is made that the folder does not know of"
    assert made.words().startswith("The search ended early: [Errno 28] No space left on device.")
