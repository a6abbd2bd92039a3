"""Reports on a few runs each: the settings that are told apart, the test that does it, and the sentences."""

from __future__ import annotations

import functools
import json
import re
import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.few_runs import repeated, written
from tests.support.studied import to_accuracy
from tracking.analysis.audit.audit import audit
from tracking.analysis.report import page, sentences
from tracking.analysis.report.report import Report


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Report]:
    return functools.partial(written, tmp_path)


def test_settings_that_differ_are_ranked_and_those_that_do_not_are_not(make: Callable[..., Report]) -> None:
    runs = repeated(config={"precision": "fp32"}, steps=(0.100, 0.101, 0.102))
    runs += repeated(config={"precision": "bf16"}, steps=(0.050, 0.051, 0.052))
    runs += repeated(config={"precision": "fp16"}, steps=(0.049, 0.051, 0.0535))
    made = make(runs)
    assert made.axes == ["precision"]
    (told,) = [table for table in made.tables if table.title.endswith("which differ")]
    so = {frozenset(row[:2]): row[-1] for row in told.rows}
    same, different = (str(so[frozenset({"precision=bf16", other})]) for other in ("precision=fp16", "precision=fp32"))
    assert re.match(r"cannot be told apart; .* has (1|1\.0\d|0\.9\d+) times the rate \(p = 0\.\d+\)", same)
    # All reach the target at the third evaluation: by times a coin would fall so, and by their rate they differ.
    rate = re.match(r"cannot be told apart; precision=bf16 has 1\.\d+ times the rate \(p = (\S+)\)", different)
    assert rate
    assert float(rate[1]) < 0.05
    assert "That cannot be told apart from fp16 or fp32." in made.answer
    raw, corrected = told.column("p"), told.column("p, corrected")
    assert sorted(corrected)[0] == pytest.approx(3 * min(raw))  # type: ignore[type-var, arg-type]


def test_it_says_how_many_runs_would_tell(make: Callable[..., Report], tmp_path: Path) -> None:
    runs = repeated(config={"precision": "fp32"}, steps=(0.100, 0.104, 0.108))
    made = make(runs + repeated(config={"precision": "bf16"}, steps=(0.097, 0.101, 0.105)), metric="time/epoch_sec")
    (told,) = [table for table in made.tables if table.title.endswith("which differ")]
    words = r"cannot be told apart; (\d+) runs a side \((?:up to [\d,]+|or far more)\) would tell"
    said = re.fullmatch(words, str(told.rows[0][-1]))
    assert said
    # Without the t distribution's tails: two variances, and the quantiles of 97.5 % and 80 % over the distance.
    values = [setting.measured("time/epoch_sec").reached for setting in made.tasks[0].settings]
    apart = abs(statistics.fmean(values[0]) - statistics.fmean(values[1]))
    scatter = statistics.stdev(values[0])
    expected = 2 * (scatter * (1.95996 + 0.84162) / apart) ** 2
    assert expected <= int(said[1]) <= expected + 3
    assert audit(made.plain(), [tmp_path]).differences == []


def test_one_run_a_side_cannot_be_told_apart(make: Callable[..., Report]) -> None:
    made = make([{"config": {"gpus": 1}}, {"config": {"gpus": 2}, "step_sec": 0.01}])
    (pair,) = [pair for _, pair in made.comparisons]
    assert (pair.p, pair.told_apart) == (None, False)
    assert (
        "one run of gpus=2 and of gpus=1; repeat it with other seeds" in sentences.verdict("", made.metric, pair).text
    )
    (headline,) = [each.headline for each in made.answers]
    assert "2 GPUs are quickest so far" in headline
    assert re.search(
        r"One run each is too few to tell; start with 2 more seeds of each \(about \d+ seconds\)\.$", headline
    )


