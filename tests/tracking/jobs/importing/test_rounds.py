"""MLPerf's logs of all rounds: scores by the rules' counts, and figures in epochs and samples whatever a log counts."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.tracking.jobs.importing.logs import Said, figures, imported, lines, scores, simple, written
from tracking.analysis import mlperf
from tracking.analysis.mlperf import Score
from tracking.cli import main
from tracking.record import journal, run_folder


def retinanet(run: int) -> list[str]:
    """NVIDIA's of v5.0: 4,572 batches of 256 an epoch, epochs from 0, evaluations that say how many are completed."""
    said: list[Said] = []
    for epoch, value in enumerate((0.24, 0.30, 0.33, 0.347)):
        at, end, count = 300 * epoch, 300 * epoch + 290, {"epoch_num": epoch + 1}
        said += [
            (at, "epoch_start", epoch, {"epoch_num": epoch}), (end, "epoch_stop", epoch, {"epoch_num": epoch}),
            (end, "eval_start", None, count), (end + 9, "eval_accuracy", value, count),
            (end + 9.5, "eval_stop", None, count),
        ]  # fmt: skip
    said.append((1200 + run, "run_stop", None, {"status": "success"}))
    return lines("retinanet", said, run, train_samples=4572, eval_samples=97, global_batch_size=256, opt_name="adam")


