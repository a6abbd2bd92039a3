"""python -m tracking gate, as a CI job calls it: exit codes, words and files, on run folders and on a real database."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import pytest

from conf.launch_options import SearchConfig
from tests.support.studied import CLOCKS, config, make_run, make_sweep
from tracking.__main__ import main
from tracking.analysis.results import FolderRuns, Run
from tracking.jobs.follow.sync import sync
from tracking.record import run_folder

FAST, SLOW = (0.100, 0.101, 0.102), (0.110, 0.111, 0.112)  # seconds a step: 10 % apart, with a spread of 1 %


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sweeps: base and same are equally fast, slow is slower, noisy scatters, bad fails and misses."""
    root = tmp_path_factory.mktemp("store")
    uri = f"sqlite:///{root / 'mlflow.db'}"
    steps = {"base": FAST, "same": (0.1005, 0.101, 0.1015), "slow": SLOW, "noisy": (0.08, 0.10, 0.13), "single": (0.1,)}
    for name, times in steps.items():
        sweep = make_sweep(root / "runs", name, uri, len(times))
        for seed, step_sec in enumerate(times, 1):
            tags = {"env.driver": "580.2", "git.dirty": "true"} if name == "slow" else {}
            clocks = CLOCKS | {"gpus": [{"uuid": "a", "application_sm_clock_mhz": 1200}]} if name == "slow" else CLOCKS
            make_run(sweep, config(seed=seed), uri, step_sec, tags=tags, fingerprint=clocks)
        if name == "same":  # its warm-up was slow, and is on no side
            make_run(sweep, config(seed=1, warm_up=True), uri, 9.0)
    sweep = make_sweep(root / "runs", "shared", uri, 3)
    for seed, step_sec in enumerate(FAST, 1):
        tags = {"neighbours": "sweep.jobs_at_once=2; cpu: 30 % of 1 core"}
        make_run(sweep, config(seed=seed), uri, step_sec, tags=tags)
    for name, resumed in (("partly-resumed", (4,)), ("resumed", (1, 2))):
        sweep = make_sweep(root / "runs", name, uri, len(resumed))
        for seed in {*resumed, *(range(1, 4) if name == "partly-resumed" else ())}:
            again = seed in resumed
            make_run(
                sweep, config(seed=seed), uri, 9.0 if again else FAST[seed - 1], tags={"resumed": "1"} if again else {}
            )
    sweep = make_sweep(root / "runs", "cold", uri, 1)
    make_run(sweep, config(seed=1, warm_up=True), uri, 0.1)
    make_run(make_sweep(root / "runs", "tried", uri, 1), config(search=SearchConfig(phase="explore")), uri, 0.1)
    sweep = make_sweep(root / "runs", "bare", uri, 3)
    for seed, step_sec in enumerate(FAST, 1):
        none = {"env.gpu": None, "env.gpu_count": None, "env.driver": None, "env.cuda": None} if seed == 3 else {}
        make_run(sweep, config(seed=seed), uri, step_sec, tags=none, fingerprint=None if seed == 3 else CLOCKS)
    sweep = make_sweep(root / "runs", "oom", uri, 4)
    for seed, step_sec in enumerate(FAST, 1):
        make_run(sweep, config(seed=seed), uri, step_sec)
    make_run(sweep, config(seed=4), uri, failure="oom")
    for name in ("missing", "missing-too"):
        sweep = make_sweep(root / "runs", name, uri, 3)
        for seed in (1, 2, 3):
            make_run(sweep, config(seed=seed), uri, 0.05, accuracies=(0.5, 0.8, 0.89 if seed == 3 else 0.95))
    sweep = make_sweep(root / "runs", "counts", uri, 4)
    for gpus, seed in ((1, 1), (1, 2), (2, 1), (2, 2)):
        make_run(sweep, config(seed=seed, gpus=gpus), uri, 0.1 + seed / 1000)
    other = make_sweep(root / "runs", "resnet50", uri, 2)
    for seed in (1, 2):
        make_run(other, config(seed=seed, model="resnet50"), uri, 0.1)
    declared = {"accuracy": [0.0, 1.0], "loss": "lower"}
    losses = {
        "lossy": (1, {}),
        "lossier": (2, {}),
        "declared": (1, {"metrics": declared}),
        "worse": (2, {"metrics": declared}),
    }
    for name, (factor, options) in losses.items():
        sweep = make_sweep(root / "runs", name, uri, 3)
        for seed in (1, 2, 3):
            last = factor * (0.5 + seed / 100)
            make_run(sweep, config(seed=seed, **options), uri, losses=(2.0, 1.5, last))
    for name, lost in (("whole", ()), ("lost", (1,)), ("lost-too", (1, 2))):  # scores that became NaN
        sweep = make_sweep(root / "runs", name, uri, 8)
        for seed in range(1, 9):
            last = math.nan if seed in lost else 0.5 + seed / 100
            make_run(sweep, config(seed=seed, metrics={"loss": "higher"}), uri, losses=(0.1, 0.2, last))
    for name, num_epochs in (("steady", 0), ("hanging", 30), ("late", 4)):
        sweep = make_sweep(root / "runs", name, uri, 8)
        for seed in range(1, 9):
            asked, step_sec = config(seed=seed), (0.1 if name == "steady" else 0.06) + seed / 5000
            if num_epochs and seed == 8:
                make_run(sweep, asked, uri, 0.1, failure="timeout", failed_after=(0.2,) * num_epochs)
            else:
                make_run(sweep, asked, uri, step_sec)
    for name, lost in (("first-lost", 1), ("last-lost", 4)):
        sweep = make_sweep(root / "runs", name, uri, 4)
        for seed in range(1, 5):
            step_sec = 0.1 + 0.02 * (seed + (name == "last-lost"))
            ended = {"failure": "signal:9", "failed_after": (0.2,)} if seed == lost else {}
            make_run(sweep, config(seed=seed), uri, step_sec, **ended)
    failed = make_sweep(root / "runs", "failed", uri, 1)
    make_run(failed, config(seed=9), uri, failure="nan")
    return root


