"""Estimates of jobs' time and cost from earlier runs, and their error."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from conf.launch_options import SearchConfig
from conf.schema import ConfigError, RunConfig
from tests.support.commands import launch
from tests.support.searched_program import that_ends
from tests.support.studied import Writer, config, make_sweep
from tracking.analysis.search import Axis
from tracking.base.number_text import counted
from tracking.jobs.follow import price_words, search_price
from tracking.jobs.plan import Job, earlier_runs, price
from tracking.jobs.plan.earlier_runs import Place
from tracking.jobs.plan.price import OTHER_BATCH, OTHER_SETTINGS, Estimate, Range
from tracking.jobs.search import SearchJobs
from tracking.record import Result, documents, journal, run_folder

H200, CPU = "NVIDIA H200", "EPYC"
HERE = Place(H200, CPU)
GPUS = [SimpleNamespace(index=index, name=H200) for index in range(8)]
WORK_MS = 1_790_000_000_000


def made(
    root: Path, name: str, seconds: float, asked: RunConfig | None = None, gpu: str = H200, torch: str = "2.11",
    created_ms: int = WORK_MS, status: str = "finished", **result: Any,
) -> Path:  # fmt: skip
    """The folder of a run that took some seconds from its first record to its last."""
    folder = run_folder.create(root, name)
    parent = ".." if (root / run_folder.RUN).exists() else None
    info = run_folder.RunInfo(name, "tests", "", parent=parent, created_ms=created_ms)
    documents.write_json(folder / run_folder.RUN, info)
    run_folder.write_config(folder, asked or config())
    facts = {"software": {"torch": torch}, "host": {"cpu": CPU}, "used": [{"name": gpu}]}
    documents.write_json(folder / run_folder.FINGERPRINT, facts)
    log = Writer(folder / run_folder.JOURNAL, created_ms)
    for clock_sec in (5.0, 5.0 + seconds / 2, 5.0 + seconds):
        log.event("run_start", clock_sec)
    run_folder.write_result(folder, Result(status, **result))
    return folder


def estimated(root: Path, place: Place = HERE, **changes: Any) -> Estimate | None:
    asked = config(**changes)
    return price.estimate(asked, place, earlier_runs.earlier_runs(root, {asked.model.name}))


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ([10.0], (5.0, 10.0, 15.0)),
        ([10.0, 14.0], (10.0, 12.0, 14.0)),
        ([10.0, 30.0, 11.0, 12.0], (10.0, 11.5, 30.0)),
        ([float(value) for value in range(11)], (1.0, 5.0, 9.0)),
    ],
)
def test_an_estimate_is_the_median_and_its_range_goes_by_the_number_of_runs(
    tmp_path: Path, seconds: list[float], expected: tuple[float, float, float]
) -> None:
    for number, each in enumerate(seconds):
        made(tmp_path, f"{number:02}", each or 1e-3, config(seed=number))
    estimate = estimated(tmp_path, seed=99)
    assert estimate
    assert estimate.seconds == pytest.approx(expected, abs=1e-3)
    assert (estimate.num_runs, estimate.of) == (len(seconds), "")


def test_other_work_and_other_hardware_say_nothing(tmp_path: Path) -> None:
    made(tmp_path, "01", 1.0, gpu="NVIDIA H100")
    others: list[dict[str, Any]] = [
        {"model": "other"}, {"precision": "bf16"}, {"gpus": 2}, {"nodes": 2}, {"targets": {"accuracy": 0.5}},
        {"max_epochs": 1}, {"limit_train_batches": 2}, {"stop_at_target": False}, {"warm_up": True},
    ]  # fmt: skip
    for number, changes in enumerate(others):
        made(tmp_path, f"1{number}", 1.0, config(**changes))
    made(tmp_path, "20", 1.0, status="failed")
    made(tmp_path, "21", 1.0, resumes=[{"epoch_num": 1}])
    assert estimated(tmp_path) is None
    assert estimated(tmp_path, Place(H200, "another CPU")) is None
    assert estimated(tmp_path, Place("NVIDIA H100", CPU)) == Estimate(Range(0.5, 1.0, 1.5), 1)
    made(tmp_path, "22", 3.0, metrics={"target/reached": 0.0})
    assert estimated(tmp_path) == Estimate(Range(1.5, 3.0, 4.5), 1)  # A run that missed its target has run.
    assert estimated(tmp_path, Place()) == Estimate(Range(1.5, 3.0, 4.5), 1)  # a cluster's node: as the newest
    made(tmp_path, "23", 7.0, torch="2.12")
    assert estimated(tmp_path) == Estimate(Range(3.5, 7.0, 10.5), 1)  # The newest stack alone.


def test_the_same_setting_goes_before_the_same_batch_and_that_before_another(tmp_path: Path) -> None:
    made(tmp_path, "01", 1.0, config(batch_size=64))
    estimate = estimated(tmp_path)
    assert estimate
    assert (estimate.seconds.middle, estimate.of) == (1.0, OTHER_BATCH)
    made(tmp_path, "02", 2.0, config(log_every_n_steps=7))
    estimate = estimated(tmp_path)
    assert estimate
    assert (estimate.seconds.middle, estimate.of) == (2.0, OTHER_SETTINGS)
    made(tmp_path, "03", 90.0, start={"model": "vgg", "num_compiled": 4})
    assert estimated(tmp_path) == Estimate(Range(45.0, 90.0, 135.0), 1)
    made(tmp_path, "04", 4.0, start={"model": "vgg", "num_compiled": 0})
    made(tmp_path, "05", 6.0)  # an older version's
    assert estimated(tmp_path) == Estimate(Range(4.0, 5.0, 6.0), 2)  # The first one's compiled code is in the cache.
    assert estimated(tmp_path, batch_size=32, gpus=[3], compile=True) == estimated(tmp_path)  # what it is by default


def test_only_the_first_job_of_a_sweep_is_estimated_with_its_imports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs of 10 s: the first one of each sweep imports for 14 and 16 s more, the forked ones for 0.1 s."""
    monkeypatch.setattr(price_words, "cpu_model", lambda: CPU)
    for sweep, imports in enumerate((14.0, 0.1, 16.0, 0.1)):
        metrics = {"time/init_import_sec": imports}
        made(tmp_path, f"{sweep}", 10.0 + imports, config(seed=sweep), metrics=metrics, created_ms=WORK_MS - 500_000)
    jobs = [Job(config(runs_dir=str(tmp_path), seed=seed), []) for seed in (7, 8, 9)]
    middles = [each.seconds.middle for each in price_words.estimates(jobs, GPUS) if each]
    assert middles == pytest.approx([25.0, 10.1, 10.1], abs=0.01)
    for job in jobs:
        job.config.cluster.kind = "slurm"
    assert price.must_import([job.config for job in jobs]) == [True, True, True], "no job of a cluster is forked"
    others = [config(), config(), config()]
    others[1].stack.name = "another"
    assert price.must_import(others) == [True, True, False], "each stack imports once"
    for each in others:
        each.sweep.jobs_at_once = 2
    assert price.must_import(others) == [True, True, True], "jobs that start together wait for the same imports"
    sweep_folder = make_sweep(tmp_path, "9", "", 3)
    info = run_folder.RunInfo("9", "tests", "", kind="sweep", created_ms=WORK_MS)
    documents.write_json(sweep_folder / run_folder.RUN, info)
    for name, imports in (("a", 15.0), ("b", 0.1), ("c", 0.1)):
        made(sweep_folder, name, 10.0 + imports, metrics={"time/init_import_sec": imports})
    assert price_words.how_far_off(sweep_folder, 3).endswith(", the same")


