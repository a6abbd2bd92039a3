"""Reports on a few runs each: what to be careful about is named, and the files are sound whatever a run holds."""

from __future__ import annotations

import functools
import html.parser
import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conf.schema import StackConfig
from tests.support.few_runs import repeated, written
from tracking.analysis.audit.audit import audit
from tracking.analysis.report import page
from tracking.analysis.report.report import Report


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Report]:
    return functools.partial(written, tmp_path)


def test_what_differs_beside_the_axis_is_named(make: Callable[..., Report]) -> None:
    other = {"used": [{"uuid": "b"}], "gpus": [{"uuid": "b", "application_sm_clock_mhz": 1200}], "environment": {}}
    runs = repeated(config={"gpus": 1}, steps=(0.1, 0.11))
    runs += repeated(
        config={"gpus": 2, "batch_size": 64, "log_every_n_steps": 7},
        steps=(0.1, 0.11),
        tags={"env.driver": "590.2", "git.commit": "c2", "git.dirty": "true", "env.gpu_count": "2"},
        fingerprint=other,
    )
    warnings = " | ".join(make(runs, by=["gpus"]).warnings)
    for key in ("env.driver", "git.commit", "batch_size", "application_sm_clock_mhz", "log_every_n_steps"):
        assert f"differ in {key} too" in warnings, key
    assert "580.1 in 2 (gpus=1), 590.2 in 2 (gpus=2)" in warnings
    assert "2 of 4 runs are of code with uncommitted changes" in warnings
    for key in ("env.gpu_count", "global_batch_size", "seed", "config_hash"):  # what more GPUs and repeats bring along
        assert f" {key} " not in warnings


def test_runs_of_one_seed_are_named_since_they_say_little_of_others(make: Callable[..., Report]) -> None:
    again = repeated(config={"gpus": 1}, steps=(0.1, 0.11, 0.12)) + repeated(config={"gpus": 1}, steps=(0.1,))
    once = repeated(config={"gpus": 2}, steps=(0.1, 0.11))
    (words,) = [words for words in make([*again, *once], by=["gpus"]).warnings if "seed" in words]
    assert "gpus=1: 4 runs of 3 seeds: they repeat trainings" in words


def test_cores_near_the_gpus_follow_from_their_number(make: Callable[..., Report]) -> None:
    runs = repeated(config={"gpus": 1}, steps=(0.1, 0.11), tags={"env.affinity": "1"})
    runs += repeated(config={"gpus": 2}, steps=(0.1, 0.11), tags={"env.affinity": "1+1"})
    assert "env.affinity" not in " ".join(make(runs, by=["gpus"]).warnings)


@pytest.mark.parametrize(("other", "confounds"), [({}, False), ({"env.affinity": "2"}, True)])
def test_cores_near_the_gpus_differ_where_both_runs_say_them(
    make: Callable[..., Report], other: dict[str, str], confounds: bool
) -> None:
    """Older runs do not."""
    runs = repeated(config={"precision": "tf32"}, steps=(0.1, 0.11), tags={"env.affinity": "1"})
    runs += repeated(config={"precision": "bf16"}, steps=(0.1, 0.11), tags=other)
    assert ("env.affinity" in " ".join(make(runs, by=["precision"]).warnings)) == confounds


@pytest.mark.parametrize(
    ("axis", "values", "confounds"), [("gpus", (1, 2), False), ("precision", ("tf32", "bf16"), True)]
)
def test_threads_follow_from_the_number_of_processes_alone(
    make: Callable[..., Report], axis: str, values: tuple[Any, Any], confounds: bool
) -> None:
    runs = []
    for threads, value in zip(("16", "8"), values, strict=True):
        fingerprint = {"used": [], "gpus": [], "environment": {"OMP_NUM_THREADS": threads}}
        runs += repeated(config={axis: value}, steps=(0.1, 0.11), fingerprint=fingerprint)
    warnings = " ".join(make(runs, by=[axis]).warnings)
    assert ("differ in environment.OMP_NUM_THREADS too" in warnings) == confounds