def test_settings_that_are_equal_are_never_better_than_one_another(make: Callable[..., Report]) -> None:
    """By epochs, which are whole numbers, many are."""
    runs = repeated(config={"gpus": 1}, steps=(0.1, 0.11)) + repeated(config={"gpus": 2}, steps=(0.05, 0.06))
    runs += repeated(config={"gpus": 4}, steps=(0.03, 0.04), accuracies=(0.1, 0.2, 0.3, 0.95))
    made = make(runs, metric="epochs/to_accuracy")
    assert "1 GPU is best so far: 3.000 ± 0.000 epochs to accuracy 0.9 (n = 2), about as good as 2 GPUs" in made.answer
    # A coin between three and four epochs falls so, too.
    assert "That cannot be told apart from 2 GPUs or 4 GPUs." in made.answer


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("time/to_accuracy_sec", r"2 GPUs are quickest.*: [\d.]+ ± [\d.]+ s to accuracy 0.9 \(n = 2\)"),
        ("throughput/samples_per_sec", r"2 GPUs are fastest.*: [\d,.]+ ± [\d,.]+ samples/s \(n = 2\)"),
        ("throughput/samples_per_sec_per_device", r"best.* samples/s a device \(throughput/.*, n = 2\), .* as good as"),
        ("throughput/step_ms_p50", r"are best.*: [\d.]+ ± [\d.]+ ms \(throughput/step_ms_p50, n = 2\), .* as good as"),
    ],
)
def test_the_answer_says_a_number_with_its_unit_and_a_true_word_of_it(
    make: Callable[..., Report], tmp_path: Path, metric: str, words: str
) -> None:
    runs = repeated(config={"gpus": 1}, steps=(0.1, 0.11)) + repeated(config={"gpus": 2}, steps=(0.05, 0.06))
    made = make(runs, metric=metric)
    assert re.search(words, made.answer), made.answer
    assert audit(json.loads(json.dumps(made.plain())), [tmp_path]).differences == []


def test_where_no_run_reached_its_target_the_report_says_so_and_shows_what_has_nothing_to_do_with_it(
    make: Callable[..., Report], tmp_path: Path
) -> None:
    made = make(repeated(steps=(0.1, 0.11), accuracies=(0.1, 0.2)))
    assert made.answer == "No run reached accuracy 0.9: 2 missed it."
    assert "0 of 2 reached the target" in " ".join(made.warnings)
    shown = dict(zip(made.tables[0].columns, made.tables[0].rows[0], strict=True))
    assert shown["n"] == "0 of 2"
    assert shown["reached"] == "0 of 2"
    assert shown["devices"] == "1"
    assert shown["samples/s"] == "305 ± 15 (n=2)"
    assert shown["epochs trained"] == "2.000 ± 0.000 (n=2)"
    metrics = next(table for table in made.tables if table.kind == "metrics")
    assert metrics.column("best accuracy") == metrics.column("last accuracy") == ["0.2000 ± 0.0000 (n=2)"]
    assert not {"epochs", "time to accuracy (s)", "cost of a run (USD)"} & set(shown)
    outcome = audit(made.plain(), [tmp_path])
    assert not outcome.differences
    assert page.html(made)


def test_a_setting_of_which_no_run_got_there_is_worse_than_one_that_did(
    make: Callable[..., Report], tmp_path: Path
) -> None:
    runs = repeated(config={"gpus": 1}, steps=(0.1, 0.101, 0.102, 0.103))
    made = make(runs + repeated(config={"gpus": 2}, steps=(0.2, 0.21, 0.22, 0.23), accuracies=(0.1, 0.2, 0.3, 0.4)))
    (pair,) = [pair for _, pair in made.comparisons]
    assert (pair.better.name, pair.worse.name) == ("gpus=1", "gpus=2")
    assert pair.told_apart
    assert "1 GPU is quickest: " in made.answer
    assert "Reached the target: 2 GPUs in 0 of 4 runs." in made.answer
    assert audit(made.plain(), [tmp_path]).differences == []