def test_torn_folders_are_skipped_and_many_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        (tmp_path / f"9{number:03}").mkdir()
        documents.write_text(tmp_path / f"9{number:03}" / run_folder.RUN, "{}")  # neither a run nor a sweep with runs
    sweep = make_sweep(tmp_path, "80", "", 1)
    made(sweep, "vgg-1", 2.0)
    for number, name in enumerate((run_folder.RESULT, run_folder.CONFIG, run_folder.FINGERPRINT, run_folder.JOURNAL)):
        documents.write_text(made(tmp_path, f"7{number}", 50.0) / name, "{torn")
    for name in ("[]", '{"software": 3, "host": []}'):
        documents.write_text(made(tmp_path, f"6{len(name)}", 50.0) / run_folder.FINGERPRINT, name)
    assert estimated(tmp_path) == Estimate(Range(1.0, 2.0, 3.0), 1)
    looked: list[Path] = []
    read = run_folder.read_result

    def look(folder: Path) -> Result | None:
        looked.append(folder)
        return read(folder)

    monkeypatch.setattr(run_folder, "read_result", look)
    for number in range(300):
        (tmp_path / f"9{number:03}" / run_folder.CONFIG).touch()
    assert estimated(tmp_path) is None
    assert len(looked) == earlier_runs.MOST_FOLDERS < 300
    assert earlier_runs.earlier_runs(tmp_path / "nowhere", {"vgg"}) == []
    monkeypatch.setattr(earlier_runs, "MOST_RUNS", 2)
    for number in range(3):
        made(tmp_path, f"95{number}", 1.0 + number)
    assert [run.seconds for run in earlier_runs.earlier_runs(tmp_path, {"vgg"})] == [3.0, 2.0]