def test_a_variable_of_the_stack_is_no_difference_beside_itself(make: Callable[..., Report]) -> None:
    runs = []
    for value in ("0", "1"):
        stack = StackConfig("native", env={"NCCL_P2P_DISABLE": value})
        around = {"NCCL_P2P_DISABLE": value, "NCCL_ALGO": f"other{value}"}
        fingerprint = {"used": [], "gpus": [], "environment": around}
        runs += repeated(config={"stack": stack}, steps=(0.1, 0.11), fingerprint=fingerprint)
    warnings = " ".join(make(runs, by=["stack.env.NCCL_P2P_DISABLE"]).warnings)
    assert "environment.NCCL_P2P_DISABLE" not in warnings
    assert "differ in environment.NCCL_ALGO too" in warnings


def test_other_data_confound(make: Callable[..., Report]) -> None:
    runs = repeated(config={"gpus": 1}, steps=(0.1, 0.11), tags={"data.version": "a1"})
    runs += repeated(config={"gpus": 2}, steps=(0.1, 0.11), tags={"data.version": "b2"})
    assert "differ in data.version too: a1 in 2 (gpus=1), b2 in 2 (gpus=2)" in " ".join(make(runs).warnings)


def test_a_run_that_missed_its_target_confounds_the_figures_that_it_is_in(make: Callable[..., Report]) -> None:
    runs = repeated(config={"gpus": 1}, steps=(0.1, 0.11), tags={"data.version": "a1"})
    runs[1] |= {"accuracies": (0.1, 0.2), "tags": {"data.version": "b2"}}
    assert "differ in data.version too: a1 in 1 (gpus=1), b2 in 1 (gpus=1)" in " ".join(make(runs).warnings)


def test_another_version_of_the_data_confounds(make: Callable[..., Report]) -> None:
    from conf.dataset_options import DatasetConfig

    runs = repeated(config={"gpus": 1, "dataset": DatasetConfig("digits", year=2014)}, steps=(0.1, 0.11))
    runs += repeated(config={"gpus": 2, "dataset": DatasetConfig("digits", year=2017)}, steps=(0.1, 0.11))
    assert "differ in dataset.year too: 2014 in 2 (gpus=1), 2017 in 2 (gpus=2)" in " ".join(make(runs).warnings)


def test_equal_runs_get_no_warning_and_those_without_fingerprint_do(make: Callable[..., Report]) -> None:
    runs = repeated(config={"gpus": 1}, steps=(0.1, 0.11)) + repeated(config={"gpus": 2}, steps=(0.1, 0.11))
    runs[-1]["fingerprint"] = None
    warning, of_a_picture = make(runs).warnings
    assert "under a roofline" in of_a_picture, "behind what the figures are to be read with"
    assert "1 of 4 runs (vgg-digits-fp32-2gpu-seed2) has no fingerprint.json" in warning
    assert "`python -m tracking sync --again FOLDER` uploads it" in warning


def test_runs_that_were_not_alone_are_named(make: Callable[..., Report]) -> None:
    runs = repeated(steps=(0.1, 0.2))
    runs[1]["tags"] = {"neighbours": "cpu: 93 % of 2 cores (stress)"}
    who = "vgg-digits-fp32-1gpu-seed2: cpu: 93 % of 2 cores (stress)"
    said = f"1 of 2 runs shared cores or GPUs with other programs ({who})"
    assert [warning for warning in make(runs).warnings if warning.endswith(said)]


def test_any_key_of_the_config_can_be_the_axis(make: Callable[..., Report]) -> None:
    runs = repeated(config={"log_every_n_steps": 10}, steps=(0.1, 0.11))
    made = make(runs + repeated(config={"log_every_n_steps": 50}, steps=(0.1, 0.11)), by=["log_every_n_steps"])
    assert [dict(setting.labels) for setting in made.tasks[0].settings] == [
        {"log_every_n_steps": "10"},
        {"log_every_n_steps": "50"},
    ]


def test_a_warm_up_is_in_no_mean_and_is_listed_whatever_became_of_it(
    make: Callable[..., Report], tmp_path: Path
) -> None:
    runs = repeated(config={"gpus": 1}, steps=(0.1, 0.11)) + repeated(config={"gpus": 2}, steps=(0.05, 0.06))
    runs.append({"config": {"gpus": 1, "warm_up": True}, "step_sec": 9.0})
    runs.append({"config": {"gpus": 2, "warm_up": True}, "accuracies": (0.1, 0.2)})
    runs.append({"config": {"gpus": 2, "warm_up": True, "seed": 9}, "failure": "nan", "failed_after": (0.1,)})
    made = make(runs)
    assert [(setting.measured(made.metric).n, setting.total) for setting in made.tasks[0].settings] == [(2, 3), (2, 4)]
    assert {why for _, _, why in made.tasks[0].excluded} == {"not counted: warm-up"}
    plain = made.plain()
    assert audit(plain, [tmp_path]).differences == []
    journal = next(tmp_path.glob("*/vgg-digits-fp32-1gpu-seed1-warm-up/journal.jsonl"))
    journal.write_text(journal.read_text().replace("timetrial.uncounted", "timetrial.counted"))
    assert "gpus=1: samples/s: n: the report has 2, the run folders 3" in " ".join(audit(plain, [tmp_path]).differences)


