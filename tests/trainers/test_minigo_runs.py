"""MiniGo from the command line, over two processes: what a generation leaves in the journal and in the folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.support.commands import Launched, events, launch
from tests.support.composing import composed
from tests.support.mlperf_checker import complaints
from tests.trainers.models.minigo_parts import RULES, minigo
from tracking.analysis import mlperf
from tracking.analysis.audit.audit import audit
from tracking.analysis.report import report
from tracking.analysis.results.folder_runs import FolderRuns
from tracking.record import journal, run_folder
from trainers.models.minigo.positions import Positions

HPARAMS = {
    "board": 3, "filters": 4, "blocks": 1, "dense": 8, "games": 5, "readouts": 4, "leaves": 2, "examples": 64,
    "gate_games": 4, "match_readouts": 4, "match_leaves": 2, "eval_games": 4, "opponents": "[random]",
}  # fmt: skip


OPTIONS = (
    "model=minigo", "recipe=minigo_cpu", "batch_size=8", "target=1.0", "gpus=0", "cpu_processes=2",
    "~model.targets.selfplay.wins_one_ply", "checkpoint_every_epochs=1", "tracking.offline=true",
    "tracking.system_metrics_interval_sec=0", *(f"model.hparams.{name}={value}" for name, value in HPARAMS.items()),
)  # fmt: skip


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Launched:
    folder = tmp_path_factory.mktemp("minigo")
    return launch(folder, *OPTIONS, "max_epochs=2", "eval_at_epochs=[2]", TIMETRIAL_CACHE=str(folder / "cache"))


@pytest.mark.slow
def test_a_generation_is_an_epoch_and_its_rates_have_names_of_their_own(run: Launched) -> None:
    assert run.code == 0, run.output
    assert [event.values["samples"] for event in events(run.folder, "epoch_stop")] == [64, 64]
    assert [event.value for event in events(run.folder, "eval_samples")] == [4]
    assert [evaluation["metrics"].keys() for evaluation in run.result["evaluations"]] == [{"wins_random"}]
    assert run.result["unit"] == "positions"
    lines = [json.loads(line) for line in (run.folder / "journal.jsonl").read_text().splitlines()]
    logged = [line["values"] for line in lines if line["kind"] == "metrics" and "selfplay/sec" in line["values"]]
    assert len(logged) == 2
    for values in logged:
        seconds = values["selfplay/sec"]
        assert values["selfplay/games_per_sec"] * seconds == pytest.approx(5)
        moves = values["selfplay/moves_per_sec"] * seconds
        assert values["selfplay/moves_per_game"] == pytest.approx(moves / 5)
        assert values["selfplay/evaluations_per_sec"] * seconds >= 4 * moves - 1e-6
    gates = [line["values"] for line in lines if line["kind"] == "metrics" and "gate/sec" in line["values"]]
    assert all(0 <= values["gate/win_rate"] <= 1 for values in gates)
    total, shares = run.result["bottleneck"]["total_sec"], run.result["bottleneck"]["shares"]
    assert shares["selfplay"] == pytest.approx(sum(values["selfplay/sec"] for values in logged) / total, abs=1e-3)
    assert shares["gate"] == pytest.approx(sum(values["gate/sec"] for values in gates) / total, abs=1e-3)
    assert checked(run.folder) == []


def checked(folder: Path) -> list[str]:
    """What the audit of a report finds in which it differs from the journal."""
    store = FolderRuns([folder])
    made = report.make(store, ["timetrial"], store.find(["timetrial"]), ["model"])
    return audit(made.plain(), [folder]).differences


@pytest.mark.slow
def test_the_folder_has_elo_against_generation(run: Launched) -> None:
    rows = (run.folder / "elo.csv").read_text().splitlines()
    assert [row.split(",")[0] for row in rows] == ["generation", "1", "2"]
    lines = [json.loads(line) for line in (run.folder / "journal.jsonl").read_text().splitlines()]
    tagged = [line.get("values", {}).get("champion_digest", "") for line in lines if line["kind"] == "tags"]
    assert [len(digest) for digest in tagged if digest] == [16]
    assert (run.folder / "mlperf.log").read_text().count('"train_batch_size"') == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "metrics", "refused"),
    [
        ((), {"pro_moves": 0.41}, {"min_selfplay_games_per", "actual_selfplay_games_per", "eval_accuracy"}),
        (("model.hparams.games=8192",), {"pro_moves": 0.41}, {"eval_accuracy"}),
        (("model.hparams.games=8192",), {"pro_moves": 0.51}, set()),
    ],
    ids=["MLPerf v0.5's target", "more games", "a higher target, too"],
)
def test_mlperfs_checker_complains_of_the_number_of_games_and_the_target_alone(
    run: Launched, options: tuple[str, ...], metrics: dict[str, float], refused: set[str], tmp_path: Path
) -> None:
    """Uses the events of another run: only the options and the metric are the definition's."""
    config = composed(["model=minigo", "gpus=0", *options])
    evaluated = [
        replace(event, values={**event.values, "metrics": metrics}) if event.key == "eval_accuracy" else event
        for event in journal.events(run.folder / run_folder.JOURNAL)
    ]
    lines = "\n".join(mlperf.lines(config, evaluated, {}))
    closed = lines.replace('"submission_division", "value": "open"', '"submission_division", "value": "closed"')
    (tmp_path / "mlperf.log").write_text(closed + "\n")
    sentences = complaints(tmp_path / "mlperf.log")
    assert len(sentences) == len(refused)
    assert all(any(key in sentence for sentence in sentences) for key in refused)