@pytest.mark.parametrize("failure", [None, "timeout", "nan"])
def test_a_setting_is_not_better_for_losing_its_slow_runs(
    make: Callable[..., Report], tmp_path: Path, failure: str | None
) -> None:
    """Equal times. The later half of one setting's runs missed, timed out or diverged."""
    steps = (0.1, 0.12, 0.14, 0.16, 0.18, 0.2)
    runs = repeated(config={"gpus": 1}, steps=steps[:3])
    lost = {"accuracies": (0.1, 0.2)} if failure is None else {"failure": failure, "failed_after": (0.1, 0.2)}
    for run in repeated(config={"gpus": 1}, steps=steps[3:], **lost):
        runs.append(run | {"config": run["config"] | {"seed": 10 + run["config"]["seed"]}})
    made = make(runs + repeated(config={"gpus": 2}, steps=steps))
    (pair,) = [pair for _, pair in made.comparisons]
    assert pair.better.name == "gpus=2"
    assert not pair.told_apart
    words = (
        "gpus=1: 3 stopped by a time limit" if failure == "timeout" else "gpus=1: 3 of 6 (19-81 %) reached the target"
    )
    assert words in " ".join(made.warnings)
    assert audit(made.plain(), [tmp_path]).differences == []


@pytest.mark.parametrize("metric", ["eval/best_accuracy", "throughput/samples_per_sec"])
def test_a_comparison_is_of_the_runs_that_its_table_is_of(
    make: Callable[..., Report], tmp_path: Path, metric: str
) -> None:
    """Survivors do not win: one setting always reaches its target, the other in two of five runs, by a wider margin."""
    runs = repeated(config={"gpus": 1}, steps=(0.1, 0.101, 0.102, 0.103, 0.104))
    runs += repeated(config={"gpus": 2}, steps=(0.15, 0.151), accuracies=(0.5, 0.8, 0.97))
    for run in repeated(config={"gpus": 2}, steps=(0.9, 0.91, 0.92), accuracies=(0.1, 0.2, 0.1)):
        runs.append(run | {"config": run["config"] | {"seed": 10 + run["config"]["seed"]}})
    made = make(runs, metric=metric)
    (pair,) = [pair for _, pair in made.comparisons]
    assert pair.better.name == "gpus=1"
    assert {setting.measured(metric).n for setting in (pair.better, pair.worse)} == {5}
    shown = {tuple(figure.setting.values()): figure for figure in made.figures if figure.key == metric}
    assert len(shown["2",].runs) == 5
    assert audit(made.plain(), [tmp_path]).differences == []


def test_the_only_setting_that_has_a_metric_is_told_from_one_whose_runs_missed(make: Callable[..., Report]) -> None:
    runs = repeated(config={"gpus": 1}, steps=(0.1, 0.11))
    made = make(
        runs + repeated(config={"gpus": 2}, steps=(0.1, 0.11), accuracies=(0.1, 0.2)), metric="eval/best_accuracy"
    )
    assert "2 GPUs" in made.answer


def test_unequal_budgets_with_one_early_stop_leave_the_shares_alone(
    make: Callable[..., Report], tmp_path: Path
) -> None:
    """Three of three reach the target; of the other setting, with a bigger budget, none does, and one run is stopped
    after an epoch, which no count is cut down to."""
    runs = repeated(config={"gpus": 1}, steps=(0.1, 0.101, 0.102))
    runs += repeated(config={"gpus": 2}, steps=(0.2, 0.21, 0.22), accuracies=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6))
    runs.append({"config": {"gpus": 2, "seed": 9}, "failure": "timeout", "failed_after": (0.1,)})
    made = make(runs)
    first, second = made.tasks[0].settings
    assert made.tables[0].column("reached") == ["3 of 3", "0 of 3; 1 stopped"]
    assert (len(first.measured(made.metric).stopped), len(second.measured(made.metric).stopped)) == (0, 1)
    assert min(second.measured(made.metric).missed) == pytest.approx(to_accuracy(0.2, 6))
    assert audit(made.plain(), [tmp_path]).differences == []