def test_a_report_is_strict_json_also_where_a_mean_has_no_factor_to_another(
    make: Callable[..., Report], tmp_path: Path
) -> None:
    """There is no ratio to a mean of zero, and no mean of a diverged loss."""
    declared = {"accuracy": [0.0, 1.0], "loss": "lower"}
    runs = [
        {"config": {"gpus": gpus, "seed": seed, "metrics": declared}, "step_sec": 0.1, "losses": losses}
        for gpus, seed, losses in ((1, 1, (0.0,) * 3), (1, 2, (0.0,) * 3), (2, 1, (4.0,) * 3), (2, 2, (5.0,) * 3),
                                   (4, 1, (math.nan,) * 3), (4, 2, (math.inf,) * 3))
    ]  # fmt: skip
    made = make(runs, metric="eval/loss")
    page.write(made, tmp_path / "report")
    text = (tmp_path / "report" / "report.json").read_text()
    document = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    factors = [pair["factor"] for pair in document["comparisons"]]
    assert factors == [None]
    (verdict,) = [record for record in document["sentences"] if record["kind"].startswith(("told", "not told"))]
    assert "inf" not in verdict["text"]


class Page(html.parser.HTMLParser):
    """Every tag and attribute of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def test_the_page_needs_nothing_else_and_holds_no_markup_of_a_run(make: Callable[..., Report]) -> None:
    runs = repeated(
        config={"model": "<script>alert(1)<b2>{{ 7 * 7 }}"}, steps=(0.1, 0.11), tags={"env.driver": "<iframe src=x>"}
    )
    text = page.html(make(runs, by=["env.driver"]))
    page_tags = Page(text).found
    assert not [tag for tag, _ in page_tags if tag in ("script", "link", "iframe", "b2")]
    assert "<script>" not in text
    assert "&lt;script&gt;alert(1)&lt;b2&gt;{{ 7 * 7 }}" in text
    sources = [str(attributes["src"]) for tag, attributes in page_tags if tag == "img"]
    assert sources
    assert all(source.startswith("data:image/png;base64,") for source in sources)
    assert "http" not in re.sub(r'src="[^"]*"', "", text)


@pytest.mark.parametrize(
    ("steps", "why"),
    [
        ((0.1,), "its only run is not in every mean: target missed"),
        ((0.1, 0.2), "no run of 2 is in every mean: target missed (2)"),
    ],
)
def test_of_a_setting_without_a_mean_the_report_says_why(
    make: Callable[..., Report], tmp_path: Path, steps: tuple[float, ...], why: str
) -> None:
    made = make(repeated(steps=steps, accuracies=(0.1,)), metric="throughput/samples_per_sec")
    assert f"gpus=1: {why}" in " ".join(made.warnings)
    assert audit(made.plain(), [tmp_path]).differences == []


@pytest.mark.parametrize("num_others", [0, 2])
def test_a_report_speaks_of_one_run_as_of_one(make: Callable[..., Report], num_others: int) -> None:
    odd = {"tags": {"git.dirty": "true", "neighbours": "gpu 0", "env.gpu": "NVIDIA H200"}, "fingerprint": None}
    runs = repeated(config={"gpus": 1}, steps=(0.1,), **odd)
    runs += repeated(config={"gpus": 2}, steps=(0.1, 0.2)[:num_others], tags={"env.gpu": "none"})
    text = page.markdown(make(runs))
    of = f"1 of {num_others + 1} run{'s' * bool(num_others)}"
    assert f"{of} is of code with uncommitted changes" in text
    assert f"{of} shared cores" in text
    assert f"{of} (vgg-digits-fp32-1gpu-seed1) has no fingerprint.json" in text
    assert "1 of 1 run on GPUs has no point under a roofline" in text
    assert not re.search(r"\b1 runs|\b1 count\b", text)