def test_the_price_of_a_sweep_adds_up_over_its_jobs() -> None:
    two = config(gpus=2, price=36.0, nodes=2)
    jobs = [(two, Estimate(Range(50.0, 100.0, 200.0), 3)), (config(), Estimate(Range(8.0, 10.0, 20.0), 3))]
    whole = price.price(jobs)
    assert whole.seconds == Range(58.0, 110.0, 220.0)
    assert whole.gpu_hours == pytest.approx((208 / 3600, 410 / 3600, 820 / 3600))
    assert whole.usd == pytest.approx((1.0, 2.0, 4.0))  # of the job that has a price
    on_cpu = price.price([(config(gpus=0), Estimate(Range(1.0, 2.0, 3.0), 1))])
    assert (on_cpu.gpu_hours, on_cpu.usd) == (None, None)
    assert price.wall_sec([4.0, 1.0, 2.0, 3.0], 2) == 6.0


def test_what_a_dry_run_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_words, "cpu_model", lambda: CPU)
    for number, seconds in enumerate((350.0, 400.0, 480.0)):
        made(tmp_path, f"{number}", seconds, config(seed=number))
    asked = [config(runs_dir=str(tmp_path), price=9.0, **changes) for changes in ({}, {"batch_size": 64}, {"gpus": 2})]
    jobs = [Job(each, []) for each in asked]
    estimates = price_words.estimates(jobs, GPUS)
    assert [price_words.of_job(job, each) for job, each in zip(jobs, estimates, strict=True)] == [
        "about 6:40 (5:50 to 8:00), from 3 earlier runs",
        "about 6:40 (5:50 to 8:00), from 3 earlier runs of another batch size",
        "no estimate: no earlier run of vgg on this hardware is like it",
    ]
    words = "about 13:20 (11:40 to 16:00), 0.22 (0.19 to 0.27) GPU-hours, 2.00 (1.75 to 2.40) USD"
    assert price_words.of_all(jobs, estimates) == f"2 of 3 jobs: {words}; no estimate of 1"
    assert price_words.of_all(jobs[2:], [None]) == "1 job: no estimate"
    assert price_words.estimates(jobs[:1], GPUS[:0]) == [None]  # not on this hardware


@pytest.mark.parametrize(
    ("budget", "price_per_hour", "words"),
    [
        ("1h", None, "3 to 8 blocks of 2 jobs, 6 to 16 runs: 5:00 to 40:00, 0.083 to 0.67 GPU-hours"),
        ("30min", None, "3 to 8 blocks of 2 jobs, 6 to 16 runs: 5:00 to 30:00, 0.083 to 0.50 GPU-hours"),
        ("9runs", None, "3 to 4 blocks of 2 jobs, 6 to 8 runs: 5:00 to 20:00, 0.083 to 0.33 GPU-hours"),
        ("200s", None, "0 to 2 blocks of 2 jobs, 0 to 4 runs: 3:20 to 3:20, 0.056 to 0.056 GPU-hours"),
        ("1usd", 9.0, "1 to 4 blocks of 2 jobs, 2 to 8 runs: 5:00 to 6:40, 0.083 to 0.11 GPU-hours, 0.75 to 1.00 USD"),
    ],
)
def test_what_is_repeated_until_it_is_decided_takes_all_of_its_blocks(
    budget: str, price_per_hour: float | None, words: str
) -> None:
    asked = [config(price=price_per_hour, seed=seed) for seed in (1, 2)]
    for each in asked:
        each.search.budget = budget
    jobs, estimate = [Job(each, []) for each in asked], Estimate(Range(50.0, 100.0, 150.0), 3)
    said = price_words.of_blocks(jobs, [estimate] * 2)
    assert said == f"{words}; search.budget={budget} is the limit"
    assert ": no estimate; search.budget=" in price_words.of_blocks(jobs, [estimate, None])


