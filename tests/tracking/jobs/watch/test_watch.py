"""python -m tracking watch: runs as their folders show them, on a terminal and in lines."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from conf.launch_options import SweepConfig
from tests.support import studied
from tracking.__main__ import main
from tracking.jobs.watch import LiveRun, screen
from tracking.record import Journal, documents, node_records, run_folder


def training(runs: Path, **options: Any) -> Path:
    """A run that has not ended: one of an epoch and a half."""
    options.setdefault("start_ms", run_folder.now_ms() - 5000)
    config = studied.config(seed=options.pop("seed", 1))
    folder = studied.make_run(runs, config, "sqlite:///none.db", accuracies=(0.5, 0.8), max_epochs=4, **options)
    (folder / run_folder.RESULT).unlink()
    lines = (folder / run_folder.JOURNAL).read_text().splitlines(keepends=True)
    stop = next(place for place, text in enumerate(lines) if '"run_stop"' in text)
    (folder / run_folder.JOURNAL).write_text("".join(lines[:stop]))
    return folder


def watched(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(["watch", *words])
    return code, capsys.readouterr().out


def test_a_line_says_how_far_how_fast_and_how_long(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = training(runs)
    code, printed = watched(capsys, "--once")
    assert code == 0
    # 16 of 32 steps, and an evaluation between, were recorded 2.6 s after the first epoch's start.
    assert printed == (
        f"{folder.name}: evaluating, epoch 2 of 4, 320 samples/s, loss 0.0625, accuracy 0.8 of 0.9,"
        " 0:03 left at most, GPU 92 %, CPU 32 %\n"
    )


def test_the_epoch_of_an_ended_run_is_the_last_that_it_trained(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = studied.make_run(runs, studied.config(), "sqlite:///none.db", accuracies=(0.5, 0.95), max_epochs=4)
    log = studied.Writer(folder / run_folder.JOURNAL, run_folder.now_ms())
    log.event("epoch_start", 9.0, epoch_num=3)  # as the loop of a script does after each evaluation
    _, printed = watched(capsys, "--once")
    assert ": finished, epoch 2 of 4, " in printed


def test_each_machine_has_its_usage_and_warnings_of_its_own(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = training(runs)
    log = Journal(folder / node_records.file_of(run_folder.JOURNAL, "b"))
    log.metrics({"system/b/gpu_0_utilization_percentage": 40.0, "system/b/gpu_1_utilization_percentage": 60.0,
                 "system/b/gpu_0_thermal_throttled_percentage": 100.0})  # fmt: skip
    log.close()
    _, printed = watched(capsys, "--once", folder.name)
    assert ", node b GPU 50 %; node b: a GPU's clock is kept down by heat" in printed


def test_warnings_name_what_is_wrong(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = training(runs, start_ms=run_folder.now_ms() - 600_000, step_sec=0.5, fingerprint=FACTS)
    config = studied.config(runs_dir=str(runs), seed=2)
    studied.make_run(runs, config, "sqlite:///none.db", fingerprint=FACTS)
    log = studied.Writer(folder / run_folder.JOURNAL, run_folder.now_ms() - 300_000)
    log.add("metrics", 0.0, values={"train/loss": float("nan"), "system/neighbours_cpu_percentage": 55.0})
    _, printed = watched(capsys, "--once", str(folder))
    assert "it diverges: train/loss is nan" in printed
    assert "it is slow: 64 samples/s, where 1 earlier run of this setting on this hardware had 320" in printed
    assert "silent for 5:0" in printed
    assert "others take 55 % of the cores" in printed


FACTS = {"used": [], "software": {}, "host": {"cpu": "a CPU"}}


@pytest.mark.parametrize("swept", [False, True])
def test_the_past_lies_beside_the_folder_wherever_it_is_watched_from(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, swept: bool
) -> None:
    """A config keeps `runs_dir` as it was given: relative to where the launcher was started."""
    sweep = studied.make_sweep(runs, studied.SWEEP, "sqlite:///none.db", 1) if swept else runs
    folder = training(sweep, step_sec=0.5, fingerprint=FACTS)
    studied.make_run(runs, studied.config(seed=2), "sqlite:///none.db", fingerprint=FACTS)
    monkeypatch.chdir("/")
    _, printed = watched(capsys, "--once", str(folder))
    assert "it is slow: 64 samples/s, where 1 earlier run" in printed


def test_runs_beside_others_say_nothing_of_a_run_alone(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = training(runs, step_sec=0.5, fingerprint=FACTS)
    beside = studied.config(seed=2, sweep=SweepConfig(jobs_at_once=4))
    studied.make_run(runs, beside, "sqlite:///none.db", fingerprint=FACTS)
    assert "it is slow" not in watched(capsys, "--once", str(folder))[1]


@pytest.mark.parametrize("damaged", ["of_later: 1\n", "model: [\n", ""])
def test_a_run_whose_config_cannot_be_read_is_shown_and_fails(
    runs: Path, capsys: pytest.CaptureFixture[str], damaged: str
) -> None:
    sweep = studied.make_sweep(runs, studied.SWEEP, "sqlite:///none.db", 2)
    good, bad = (studied.make_run(sweep, studied.config(seed=seed), "sqlite:///none.db") for seed in (1, 2))
    (bad / run_folder.CONFIG).write_text(damaged)
    code, printed = watched(capsys, "--every", "3")  # It ends, since all that can be read has ended.
    lines = sorted(printed.splitlines())
    assert code == 1
    assert lines[0].startswith(f"{good.name}: finished")
    assert lines[1].startswith(f"{bad.name}: unreadable; config.yaml cannot be read: ")


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b"\xff"], ids=repr)
@pytest.mark.parametrize("name", [run_folder.CONFIG, run_folder.RESULT, run_folder.RUN])
@pytest.mark.parametrize("is_swept", [True, False])
def test_a_file_that_cannot_be_read_is_named_and_watching_ends(
    runs: Path, capsys: pytest.CaptureFixture[str], name: str, damaged: bytes, is_swept: bool
) -> None:
    parent = studied.make_sweep(runs, studied.SWEEP, "sqlite:///none.db", 1) if is_swept else runs
    bad = studied.make_run(parent, studied.config(), "sqlite:///none.db")
    (bad / name).write_bytes(damaged)
    code, printed = watched(capsys, "--every", "3")
    assert code == 1
    assert f"{bad.name}: unreadable" in printed
    assert f"{name} cannot be read: {bad / name}: " in printed
    assert "Next: " in printed


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b"\xff"], ids=repr)
@pytest.mark.parametrize("name", ["sweep.json", "search.json", run_folder.RESULT, run_folder.RUN])
def test_a_damaged_file_of_the_sweep_is_named_beside_its_runs(
    runs: Path, capsys: pytest.CaptureFixture[str], name: str, damaged: bytes
) -> None:
    sweep = studied.make_sweep(runs, studied.SWEEP, "sqlite:///none.db", 1)
    good = studied.make_run(sweep, studied.config(), "sqlite:///none.db")
    assert watched(capsys, "--every", "3")[0] == 0
    (sweep / name).write_bytes(damaged)
    assert main(["watch", "--every", "3", "--runs-dir", str(runs)]) == 1
    printed = capsys.readouterr()
    assert f"{good.name}: finished" in printed.out
    assert f"note: {sweep / name}: " in printed.err
    assert "Next: " in printed.err


def test_a_fingerprint_that_is_none_leaves_the_past_unknown(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = training(runs, step_sec=0.5, fingerprint=FACTS)
    (folder / run_folder.FINGERPRINT).write_text("[]")
    assert watched(capsys, "--once", str(folder))[0] == 0


def test_a_run_that_its_search_stopped_has_not_failed(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    studied.make_run(runs, studied.config(), "sqlite:///none.db", failure="search")
    code, printed = watched(capsys, "--once")
    assert code == 0
    assert ": stopped; it ended by search" in printed


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("metrics", {"values": {"train/loss": None, "system/gpu_0_utilization_percentage": None}}),
        ("event", {"key": "throughput_window", "values": {"rank_ms": [None]}}),
        ("event", {"key": "eval_accuracy", "values": {"metrics": None}}),
        ("event", {"key": "eval_accuracy", "values": {"metrics": {"accuracy": None}}}),
        ("event", {"key": "epoch_start", "values": {"epoch_num": None}}),
        ("tags", {"values": {"env.differs": "driver"}}),
    ],
)
def test_a_record_that_is_not_understood_hides_no_later_one(
    runs: Path, capsys: pytest.CaptureFixture[str], kind: str, fields: dict[str, Any]
) -> None:
    folder = training(runs)
    log = studied.Writer(folder / run_folder.JOURNAL, run_folder.now_ms() - 1000)
    log.add(kind, 3.0, **fields)
    log.add("metrics", 3.1, values={"train/loss": 0.75})
    code, printed = watched(capsys, "--once", str(folder))
    assert code == 0
    assert "loss 0.75" in printed


def test_a_sweep_is_watched_until_all_has_ended_and_each_end_is_told_once(
    runs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = studied.make_sweep(runs, studied.SWEEP, "sqlite:///none.db", 2)
    result = (sweep / run_folder.RESULT).read_bytes()
    (sweep / run_folder.RESULT).unlink()
    config = studied.config(seed=1)
    studied.make_run(sweep, config, "sqlite:///none.db")
    looks = []

    def sleep(sec: float) -> None:
        looks.append(sec)
        if len(looks) == 2:
            studied.make_run(sweep, studied.config(seed=2), "sqlite:///none.db", failure="oom")
        if len(looks) == 3:
            (sweep / run_folder.RESULT).write_bytes(result)

    monkeypatch.setattr("tracking.jobs.watch.screen.time.sleep", sleep)
    code, printed = watched(capsys, "--every", "3")
    assert (code, looks) == (1, [3, 3, 3])
    first, second = printed.splitlines()
    assert ": finished, " in first
    assert second.endswith("failed: oom; it ended by oom")


def test_a_terminal_shows_a_table_that_fits_and_a_row_for_each_machine(runs: Path) -> None:
    folder = training(runs)
    log = Journal(folder / node_records.file_of(run_folder.JOURNAL, "b"))
    log.metrics({"system/b/cpu_utilization_percentage": 71.0})
    log.close()
    for seed in range(2, 2 + screen.MOST_ROWS):
        training(runs, seed=seed)
    live = [LiveRun(path) for path in runs.iterdir()]
    for run in live:
        run.read()
    written = io.StringIO()
    Console(file=written, width=160, force_terminal=True, color_system=None).print(screen.table(live, 0))
    lines = written.getvalue().splitlines()
    assert lines[0].split()[:4] == ["run", "state", "epoch", "samples/s"]
    assert any("node head" in text and text.rstrip().endswith("32") for text in lines)
    assert any("node b" in text and text.rstrip().endswith("71") for text in lines)
    assert any(text.startswith("and 1 more") for text in lines)


def test_a_terminal_is_drawn_on_by_rich(runs: Path) -> None:
    training(runs)
    written = io.StringIO()
    console = Console(file=written, width=160, force_terminal=True)
    screen.watch(next(iter(runs.iterdir())), console, 0.01, once=True)
    assert "320" in written.getvalue()
    assert "\x1b[?25l" in written.getvalue()  # rich's Live hides the cursor


def test_the_document_has_every_run(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    training(runs)
    _, printed = watched(capsys, "--once", "--json")
    (row,) = json.loads(printed)["runs"]
    assert (row["state"], row["epoch"], row["samples_per_sec"]) == ("evaluating", 2, 320)


def test_the_epoch_of_a_program_is_that_of_its_evaluation(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = training(runs)
    log = studied.Writer(folder / run_folder.JOURNAL, run_folder.now_ms())
    log.add("event", 3.0, key="eval_accuracy", values={"epoch_num": 3, "metrics": {"accuracy": 0.5}})
    _, printed = watched(capsys, "--once", str(folder))
    assert "epoch 3 of 4" in printed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nothing"], "not the folder of a run or a sweep"),
        ([], "no run found"),
        (["--every", "0"], "must be above 0"),
        (["--every", "nan"], "--every nan: must be above 0, and at most 86400"),
        (["--every", "1e300"], "at most 86400"),
    ],
)
def test_what_cannot_be_watched_is_refused(
    runs: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["watch", *words]) == 2
    assert said in capsys.readouterr().err


def test_a_run_that_is_being_made_or_torn_is_passed_over(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = studied.make_sweep(runs, studied.SWEEP, "sqlite:///none.db", 1)
    (sweep / "half").mkdir()
    documents.write_json(sweep / "half" / run_folder.RUN, {})
    assert watched(capsys, "--once") == (0, "")
