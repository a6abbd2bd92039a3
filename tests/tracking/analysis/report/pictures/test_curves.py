"""Curves over the clock: they begin where the clock began, and each target metric has one."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from conf.target import Target
from tests.support import studied
from tests.support.studied import START_MS, SWEEP, Writer, config, make_run, make_sweep
from tracking.analysis.report import page, report
from tracking.analysis.report.pictures import charts
from tracking.analysis.report.pictures.plot import Plot
from tracking.analysis.report.report import Report
from tracking.analysis.results import FolderRuns, Run, Runs
from tracking.analysis.results.runs import Progress
from tracking.record import documents, run_folder
from tracking.record.journal import Journal
from tracking.record.run_folder import Result, RunInfo
from tracking.store.mirror import RUN_START_TAG, log_batches

# When the clock started, in seconds of the journal: 1,000 s after the command.
BEGAN = 1000.0
BOXES, MASKS = (0.5, 0.61, 0.64, 0.66), (0.3, 0.45, 0.55, 0.62)  # after 100, 200, 300 and 400 s
AT = [100.0, 200.0, 300.0, 400.0]


class AsInMlflow(FolderRuns):
    """Runs as MLflow has them of a version that did not say when their clock started."""

    def find(self, selectors: Iterable[str], progress: Progress | None = None) -> list[Run]:
        runs = super().find(list(selectors), progress)
        return [replace(run, tags={key: tag for key, tag in run.tags.items() if key != RUN_START_TAG}) for run in runs]


def two_metrics(root: Path, seeds: Iterable[int] = (1,), targets: dict[str, Target] | None = None) -> None:
    """A run a seed that reaches its target of boxes after 200 s, and that of masks after 400 s."""
    sweep = make_sweep(root, SWEEP, "sqlite:///none.db", 1)
    for seed in seeds:
        asked = config(seed=seed, model="maskrcnn")
        asked.model.targets = {"digits": targets or {"box_map": 0.6, "mask_map": 0.6}}
        folder = run_folder.create(sweep, f"run{seed}")
        info = RunInfo(f"run{seed}", "studies", "sqlite:///none.db", parent="..", created_ms=START_MS)
        documents.write_json(folder / run_folder.RUN, info)
        run_folder.write_config(folder, asked)
        log = Writer(folder / run_folder.JOURNAL, START_MS)
        names, values = (",".join(map(str, part)) for part in zip(*asked.targets().items(), strict=True))
        told = {"model": "maskrcnn", "dataset": "digits", "seed": seed, "target_metric": names, "target_value": values}
        log.add("params", 0.0, values=told)
        log.add("tags", 0.0, values={"sweep": SWEEP, "env.gpu": "NVIDIA H200"})
        log.event("run_start", BEGAN)
        for epoch, (sec, boxes, masks) in enumerate(zip(AT, BOXES, MASKS, strict=True), 1):
            step, now = 10 * epoch, BEGAN + sec
            log.add("metrics", now - 20, step=step, values={"train/loss": 1.0 / epoch})
            system = {"system/gpu_0_utilization_percentage": 100.0}
            log.add("metrics", now - 50, step=epoch, values=system)
            log.event("eval_start", now - 20, epoch_num=epoch)
            evaluated = {"box_map": boxes, "mask_map": masks}
            log.event("eval_accuracy", now, epoch_num=epoch, step=step, metrics=evaluated)
            values = {f"eval/{name}": value for name, value in evaluated.items()} | {"epoch": float(epoch)}
            log.add("metrics", now, step=step, values=values)
            log.event("eval_stop", now, epoch_num=epoch)
        # Idle before the clock and behind it: these count in no mean.
        for step, sec in ((0, BEGAN - 30), (5, BEGAN + 450)):
            log.add("metrics", sec, step=step, values={"system/gpu_0_utilization_percentage": 0.0})
        log.event("run_stop", BEGAN + 400)
        metrics = {"time/to_accuracy_sec": 400.0, "time/train_sec": 320.0, "time/eval_sec": 80.0}
        metrics |= {"time/init_sec": 7.0, "target_reached": 1.0, "epochs/to_accuracy": 4.0}
        log.add("metrics", BEGAN + 401, values=metrics)
        documents.write_json(folder / run_folder.RESULT, Result("finished", metrics=metrics, targets=asked.targets()))


def made(store: Runs) -> Report:
    return report.make(store, [SWEEP], store.find([SWEEP]))


def picture(of: Report, name: str) -> Plot:
    return next(plot for plot in of.plots if plot.name == name)


@pytest.fixture(params=[FolderRuns, AsInMlflow])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Runs:
    two_metrics(tmp_path)
    kind: type[FolderRuns] = request.param
    return kind([tmp_path])


def test_every_target_metric_has_its_curve_from_the_start_of_the_clock_and_its_target(store: Runs) -> None:
    panels = picture(made(store), "1-accuracy").panels
    assert [(panel.y, panel.x, panel.target) for panel in panels] == [
        ("box_map", "epoch", 0.6), ("box_map", "time since the clock started (s)", 0.6),
        ("mask_map", "epoch", 0.6), ("mask_map", "time since the clock started (s)", 0.6),
    ]  # fmt: skip
    for panel, values in zip(panels, (BOXES, BOXES, MASKS, MASKS), strict=True):
        (line,) = panel.lines.values()
        assert [point.y for point in line] == list(values)
        assert [point.x for point in line] == pytest.approx([1, 2, 3, 4] if panel.x == "epoch" else AT)


def test_elo_is_over_generations_and_one_that_was_played_again_counts_once(store: Runs, tmp_path: Path) -> None:
    (folder,) = (path.parent for path in tmp_path.glob("*/*/journal.jsonl"))
    log = Writer(folder / run_folder.JOURNAL, START_MS)
    for step, sec, elo in ((10, 50.0, 3.5), (20, 150.0, -9.0), (20, 250.0, 8.0), (30, 350.0, 70.0)):
        log.add("metrics", BEGAN + sec, step=step, values={"gate/elo": elo})
    of = made(store)
    ((panel,), caption) = (getattr(picture(of, "1-elo"), name) for name in ("panels", "caption"))
    (line,) = panel.lines.values()
    assert [(point.x, point.y) for point in line] == [(1, 3.5), (2, 8.0), (3, 70.0)]
    assert "the best one before" in caption


def test_utilisation_and_its_means_are_of_the_same_clock(tmp_path: Path) -> None:
    two_metrics(tmp_path)
    two_metrics(tmp_path, seeds=(2,), targets={"mask_map": 0.6})
    of = made(FolderRuns([tmp_path]))
    gpu, *_, ends = picture(of, "1-utilisation").panels
    assert gpu.y == "GPU utilisation (%)"
    (line,) = gpu.lines.values()
    assert [point.x for point in line] == pytest.approx([-30, 50, 150, 250, 350, 450])
    (spans,) = ends.lines.values()
    assert [(span.x, span.y) for span in spans] == [pytest.approx((end - 20, end)) for end in AT]
    means = picture(of, "mean-utilisation").panels[0].lines
    assert [mean.y for (mean,) in means.values()] == [100.0, 100.0]


def test_a_single_mean_of_utilisation_is_not_drawn(store: Runs) -> None:
    assert not any(plot.name == "mean-utilisation" for plot in made(store).plots)


def test_a_run_that_is_older_and_missed_its_target_begins_where_its_command_had_made_it(tmp_path: Path) -> None:
    two_metrics(tmp_path, targets={"box_map": 0.6, "mask_map": 0.9})
    for path in tmp_path.rglob("journal.jsonl"):
        path.write_text(path.read_text().replace('"time/to_accuracy_sec": 400.0, ', ""))
    (*_, panel) = picture(made(AsInMlflow([tmp_path])), "1-accuracy").panels
    (line,) = panel.lines.values()
    assert [point.x for point in line] == pytest.approx([BEGAN - 7 + sec for sec in AT])
    assert panel.target == 0.9


def test_a_target_of_at_most_is_met_and_drawn_as_one(tmp_path: Path) -> None:
    two_metrics(tmp_path, targets={"box_map": "<=0.7", "mask_map": 0.6})
    panels = picture(made(AsInMlflow([tmp_path])), "1-accuracy").panels
    assert [panel.target for panel in panels] == ["<=0.7", "<=0.7", 0.6, 0.6]
    assert [point.x for points in panels[1].lines.values() for point in points] == pytest.approx(AT)
    figure = charts.accuracy(panels)
    assert [axes.texts[0].get_text() for axes in figure.axes] == [
        "target 0.7",
        "target 0.7",
        "target 0.6",
        "target 0.6",
    ]


def test_the_data_of_a_picture_lie_beside_it(tmp_path: Path) -> None:
    two_metrics(tmp_path, seeds=(1, 2, 3))
    of = made(FolderRuns([tmp_path]))
    written = page.write(of, tmp_path / "out")
    pictures = {path.stem for path in written if path.suffix == ".png"}
    assert {"report-1-accuracy", "report-1-reached", "report-1-utilisation"} <= pictures
    for name in pictures:
        data = json.loads((tmp_path / "out" / f"{name}.json").read_text())
        assert f"report-{data['name']}" == name
        assert data["panels"]
        assert all(line["x"] or "given up" in panel["title"] for panel in data["panels"] for line in panel["lines"])
    (accuracy,) = (json.loads(path.read_text()) for path in written if path.name == "report-1-accuracy.json")
    ids = {run.id for run in of.runs}
    assert accuracy["workload"] == of.tasks[0].title
    for panel in accuracy["panels"]:
        assert panel["key"] == f"eval/{panel['y']}"
        assert {line["run"] for line in panel["lines"]} <= ids
    assert accuracy["panels"][3]["lines"][0]["x"] == pytest.approx(AT)


def test_the_start_of_the_clock_is_a_tag_and_of_a_resumed_run_the_first_one(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    log = Journal(path)
    first = log.event("run_start")
    (batch,) = log_batches(path, 0)
    assert batch.tags == {RUN_START_TAG: str(first.time_ms)}
    log.event("resume", epoch_num=1)
    Writer(path, START_MS).event("run_start", 5.0)
    (later,) = log_batches(path, batch.offset)
    assert later.tags == batch.tags


@pytest.mark.pictures
def test_a_metric_more_is_a_row_of_panels_more(tmp_path: Path) -> None:
    two_metrics(tmp_path)
    tall = picture(made(FolderRuns([tmp_path])), "1-accuracy").png
    sweep = make_sweep(tmp_path / "one", SWEEP, "sqlite:///none.db", 1)
    make_run(sweep, studied.config(), "sqlite:///none.db")
    low = picture(made(FolderRuns([tmp_path / "one"])), "1-accuracy").png
    heights = [int.from_bytes(png[20:24]) for png in (low, tall)]
    assert heights[1] > 1.5 * heights[0]