@pytest.fixture(scope="module", autouse=True)
def a_folder_is_read_once(store: Path) -> Iterator[None]:
    """Each command reads all folders below the store, which no test changes but for their upload."""
    read = FolderRuns._read
    known: dict[tuple[Path, bool], Run | None] = {}

    def once(self: FolderRuns, folder: Path) -> Run | None:
        key = folder, (folder / run_folder.MIRROR).exists()
        if key not in known:
            known[key] = read(self, folder)
        if run := known[key]:
            self._folders[run.id] = folder
        return run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FolderRuns, "_read", once)
        yield


class Gate:
    def __init__(self, store: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.where, self._capsys = ["--from-folders", "--runs-dir", str(store / "runs")], capsys

    def __call__(self, baseline: str, candidate: str, *more: str, margin: str = "3%") -> tuple[int, str]:
        """The exit code and all that was printed."""
        sides = ["--baseline", *baseline.split(), "--candidate", *candidate.split()]
        metric = () if "--metric" in more else ("--metric", "time/epoch_sec")  # does not fall on evaluations
        return self.run("gate", *sides, "--max-slowdown", margin, *metric, *more, *self.where)

    def run(self, *command: str) -> tuple[int, str]:
        self._capsys.readouterr()  # what the test itself caused, such as MLflow's notes on a new database
        try:
            code = main(list(command))
        except SystemExit as ended:
            code = int(str(ended.code))
        printed = self._capsys.readouterr()
        return code, printed.out + printed.err


@pytest.fixture
def gate(store: Path, capsys: pytest.CaptureFixture[str]) -> Gate:
    return Gate(store, capsys)


def test_the_three_answers(gate: Gate) -> None:
    code, words = gate("base", "same")
    assert code == 0, words
    assert "time/epoch_sec: not slower: slowdown +0.0%, allowed +3%; at most +" in words
    code, words = gate("base", "slow")
    assert code == 1, words
    assert "slower: slowdown +" in words
    code, words = gate("base", "noisy")
    assert code == 2, words
    assert "cannot tell" in words
    assert "Runs a side that would decide, with a probability of 80%" in words
    assert gate("base", "slow", margin="15%")[0] == 0
    assert gate("slow", "base")[0] == 0


def test_runs_that_shared_a_machine_compare_with_none_that_did_not_unless_asked(gate: Gate, tmp_path: Path) -> None:
    code, words = gate("base", "shared")
    assert code == 2
    assert "3 of 6 runs shared their machine" in words
    assert "sweep.jobs_at_once=2" in words
    assert gate("base", "shared", "--with-neighbours")[0] == 0
    assert gate("shared", "shared")[1].count("are on both sides") == 1  # which is another refusal
    for asked, said in ((), "left out: 3 of 6 runs, which shared"), (("--with-neighbours",), "shared cores"):
        code, words = gate.run("report", "base", "shared", "--out", str(tmp_path), *asked, *gate.where)
        assert code == 0, words
        assert said in words


def test_a_resumed_run_is_in_no_mean_as_in_reports(gate: Gate) -> None:
    for more in (), ("--paired",):
        code, words = gate("base", "partly-resumed", *more)
        assert code == 0, words
        assert "candidate: 1 of 4 runs was interrupted and resumed, and not counted" in words
        assert "the runs differ" not in words
    code, words = gate("resumed", "base")
    assert code == 2
    assert (
        "--baseline resumed: all of 2 runs were interrupted and resumed, and a resumed run is in no mean. Next: name"
        " runs without an interruption" in words
    )


def test_times_to_accuracy_fall_on_evaluations(gate: Gate) -> None:
    """All of three seeds reach the target at the third one. The next may need a fourth, which takes a third longer."""
    code, words = gate("base", "slow", "--metric", "time/to_accuracy_sec")
    assert code == 2
    assert "Times fall on evaluations" in words


def test_runs_of_the_same_seed_are_compared_in_pairs_where_that_is_asked(gate: Gate) -> None:
    assert gate("base", "same", "--paired")[0] == 0
    code, words = gate("base", "oom", "--paired")  # the seed that failed has no value
    assert code == 0 or "failed" in words
    code, words = gate("base", "single", "--paired")
    assert code == 2
    assert "--paired: both sides need runs with time/epoch_sec of the same seeds" in words
    assert "baseline: 1, 2, 3; candidate: 1" in words


def test_sides_that_miss_alike_are_not_paired_and_it_says_so(gate: Gate, tmp_path: Path) -> None:
    note, to_accuracy = "so the sides are compared unpaired", ("--metric", "time/to_accuracy_sec")
    written = tmp_path / "gate.md"
    for metric, paired, is_said in ((to_accuracy, True, True), (to_accuracy, False, False), ((), True, False)):
        gate("missing", "missing-too", *metric, *(["--paired"] if paired else []), "--markdown", str(written))
        assert (note in written.read_text()) == is_said


def test_a_rate_is_better_when_it_is_higher(gate: Gate) -> None:
    rate = ("--metric", "throughput/samples_per_sec")
    assert gate("base", "slow", *rate)[0] == 1
    assert gate("slow", "base", *rate)[0] == 0


def test_a_lower_confidence_tells_sooner(gate: Gate) -> None:
    assert gate("base", "noisy", "--confidence", "0.95", margin="20%")[0] == 2
    assert gate("base", "noisy", "--confidence", "0.7", margin="20%")[0] == 0
    assert gate("base", "same", "--confidence", "95")[1].count("above 0.5 and below 1") == 1


def test_runs_that_failed_or_missed_keep_it_from_passing(gate: Gate) -> None:
    code, words = gate("base", "oom")
    assert code == 2
    assert "1 of 4 runs of the candidate failed (oom (1)), of the baseline 0 of 3" in words
    code, words = gate("base", "missing", "--metric", "time/to_accuracy_sec")
    assert code == 2
    assert "note: candidate: 1 of 3 runs did not reach the target, and counts against it" in words
    assert "reached the target: baseline 3 of 3, candidate 2 of 3" in words
    assert gate("oom", "base")[0] == 0


def test_a_run_that_was_stopped_late_keeps_it_from_passing(gate: Gate) -> None:
    """It had trained seven times as long as any run of the baseline; the other seven runs are faster."""
    code, words = gate("steady", "hanging", "--metric", "time/to_accuracy_sec")
    assert code == 2, words
    assert "most pairs of runs say that the candidate is not slower, and the means say otherwise" in words
    assert "inf" not in words
    code, words = gate("steady", "late", "--metric", "time/to_accuracy_sec")  # its mean may be the lower one
    assert code == 2, words
    assert "1 of 8 runs of the candidate had not reached the target when stopped, later than any" in words
    code, words = gate("hanging", "steady", "--metric", "time/to_accuracy_sec")
    assert code == 2, words
    assert "most pairs of runs say that the candidate is slower, and the means say otherwise" in words


def test_a_seed_that_failed_is_no_pair(gate: Gate) -> None:
    code, words = gate("first-lost", "last-lost", "--metric", "throughput/samples_per_sec", "--paired")
    assert code == 2, words
    assert "of the same seeds, each once (baseline: 2, 3, 4; candidate: 1, 2, 3)" in words


def test_what_else_differs_is_told(gate: Gate) -> None:
    _, words = gate("base", "slow")
    assert "note: the runs differ in env.driver too: 580.1 in 3 (baseline), 580.2 in 3 (candidate)" in words
    assert "note: 3 of 6 runs are of code with uncommitted changes" in words
    assert "note: the runs differ in application_sm_clock_mhz too: 1980 in 3 (baseline), 1200 in 3 (candidate)" in words
    assert "note: " not in gate("base", "same")[1]


def test_runs_without_a_fingerprint_are_named_with_what_to_do(gate: Gate) -> None:
    code, words = gate("base", "bare")
    assert code == 0  # the times tell; whether they were measured on the same machine does not stand there
    assert (
        "note: 1 of 6 runs (vgg-digits-fp32-1gpu-seed3) has no env.* tags: GPU, driver and CUDA are not known" in words
    )
    assert "leave these runs out, or repeat them" in words
    assert "note: 1 of 6 runs (vgg-digits-fp32-1gpu-seed3) has no fingerprint.json: clock limits" in words
    assert "`python -m tracking sync --again FOLDER` uploads it" in words
    assert "differ in env." not in words  # Unknown values are not compared.


def test_a_server_that_does_not_answer_is_exit_code_2(gate: Gate, mlflow_environment: None) -> None:
    gate.where = ["--uri", "http://127.0.0.1:9"]  # nothing listens on the port of RFC 863
    for command in (gate("base", "same"), gate.run("diff", "base", *gate.where)):
        code, words = command
        assert code == 2
        assert "refused: http://127.0.0.1:9" in words


def test_a_side_is_of_one_setting(gate: Gate) -> None:
    code, words = gate("base", "counts")
    assert code == 2
    assert "--candidate: holds runs of several settings (gpus: 1, 2" in words
    assert "--where gpus=1" in words
    assert "refused" not in gate("base", "counts", "--where", "gpus=1")[1]
    assert "no run of 3 has gpus=4" in gate("base", "counts", "--where", "gpus=4")[1]
    assert "PARAM=VALUE" in gate("base", "counts", "--where", "gpus")[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("base", "nowhere"), "nowhere: no sweep, experiment or run"),
        (("base", "base"), "on both sides"),
        (("base", "resnet50"), "different workloads (model: vgg and resnet50)"),
        (("base", "single"), "3 of the baseline and 1 of the candidate; a spread needs two"),
        (("base", "failed", "--metric", "time/to_accuracy_sec"), "1 of the candidate"),
        (("base", "same", "--metric", "time/to_acuracy_sec"), "no run has it. Did you mean time/to_accuracy_sec"),
        (("base", "same", "--metric", "world_size"), "neither a lower nor a higher world_size is better"),
        (("base", "same", "--metric", "system/disk_read_megabytes_per_sec"), "neither a lower nor a higher system/"),
        (
            ("lossy", "lossier", "--metric", "eval/loss"),
            "whether a lower or a higher loss is better is not declared. Next: declare",
        ),
        (("base", "same", "--metric", "energy/joules"), "no run has it"),
    ],
)
def test_what_cannot_be_answered_is_exit_code_2_and_says_why(
    gate: Gate, arguments: tuple[str, ...], words: str
) -> None:
    code, printed = gate(*arguments)
    assert code == 2
    assert words in printed