def search_in(root: Path, budget: str, **changes: Any) -> SearchJobs:
    """A search of batches around 32, which the model has."""

    def make(words: list[str]) -> RunConfig:
        given = dict(word.split("=", 1) for word in words)
        asked = config(runs_dir=str(root), seed=int(given.get("seed", 1)), **changes)
        asked.batch_size = int(given["batch_size"]) if "batch_size" in given else None
        asked.search = SearchConfig("quickest", budget=budget)
        return asked

    return SearchJobs(Job(make([]), []), [Axis("batch_size", (16, 32, 64))], make)


@pytest.mark.parametrize(
    ("budget", "earlier", "words"),
    [
        ("6min", {}, "3 earlier runs. The first look at which setting is best comes after about 12 runs. Next: give"
         " search.budget=80min"),
        ("0.1gpu-hours", {}, "from 3 earlier runs, 0.111 gpu-hours.* give search.budget=1.4gpu-hours"),
        ("0.9usd", {}, "from 3 earlier runs, 1 usd.* give search.budget=12usd"),
        ("7min", {}, ""),
        ("1runs", {}, ""),
        ("60s", {"batch_size": 64}, ""),
        ("60s", {"seed": 0, "precision": "bf16"}, ""),
    ],
)  # fmt: skip
def test_a_budget_that_the_first_run_would_spend_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: str, earlier: dict[str, Any], words: str
) -> None:
    monkeypatch.setattr(price_words, "cpu_model", lambda: CPU)
    for number, seconds in enumerate((350.0, 400.0, 480.0)):
        made(tmp_path, f"{number}", seconds, config(**{"seed": 10 + number, **earlier}))
    asked = search_in(tmp_path, budget, price=9.0)
    asked.next_jobs()
    asked.jobs[0].config.sweep.jobs_at_once = 8  # Runs that were alone tell it, too.
    if not words:
        search_price.check_budget(asked, GPUS)
        return
    said = rf"^search\.budget={budget}: is less than one run takes here, .*: about 6:40 \(5:50 to 8:00\), .*{words}$"
    with pytest.raises(ConfigError, match=said):
        search_price.check_budget(asked, GPUS)


@pytest.mark.parametrize(("budget", "num"), [("7min", 1), ("55min", 8), ("65min", 0), ("2runs", 2), ("9runs", 0)])
def test_a_budget_that_ends_before_the_first_look_is_told_before_anything_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: str, num: int
) -> None:
    monkeypatch.setattr(price_words, "cpu_model", lambda: CPU)
    made(tmp_path, "earlier", 400.0, config(seed=10))
    asked = search_in(tmp_path, budget)
    asked.next_jobs()
    enough = "12runs" if "runs" in budget else "80min"
    note = (
        f"search.budget={budget}: holds about {counted(num, 'run')}, and the first look at which setting is best comes"
    )
    note += f" after at least 9. Next: give search.budget={enough}"
    assert search_price.check_budget(asked, GPUS) == (note if num else "")
    asked.jobs[0].config.dry_run = True
    assert search_price.check_budget(asked, GPUS) == "", "it is said beside the price"