@pytest.mark.slow
def test_a_run_that_failed_between_generations_goes_on_to_the_same_network(tmp_path: Path) -> None:
    """Two processes, each with its own window; the third generation draws positions from all three."""
    failing = (
        "model.workload=tests.workloads.failing_minigo:WORKLOAD",
        "max_epochs=3",
        "eval_at_epochs=[3]",
        "save_model=final",
    )
    mended = tmp_path / "mended"
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
    interrupted = launch(tmp_path / "first", *OPTIONS, *failing, MENDED=str(mended))
    assert interrupted.result["failure"]["kind"] == "error", interrupted.output
    mended.touch()
    resumed = launch(tmp_path / "first", f"resume={interrupted.folder}", MENDED=str(mended))
    whole = launch(tmp_path / "second", *OPTIONS, *failing, MENDED=str(mended))
    assert (resumed.code, whole.code) == (0, 0), resumed.output + whole.output
    assert [event.values["epoch_num"] for event in events(resumed.folder, "resume")] == [2]
    matches, of_whole = ((each.folder / "elo.csv").read_text() for each in (resumed, whole))
    assert matches == of_whole
    assert matches.count("\n") == 4
    weights, of_whole_run = (
        torch.load(each.folder / "model.pt", weights_only=True)["state_dict"] for each in (resumed, whole)
    )
    assert weights.keys() == of_whole_run.keys()
    assert all(torch.equal(tensor, of_whole_run[name]) for name, tensor in weights.items())


def test_a_checkpoint_holds_the_window_and_the_matches(tmp_path: Path) -> None:
    before, after = minigo(), minigo()
    positions = Positions.room(7, RULES, torch.device("cpu"))
    before._window.add(positions._replace(outcomes=torch.arange(7, dtype=torch.int8)))
    before.history.add(3, 6, promoted=True)
    content = {"state_dict": before.state_dict()}
    before.on_save_checkpoint(content)
    torch.save(content, tmp_path / "checkpoint")
    after.on_load_checkpoint(torch.load(tmp_path / "checkpoint", weights_only=True))
    after._window.restore(after._restored, torch.device("cpu"))
    assert after._window.content()["outcomes"].tolist() == list(range(7))
    assert after.history.rows == before.history.rows


def test_the_definitions_defaults_are_mlperfs() -> None:
    config = composed(["model=minigo"])
    assert config.dataset.name == "selfplay"
    assert config.targets() == {"pro_moves": 0.4}
    assert config.model.hparams["pro_moves"] is True
    reference = composed(["model=minigo", "recipe=minigo_reference"])
    assert reference.targets() == config.targets()
    names = ("games", "readouts", "examples", "window", "gate")
    assert [reference.model.hparams[name] for name in names] == [2000, 200, 100_000, 2_000_000, 0.55]
    assert composed(["model=minigo", "recipe=minigo_cpu"]).targets() == {"wins_random": 0.9, "wins_one_ply": 0.9}
    frozen = composed(["model=minigo", "recipe=minigo_frozen", "model.hparams.frozen=m"])
    assert frozen.targets() == {"wins_frozen": 0.5}
