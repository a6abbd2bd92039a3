"""The kept part of a program's output, and the program's environment."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from conf.launch_options import ProgramConfig
from conf.schema import PROGRAM, ModelConfig, PrecisionConfig, RunConfig
from tests.support.commands import ROOT
from tracking.jobs.program import listener, process, program_outcome
from tracking.jobs.program.moments import Moment
from tracking.measure.programs import DeclaredPatterns
from tracking.record import Journal, journal, run_folder


def test_of_much_output_the_beginning_and_the_end_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "COPIED_BYTES", 100)
    monkeypatch.setattr(listener, "LAST_BYTES", 10)
    with (tmp_path / "log").open("wb") as file:
        copy = listener.Copy(file.fileno())
        for _ in range(50):
            copy.write(b"x" * 60)
        copy.write(b"last words")
        copy.end()
    text = (tmp_path / "log").read_bytes()
    assert text.startswith(b"x" * 100 + b"\n[")
    assert text.endswith(b"]\nlast words")


def config(command: str, **options: object) -> RunConfig:
    model = ModelConfig("mine", PROGRAM, 1)
    precision = PrecisionConfig("fp32", "32-true")
    return RunConfig(model=model, precision=precision, program=ProgramConfig(command), **options)  # type: ignore[arg-type]


def test_a_program_sees_the_runs_gpus_its_own_path_and_nothing_of_ours(tmp_path: Path) -> None:
    environ = {"PYTHONPATH": f"{ROOT}:/mine", "TIMETRIAL_LAUNCHER": "1", "CUDA_VISIBLE_DEVICES": "3,5,7", "A": "b"}
    given = process.environment(config("x", gpus=2), tmp_path, environ)
    assert given == {
        "PYTHONPATH": "/mine", "CUDA_VISIBLE_DEVICES": "3,5", "A": "b",
        "TIMETRIAL_JOURNAL": str(tmp_path / ".program.jsonl"),
    }  # fmt: skip
    assert process.environment(config("x", gpus=0), tmp_path, environ)["CUDA_VISIBLE_DEVICES"] == ""
    assert process.environment(config("x", gpus=2), tmp_path, {})["CUDA_VISIBLE_DEVICES"] == "0,1"


@pytest.mark.parametrize(
    ("command", "ending"),
    [("python t.py {seed}", ["2", "t.py", "7"]), ("./t {gpus}", ["2", "--no-python", "./t", "2"])],
)
def test_torchrun_starts_a_process_a_device(tmp_path: Path, command: str, ending: list[str]) -> None:
    asked = config(command, gpus=2, seed=7)
    asked.program.launch = "torchrun"
    words = process.command(asked, tmp_path)
    assert words[words.index("--nproc-per-node") + 1 :] == ending


@pytest.fixture
def heard(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> listener.Listener:
    """A listener to a program that has not printed yet; its run is in `tmp_path`."""
    out = Journal(tmp_path / run_folder.JOURNAL)
    return listener.Listener(config("x"), out, tmp_path / process.JOURNAL, [])


REACHED = {"kind": "event", "key": "eval_accuracy", "values": {"metrics": {"accuracy": 0.9}}}
MLLOG = ':::MLLOG {{"key": "eval_accuracy", "value": 0.9, "time_ms": {}}}\n'


def test_lines_that_do_not_fit_are_left_out_counted_and_named(heard: listener.Listener, tmp_path: Path) -> None:
    lines = [{"kind": "metrics", "values": {"a": 10**401}}, {"kind": "event", "key": [1]}, {"kind": "metrics"}, REACHED]
    (tmp_path / process.JOURNAL).write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    far = listener.now()[0] + 2 * 86_400_000
    heard.hear((MLLOG.format("9" * 401) + MLLOG.format(-5) + MLLOG.format(10**18) + MLLOG.format(far)).encode())
    heard.close()
    assert heard.unread.count == 6
    assert heard.unread.first.startswith("a line of MLPerf's log cannot be read: :::MLLOG")
    keys = [event.key for event in journal.events(tmp_path / run_folder.JOURNAL)]
    assert keys == ["run_start", "eval_accuracy", "run_stop"]


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_what_is_no_file_in_the_journals_place_is_not_opened_and_is_named(
    heard: listener.Listener, tmp_path: Path, kind: str
) -> None:
    said = tmp_path / process.JOURNAL
    if kind == "pipe":
        os.mkfifo(said)
    elif kind == "link":
        (tmp_path / "outside").write_text(json.dumps(REACHED) + "\n")
        said.symlink_to(tmp_path / "outside")
    else:
        said.mkdir()
    heard.look(set())
    heard.close()
    assert heard.unread.count == 1
    assert heard.unread.first.startswith("$TIMETRIAL_JOURNAL is ")
    assert not journal.events(tmp_path / run_folder.JOURNAL)


def test_a_journal_without_end_is_read_in_parts_and_not_to_its_end(
    heard: listener.Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "LOOK_BYTES", 100_000)
    monkeypatch.setattr(listener, "JOURNAL_BYTES", 300_000)
    with (tmp_path / process.JOURNAL).open("w") as file:
        file.write(json.dumps(REACHED) + "\n")
        file.truncate(2**40)
    heard.look(set())
    assert [event.key for event in journal.events(tmp_path / run_folder.JOURNAL)] == ["run_start", "eval_accuracy"]
    assert heard.unread.count == 1  # a line without end
    heard.close()
    assert heard.unread.count == 6


def test_a_wall_clock_that_is_set_while_a_program_trains_changes_no_duration(
    heard: listener.Listener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wall_ms, sec = heard.began

    def says(after_sec: float, set_sec: float, line: str) -> None:
        at_ms = wall_ms + 1000 * (after_sec + set_sec)
        monkeypatch.setattr(listener, "now", lambda: Moment(int(at_ms), sec + after_sec))
        heard.hear(f':::MLLOG {{"key": {line}, "time_ms": {at_ms}}}\n'.encode())

    says(1, 0, '"run_start"')
    says(3, 40 * 3600, '"eval_start"')
    says(4, 40 * 3600, '"eval_stop"')
    says(5, -7200, '"eval_accuracy", "value": 0.9')
    heard.close()
    times = {event.key: event.clock_sec - sec for event in journal.events(tmp_path / run_folder.JOURNAL)}
    expected = {"run_start": 1, "eval_start": 3, "eval_stop": 4, "eval_accuracy": 5, "run_stop": 5}
    assert times == pytest.approx(expected)
    tags = program_outcome.tags(config("x", gpus=0), heard, 1)
    assert tags["program.clock_set"] == "the wall clock was set by -7200.0 s meanwhile"


def test_a_program_whose_times_span_more_than_it_ran_has_no_figures(heard: listener.Listener, tmp_path: Path) -> None:
    heard.hear(MLLOG.format(heard.began[0] + 60_000).encode())
    heard.close()
    assert program_outcome.conclude(config("x", gpus=0), tmp_path, heard._journal, heard, 0) == 1
    result = run_folder.read_result(tmp_path)
    assert result is not None
    assert result.failure is not None
    assert "a clock was set forward" in result.failure.message


@pytest.mark.parametrize(
    ("line", "code", "kind"),
    [
        ("OSError: [Errno 28] No space left on device: 'out.bin'", 1, "disk_full"),
        ("cp: error writing 'x': No space left on device", 1, "disk_full"),
        ("schreiben: [Errno 122] Plattenplatz", 2, "disk_full"),
        ("write failed: ENOSPC", -6, "disk_full"),
        ("ValueError: no space between the words", 1, "error"),
        ("bye", -9, "signal:9"),
    ],
)
def test_a_program_that_dies_of_a_full_disk_says_so(
    heard: listener.Listener, tmp_path: Path, line: str, code: int, kind: str
) -> None:
    heard.hear(f"epoch 1\n{line}\n".encode())
    heard.close()
    assert program_outcome.conclude(config("x", gpus=0), tmp_path, heard._journal, heard, code) == 1
    result = run_folder.read_result(tmp_path)
    assert result is not None
    assert result.failure is not None
    assert result.failure.kind == kind
    assert (line in result.failure.message) == (kind == "disk_full")


def test_a_line_has_the_time_at_which_it_was_printed_and_the_run_ends_when_the_program_did(
    heard: listener.Listener, tmp_path: Path
) -> None:
    wall_ms, sec = heard.began
    heard.hear(b'{"a": 1}\n:::MLLOG {"key": "x"}\n', Moment(wall_ms + 1000, sec + 1))
    heard.words = DeclaredPatterns({"eval/accuracy": r"acc (\S+)"})
    heard.hear(b"acc 0.5\n", Moment(wall_ms + 2000, sec + 2))
    heard.close(Moment(wall_ms + 3000, sec + 3))
    times = {event.key: event.clock_sec - sec for event in journal.events(tmp_path / run_folder.JOURNAL)}
    assert times == pytest.approx({"run_start": 0, "eval_accuracy": 2, "run_stop": 3})
    heard.waited_sec = 1.234
    assert program_outcome.tags(config("x", gpus=0), heard, 1)["program.slowed"].startswith("it waited 1.23 s")