@pytest.mark.parametrize(
    ("budget", "words"),
    [
        ("2h", " holds about 18 runs (15 to 20), by earlier runs: 1:10:00 to 2:00:00, 1.17 to 2.00 GPU-hours, 10.50 to"
         " 18.00 USD"),
        ("5usd", " holds about 5 runs (4 to 5), by earlier runs: 33:20 to 33:20, 0.56 to 0.56 GPU-hours, 5.00 to 5.00"
         " USD"),
        ("20runs", ", by earlier runs: 1:10:00 to 2:40:00, 1.17 to 2.67 GPU-hours, 10.50 to 24.00 USD"),
    ],
)  # fmt: skip
def test_the_price_of_a_search_is_what_its_budget_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: str, words: str
) -> None:
    monkeypatch.setattr(price_words, "cpu_model", lambda: CPU)
    asked = search_in(tmp_path, budget, price=9.0)
    first = "the first look at which setting is best comes after about 12 runs"
    nothing = "no estimate: no earlier run on this hardware is like its runs"
    assert search_price.of_search(asked, GPUS) == f"search.budget={budget}: {nothing}; {first}"
    for number, seconds in enumerate((350.0, 400.0, 480.0)):
        made(tmp_path, f"{number}", seconds, config(seed=number))
    said = search_price.of_search(asked, GPUS)
    more = ", more than that holds. Next: give search.budget=12usd" if budget == "5usd" else ""
    assert said == f"search.budget={budget}{words}; {first}{more}"


def test_a_search_says_how_far_off_its_runs_estimates_were(tmp_path: Path) -> None:
    """Four that explored were two at once; the one that decided was alone."""
    explored, alone = config(), config(seed=9)
    explored.sweep.jobs_at_once = 2
    made(tmp_path, "1", 100.0, explored, created_ms=WORK_MS - 900_000)
    made(tmp_path, "2", 80.0, alone, created_ms=WORK_MS - 500_000)
    sweep = make_sweep(tmp_path, "3", "", 5)
    documents.write_json(sweep / run_folder.RUN, run_folder.RunInfo("3", "tests", "", kind="sweep", created_ms=WORK_MS))
    for name in "abcd":
        made(sweep, name, 120.0, explored)
    made(sweep, "e", 85.0, alone)
    words = "Jobs took 5:25; the estimate was 4:40 (2:20 to 7:00), 14 % less."
    assert search_price.how_far_off(sweep, 5) == words
    assert search_price.how_far_off(tmp_path / "1", 1) == ""


def test_a_range_is_in_one_unit() -> None:
    job = Job(config(), [])
    assert (
        price_words.of_job(job, Estimate(Range(8.0, 10.25, 59.0), 1))
        == "about 10.2 s (8.0 s to 59.0 s), from 1 earlier run"
    )
    assert (
        price_words.of_job(job, Estimate(Range(8.0, 10.25, 61.0), 2))
        == "about 0:10 (0:08 to 1:01), from 2 earlier runs"
    )


def test_how_far_off_is_said_of_what_ended_before_the_launch_alone(tmp_path: Path) -> None:
    made(tmp_path, "1", 400.0, created_ms=WORK_MS - 500_000)
    made(tmp_path, "2", 9.0, created_ms=WORK_MS - 5_000)  # still ran when the next one began
    folder = made(tmp_path, "3", 430.0, config(runs_dir=str(tmp_path)))
    assert price_words.how_far_off(folder, 1) == "took 7:10; the estimate was 6:40 (3:20 to 10:00), 7 % less"
    for number, seconds, words in (("6", 22.0, "18.2 times as long"), ("7", 1000.0, "0.4 times as long")):
        far = made(tmp_path, number, seconds, config(runs_dir=str(tmp_path)))
        assert price_words.how_far_off(far, 1).endswith(f"; the estimate was 6:40 (3:20 to 10:00), {words}")
    assert price_words.how_far_off(made(tmp_path, "4", 430.0, status="failed"), 1) == ""
    assert price_words.how_far_off(made(tmp_path, "5", 430.0, resumes=[{"epoch_num": 1}]), 1) == ""
    assert price_words.how_far_off(made(tmp_path / "new", "1", 430.0), 1) == ""  # None ran there before.