def test_a_users_metric_is_judged_in_the_direction_that_its_runs_declare(gate: Gate) -> None:
    code, words = gate("declared", "worse", "--metric", "eval/loss")
    assert code == 1, words
    assert "eval/loss: worse: change for the worse +100.0%, allowed +3%" in " ".join(words.split())
    code, words = gate("worse", "declared", "--metric", "eval/loss")
    assert code == 0, words
    assert "eval/loss: not worse" in words
    assert gate("declared", "lossier", "--metric", "eval/loss")[0] == 1  # One side declares it, and none contradicts.
    assert gate("base", "same", "--metric", "eval/accuracy")[0] == 0  # Its target says it.


def test_a_run_whose_score_became_nan_counts_against_its_side(gate: Gate) -> None:
    score = ("--metric", "eval/loss")
    for sides, expected in ((("whole", "lost"), 2), (("lost", "whole"), 0), (("whole", "lost-too"), 2)):
        code, words = gate(*sides, *score, margin="20%")
        assert code == expected, words
        counts = "2 of 8 finished runs, and count" if "lost-too" in sides else "1 of 8 finished runs, and counts"
        assert f"eval/loss became NaN in {counts} against it" in " ".join(words.split())


@pytest.mark.parametrize("margin", ["3", "-1%", "much", "100%"])
def test_a_margin_is_a_share(gate: Gate, margin: str) -> None:
    code, words = gate("base", "same", f"--max-slowdown={margin}")
    assert code == 2
    assert "such as 3% or 0.03" in words