def test_retinanet_has_its_target_its_five_runs_and_the_images_of_its_batches(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (score,) = scores(tmp_path, map(retinanet, range(5)), capsys)
    assert (score["seconds"], score["num_needed"], score["num_missing"]) == (1202, 5, 0)
    result, tags = imported(tmp_path / "one", retinanet(0))
    assert result.targets == {"box_map": 0.34}
    assert result.metrics["throughput/samples_per_sec"] == pytest.approx(4572 * 256 / 290)
    assert result.metrics["epochs/to_accuracy"] == 4
    assert "program.not_understood" not in tags


def test_three_runs_of_a_large_language_model_are_a_score_and_its_loss_is_to_be_low(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = [simple("llama31_405b", 5000 + 100 * run, [5.76, 5.65, 5.587], run) for run in range(3)]
    (score,) = scores(tmp_path, logs, capsys)
    assert (score["seconds"], score["verdict"]) == (5100, "5,100.00 s, the olympic mean of 3 runs")
    assert figures(tmp_path / "one", logs[0])["time/to_accuracy_sec"] == 5000


def score_of(logs: Iterable[Iterable[str]]) -> Score:
    """The score of many logs, without their runs."""
    (score,) = mlperf.scores([(f"run{run}", "\n".join(texts), {}) for run, texts in enumerate(logs)])
    return score


def test_of_forty_runs_of_unet3d_four_are_dropped_at_each_end_and_four_may_miss() -> None:
    logs = [
        simple(
            "unet3d", 300 + 10 * (7 * run % 40), [0.8, 0.9085], run, "aborted" if run in (3, 11, 22, 35) else "success"
        )
        for run in range(40)
    ]
    score = score_of(logs)
    assert score.seconds == pytest.approx(511.5625)
    assert "40 runs without the 4 fastest and slowest (4 missed the target" in score.verdict


def test_a_run_without_run_stop_missed_and_those_behind_it_are_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    logs = [simple("bert", 1000 + run, [0.6, 0.721], run, None if run == 2 else "success") for run in range(10)]
    (score,) = scores(tmp_path, logs, capsys)
    assert (score["num_missed"], score["seconds"]) == (1, pytest.approx(1005.375))
    result, tags = imported(tmp_path / "one", logs[2])
    assert result.metrics["target_reached"] == 0
    assert tags["import.note"].startswith("the log has no run_stop")
    assert tags["program.not_understood"] == "evaluations that reach the target, in a run without run_stop: 1"


def blocks(*said: tuple[int, int], evaluated: tuple[int, ...], **before: Any) -> list[str]:
    """A log with a block of ten seconds for each first_epoch_num and epoch_count, with an evaluation behind it."""
    told: list[Said] = []
    for place, ((first, count), number) in enumerate(zip(said, evaluated, strict=True)):
        at, end = {"first_epoch_num": first, "epoch_count": count}, 10 * place + 8
        told += [(10 * place, "block_start", None, at), (end, "block_stop", None, at)]
        value = 0.92 if place == len(said) - 1 else 0.5
        told += [(end + 1, "eval_accuracy", value, {"epoch_num": number})]
    told.append((10 * len(said), "run_stop", None, {"status": "success"}))
    return lines("unet3d", told, **{"train_samples": 168, "global_batch_size": 56} | before)


@pytest.mark.parametrize(
    ("said", "evaluated"),
    [
        (((0, 20), (20, 20), (40, 20)), (20, 40, 60)),  # from 0, evaluations say how many are completed
        (((0, 20), (20, 20), (40, 20)), (19, 39, 59)),  # from 0, evaluations bear the last one's number
        (((1, 20), (20, 20), (40, 20)), (20, 40, 60)),  # as NVIDIA's
        (((1, 20), (21, 20), (41, 20)), (20, 40, 60)),
        (((168, 3360), (3360, 3360), (6720, 3360)), (3360, 6720, 10080)),  # samples, as NVIDIA's of v3.1
        (((1, 20), (20, 20), (40, 20)), (3360, 6720, 10080)),  # samples in evaluations alone
    ],
)
def test_however_epochs_are_counted_they_are_sixty(
    tmp_path: Path, said: tuple[tuple[int, int], ...], evaluated: tuple[int, ...]
) -> None:
    made = figures(tmp_path, blocks(*said, evaluated=evaluated))
    assert (made["epochs/to_accuracy"], made["epochs/trained"]) == (60, 60)
    assert made["time/epoch_sec"] == pytest.approx(0.4)
    assert made["throughput/samples_per_sec"] == pytest.approx(20 * 168 / 8)


@pytest.mark.parametrize("count", [9_000, 3360 * 168, 2**52])
def test_a_log_is_linear_in_space_whatever_number_of_epochs_it_says(tmp_path: Path, count: int) -> None:
    texts = blocks(*[(1 + place * count, count) for place in range(40)], evaluated=tuple(range(1, 41)))
    result, _ = imported(tmp_path, texts)
    (folder,) = (tmp_path / "runs").iterdir()
    assert len(journal.events(folder / run_folder.JOURNAL)) < 3 * len(texts)
    assert result.metrics["target_reached"] == 1


def test_what_is_counted_in_no_unit_that_is_known_is_absent_and_named(tmp_path: Path) -> None:
    strange = lines(
        "maskrcnn",
        [
            (0, "epoch_start", None, {"epoch_num": 1}), (40, "epoch_stop", None, {"epoch_num": 1}),
            (45, "eval_accuracy", {"BBOX": 0.38, "SEGM": 0.34}, {"epoch_num": 1}),
            (50, "run_stop", None, {"status": "success"}),
            (90, "eval_accuracy", {"BBOX": 0.39, "SEGM": 0.35}, {"epoch_num": 2}),
        ],
        train_samples=40_000, global_batch_size=96,
    )  # fmt: skip
    result, tags = imported(tmp_path, strange)
    assert not [key for key in result.metrics if key.startswith("throughput/")]
    assert result.metrics["time/to_accuracy_sec"] == 45
    named = tags["program.not_understood"]
    assert "train_samples 40,000, but an epoch of maskrcnn has 117,266 to 118,287: no throughput" in named
    assert "evaluations after run_stop: 1" in named


def test_evaluations_in_fractions_of_an_epoch_say_how_much_of_the_last_one_was_trained(tmp_path: Path) -> None:
    said: list[Said] = [(0, "epoch_start", None, {"epoch_num": 0})]
    for place, value in enumerate((0.8, 0.801, 0.8029), 1):
        said.append((10 * place, "eval_accuracy", value, {"epoch_num": 0.25 * place}))
    said += [(31, "epoch_stop", None, {"epoch_num": 0}), (31, "run_stop", None, {"status": "success"})]
    made = figures(tmp_path, lines("dlrm_dcnv2", said, train_samples=4_195_197_692))
    assert (made["epochs/to_accuracy"], made["epochs/trained"]) == (0.75, 0.75)


def test_metrics_that_a_log_says_apart_and_when_the_training_is_over_reach_the_target_together(tmp_path: Path) -> None:
    said: list[Said] = [(100, "run_stop", None, {"status": "success"})]
    for model, (fid, clip) in enumerate(((95.0, 0.14), (88.0, 0.16)), 1):
        at = {"samples_count": 512_000 * model}
        said += [(200 * model, "eval_accuracy", fid, at | {"metric": "FID"})]
        said += [(200 * model + 50, "eval_accuracy", clip, at | {"metric": "CLIP"})]
    result, tags = imported(tmp_path, lines("stable_diffusion", said))
    assert result.metrics["time/to_accuracy_sec"] == 100
    (evaluated,) = result.evaluations
    assert (evaluated["metrics"], evaluated["step"]) == ({"fid": 88.0, "clip": 0.16}, 1_024_000)
    assert tags["program.not_understood"] == "evaluations after run_stop: 1"


@pytest.mark.parametrize(
    ("benchmark", "before", "target"),
    [
        ("ssd", {}, {"box_map": 0.23}),
        ("ssd", {"opt_name": "adam"}, {"box_map": 0.34}),
        ("mask", {}, {"box_map": 0.377, "mask_map": 0.339}),
        ("bert", {"global_batch_size": 8192}, {"accuracy": 0.72}),
        ("gnn", {}, {"accuracy": 0.72}),
        ("flux1", {}, {"loss": "<=0.586"}),
        ("flux1", {"target_accuracy": 0.6}, {"loss": "<=0.6"}),
        ("oc20", {}, {"forces_mean_absolute_error": "<=0.036"}),
        ("somebodys_own", {"target_accuracy": 0.6}, {}),  # the side is not known
    ],
)
def test_the_target_is_the_logs_own_or_that_of_its_round(
    tmp_path: Path, benchmark: str, before: dict[str, Any], target: dict[str, Any]
) -> None:
    said: list[Said] = [(9, "eval_accuracy", 0.5, {}), (10, "run_stop", None, {"status": "success"})]
    result, _ = imported(tmp_path, lines(benchmark, said, **before))
    assert result.targets == target


def test_berts_target_of_the_first_round_is_that_of_its_batch(tmp_path: Path) -> None:
    for batch, target in ((4096, 0.712), (8192, 0.706)):
        texts = lines("bert", [(9, "eval_accuracy", 0.71, {}), (10, "run_stop", None, {})], global_batch_size=batch)
        of_2020 = [text.replace("1700000", "1594000") for text in texts]
        result, _ = imported(tmp_path / str(batch), of_2020)
        assert result.targets == {"accuracy": target}


def ncf(run: int, reached: bool) -> list[str]:
    """A log of v0.5 of NCF."""
    begin = 1_541_000_000 + 1000 * run
    said = [(0, "eval_target: 0.635"), (0, "run_start"), (20 + run, f'run_stop: {{"success": {str(reached).lower()}}}')]
    return [f":::MLPv0.5.0 ncf {begin + second}.0 (ncf.py:1) {words}" for second, words in said]


def test_of_ncfs_hundred_runs_the_first_fifty_that_converge_count() -> None:
    """Rules of v0.5, section "Benchmark Results": "Run 100, use first 50 that converge"."""
    score = score_of(ncf(run, reached=run % 5 > 0) for run in range(100))
    converged = [20 + run for run in range(100) if run % 5][:50]
    assert score.seconds == pytest.approx(sum(converged[1:-1]) / 48)
    assert score.verdict.endswith("s, the olympic mean of the first 50 of 100 runs that reached the target")
    score = score_of(ncf(run, reached=run >= 51) for run in range(100))
    assert (score.seconds, score.verdict) == (None, "invalid: 51 of 100 runs did not reach the target, but 50 must")


def test_a_benchmark_without_rules_has_no_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (score,) = scores(tmp_path, [simple("somebodys_own", 10, [0.5], run) for run in range(10)], capsys)
    assert (score["seconds"], score["num_needed"]) == (None, 0)
    assert score["verdict"].startswith("no score: the rules for benchmark somebodys_own")


def test_minigo_of_v0_6_ends_when_the_model_was_made_that_wins(tmp_path: Path) -> None:
    texts = [
        ':::MLL 1560822000.0 submission_benchmark: {"value": "minigo", "metadata": {}}',
        ':::MLL 1560822993.5 run_start: {"value": null, "metadata": {}}',
        ':::MLL 1560828319.25 eval_accuracy: {"value": 0.51, "metadata": {"epoch_num": 19}}',
        ':::MLL 1560828319.25 eval_result: {"value": null, "metadata": {"iteration": 19, "timestamp": 1725.5}}',
    ]
    assert figures(tmp_path, texts)["time/to_accuracy_sec"] == 1725.5


def test_lines_that_cannot_be_read_are_named_and_the_others_count(tmp_path: Path) -> None:
    texts = simple("bert", 100, [0.73])
    texts.insert(3, ':::MLLOG {"time_ms": 17000')
    _, tags = imported(tmp_path, texts)
    assert tags["program.unread_lines"].startswith("1: a line of MLPerf's log cannot be read")


def test_files_behind_one_that_is_no_log_are_imported_and_it_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = [written(tmp_path / f"{run}.txt", simple("bert", 100, [0.73], run)) for run in range(2)]
    files.insert(1, written(tmp_path / "none.txt", ["words"]))
    assert main(["import", *map(str, files), "--gpus", "8", "--runs-dir", str(tmp_path / "runs")]) == 2
    assert "none.txt: holds no line of MLPerf's log" in capsys.readouterr().err
    assert len(list((tmp_path / "runs").iterdir())) == 2


def test_what_lies_before_the_last_start_is_of_no_run_and_named(tmp_path: Path) -> None:
    texts = simple("bert", 100, [0.5, 0.73])
    early = lines("bert", [(-50, "eval_accuracy", 0.8, {"samples_count": 1}), (-40, "block_start", None, {})])
    result, tags = imported(tmp_path, [*early, *texts])
    assert result.metrics["time/to_accuracy_sec"] == 100
    assert tags["program.not_understood"] == "evaluations before run_start: 1"


def test_a_metrics_name_of_any_kind_is_no_end_of_an_import(tmp_path: Path) -> None:
    said: list[Said] = [(9, "eval_accuracy", 0.73, {"metric": ["a"], "epoch_num": {}}), (10, "run_stop", None, {})]
    assert imported(tmp_path, lines("bert", said))[0].metrics["eval/best_accuracy"] == 0.73