def test_how_far_off_a_sweep_was_is_said_of_its_runs_with_an_estimate(tmp_path: Path) -> None:
    made(tmp_path, "1", 400.0, created_ms=WORK_MS - 500_000)
    sweep = make_sweep(tmp_path, "2", "", 3)
    info = run_folder.RunInfo("2", "tests", "", kind="sweep", created_ms=WORK_MS)
    documents.write_json(sweep / run_folder.RUN, info)
    for name, changes in (("a", {}), ("b", {"seed": 2}), ("c", {"max_epochs": 1})):
        made(sweep, name, 215.0, config(**changes))
    made(sweep, "d", 1.0, config(seed=3), status="failed")
    words = "2 of 4 jobs took 7:10; the estimate was 13:20 (6:40 to 20:00), 86 % more"
    assert price_words.how_far_off(sweep, 4) == words
    assert price_words.how_far_off(sweep, 2) == words.replace("2 of 4 ", "")


def test_the_span_of_a_long_journal_is_read_at_its_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal, "EDGE_BYTES", 300)
    log = Writer(tmp_path / "journal.jsonl", 0)
    for clock_sec in range(3, 200):
        log.event("step", float(clock_sec))
    assert journal.span_sec(tmp_path / "journal.jsonl") == 196.0
    assert journal.span_sec(tmp_path / "none") == 0.0


def test_the_span_of_a_run_begins_at_its_start(tmp_path: Path) -> None:
    log = Writer(tmp_path / "journal.jsonl", 0)
    log.event("submitted", 9000.0)  # by another machine's clock
    log.event("init_start", 10.0)
    log.event("run_stop", 25.0)
    assert journal.span_sec(tmp_path / "journal.jsonl") == 15.0


@pytest.mark.exhaustive
@pytest.mark.slow
def test_a_launch_after_another_has_a_price_and_says_how_far_off_it_was(tmp_path: Path) -> None:
    asked = that_ends(tmp_path, "price_per_hour=36")
    single = (*asked, "batch_size=32")
    first = launch(tmp_path, *single, "dry_run=true")
    assert "no estimate: no earlier run of program on this hardware is like it" in first.output, first.output
    first = launch(tmp_path, *single)
    assert first.code == 0, first.output
    assert "estimate" not in first.output
    shown = launch(tmp_path, "-m", *single, "seed=1,2", "dry_run=true").output
    assert re.search(r"price: 2 jobs: about [\d.:]+( s)? \(.+ to .+\), [\d.]+ \(.+\) USD\n", shown), shown
    second = launch(tmp_path, "-m", *single, "seed=2,3")
    off = r"(\d+ % (more|less)|[\d.]+ times as long|the same)"
    assert re.search(rf"\njobs took .+; the estimate was .+ \(.+ to .+\), {off}\n", second.output), second.output
    third = launch(tmp_path, *single, "seed=4")
    assert re.search(r"\ntook .+; the estimate was .+ \(.+ to .+\), ", third.output), third.output
    decided = (*asked, "batch_size=32,64", "sweep.until_decided=true", "dry_run=true")
    shown = launch(tmp_path, "-m", *decided).output
    assert "\njob 2 of 2: " in shown
    assert re.search(r"\nprice: 3 to 8 blocks of 2 jobs, 6 to 16 runs: .+ to .+ USD; search.budget=1h is", shown), shown
    search = (*asked, "+search=quickest", "batch_size=32,64", "search.budget=3runs", "dry_run=true")
    shown = launch(tmp_path, "-m", *search).output
    assert re.search(r"\nprice: search.budget=3runs, by earlier runs: .+ s to .+, .+ USD; the first look at", shown), (
        shown
    )
    search = (*search[:-2], "search.budget=2runs")
    answered = launch(tmp_path, "-m", *search).output
    said = rf" of 2 runs, .+ (Jobs|1 of 2 jobs) took .+; the estimate was .+ {off}\.\n"
    assert re.search(said, answered), answered
    refused = launch(tmp_path, "-m", *search[:-1], "search.budget=0.1s")
    assert (refused.code, len(list((tmp_path / "runs").glob("*/search.json")))) == (2, 1), refused.output
    said = r"budget=0\.1s: is less than one run takes here.* from \d earlier runs?\b.* give search\.budget=\d+s"
    assert re.search(said, refused.output)