def test_the_files_for_ci(gate: Gate, tmp_path: Path) -> None:
    junit, markdown = tmp_path / "gate.xml", tmp_path / "gate.md"
    kinds = {}
    for candidate in ("same", "slow", "noisy", "nowhere"):
        gate("base", candidate, "--junit", str(junit), "--markdown", str(markdown))
        suite = ElementTree.parse(junit).getroot()
        (case,) = suite.findall("testcase")
        assert case.get("name") == "time/epoch_sec"
        kinds[candidate] = ([part.tag for part in case], suite.get("failures"), suite.get("errors"))
        text = markdown.read_text()
        assert ("| baseline | 3 |" in text) == (candidate != "nowhere")
        assert text == case.findtext("system-out")
    assert kinds == {
        "same": (["system-out"], "0", "0"),
        "slow": (["failure", "system-out"], "1", "0"),
        "noisy": (["error", "system-out"], "0", "1"),
        "nowhere": (["error", "system-out"], "0", "1"),
    }
    assert gate("base", "same", "--junit", str(tmp_path / "no" / "gate.xml"))[0] == 2


@pytest.mark.slow
def test_mlflow_gives_the_same_answers(store: Path, gate: Gate, empty_database: Path, mlflow_environment: None) -> None:
    """The gate's, and those of `diff`."""
    shutil.copy(empty_database, store / "mlflow.db")
    folders = [folder for sweep in ("base", "slow") for folder in sorted((store / "runs" / sweep).glob("*/"))]
    assert {outcome.state for outcome in sync(folders)} == {"complete"}
    answers = []
    for where in (gate.where, ["--uri", f"sqlite:///{store / 'mlflow.db'}"]):
        gate.where = where
        answers.append((gate("base", "slow"), gate.run("diff", "base", "slow", *where)))
    assert answers[0] == answers[1]
    assert answers[0][1][0] == 0


@pytest.mark.parametrize(("side", "reason"), [("cold", "warm-up"), ("tried", "exploring")])
def test_a_side_of_runs_that_no_mean_counts_is_refused_with_their_reason(gate: Gate, side: str, reason: str) -> None:
    code, words = gate("base", side)
    assert code == 2
    assert f"--candidate {side}: no run of 1 counts ({reason}). Next: name others" in words