def test_it_says_which_setting_reaches_its_target_more_often(make: Callable[..., Report], tmp_path: Path) -> None:
    """Six of seven runs get there, and none of the other's: nothing is known of a factor."""
    lost = {"accuracies": (0.1, 0.2, 0.3)}
    runs = repeated(config={"gpus": 1}, steps=[0.1 + place / 1000 for place in range(6)])
    runs += [run | {"config": {"gpus": 1, "seed": 99}} for run in repeated(steps=[0.2], **lost)]
    made = make(runs + repeated(config={"gpus": 2}, steps=[0.2 + place / 1000 for place in range(7)], **lost))
    (pair,) = [pair for _, pair in made.comparisons]
    assert (pair.better.name, pair.told_apart, pair.won) == ("gpus=1", True, pytest.approx(6 / 7))
    assert pair.more_often == pair.better
    words = (
        "gpus=1 is better: its run is the sooner one in 86% of pairs; gpus=1 reaches the target more often by 6.3 s: 6 "
        "of 7 runs, and 0 of 7 of gpus=2"
    )
    (table,) = [table for table in made.tables if table.title.endswith("which differ")]
    assert table.rows[0][-1] == words
    assert "1 GPU reaches the target more often than 2 GPUs." in made.answer
    document = made.plain()
    assert audit(document, [tmp_path]).differences == []
    document["comparisons"][0]["reaches_more_often"]["reached"] = 7
    (sentence,) = audit(document, [tmp_path]).differences
    assert sentence.endswith("reaches_more_often: reached: the report has 7, the run folders 6")
    assert not made.answer.startswith(words)


def test_stacks_are_compared_with_the_best_with_a_curve_a_cuda_version(make: Callable[..., Report]) -> None:
    runs = []
    for driver, cuda, fast in (("580.1", "12.8", 0.10), ("590.2", "12.8", 0.09), ("590.2", "13.0", 0.07)):
        steps = [fast + 0.0001 * place for place in range(3)]
        runs += repeated(steps=steps, tags={"env.driver": driver, "env.cuda": cuda})
    made = make(runs, by=["driver", "cuda"], metric="time/epoch_sec")
    (stacks,) = [table for table in made.tables if table.title.endswith("best stack")]
    best, runner_up, lead = stacks.rows
    assert (best[1], runner_up[1]) == ("driver=590.2 cuda=13.0", "driver=590.2 cuda=12.8")
    assert re.fullmatch(r"\d+\.\d %", str(lead[1]))
    assert str(lead[2]).startswith("more than the noise")
    assert any("stacks" in plot.name for plot in made.plots)
    assert not any("env.driver too" in warning for warning in made.warnings)


def test_workloads_are_never_compared_with_one_another(make: Callable[..., Report]) -> None:
    runs = repeated(config={"model": "vgg"}, steps=(0.1, 0.11)) + repeated(config={"model": "res"}, steps=(0.2, 0.21))
    made = make(runs)
    assert [task.title.split()[0] for task in made.tasks] == ["res", "vgg"]
    assert made.comparisons == []
    assert "2 tasks (model, data set, target), each compared within itself" in made.warnings[0]
    paragraphs = page.markdown(made).split("\n\n")
    assert [text.split(" on ")[0] for text in paragraphs if "1 GPU: " in text] == ["For res", "For vgg"]
    assert page.html(made).count('<p class="answer">') == 2


@pytest.mark.parametrize("num_missed", [0, 1, 2])
def test_beside_an_invalid_olympic_mean_stands_why(
    make: Callable[..., Report], tmp_path: Path, num_missed: int
) -> None:
    runs = repeated(steps=(0.1, 0.11, 0.12, 0.13))
    missed = repeated(steps=(0.1, 0.1)[:num_missed], accuracies=(0.1, 0.2, 0.3))
    runs += [run | {"config": {"seed": 10 + run["config"]["seed"]}} for run in (*missed, *repeated(steps=(0.14,)))]
    made = make(runs)
    invalid = num_missed > 1
    assert ("(olympic invalid: several missed)" in str(made.tables[0].rows)) == invalid
    assert ("invalid where more did" in made.tables[0].note) == invalid
    assert audit(made.plain(), [tmp_path]).differences == []
