"""The messages of a run before it trains."""

from __future__ import annotations

import io
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from conf.schema import RunConfig
from tests.support.composing import composed
from tracking.base import quantities
from tracking.base.event_stream import EventStream
from tracking.jobs.follow.progress import RunProgress
from tracking.jobs.follow.waiting import EarlierStart, Waiting, earlier_starts
from tracking.jobs.node import Ticket
from tracking.jobs.plan import Job
from tracking.jobs.queues.following import Following
from tracking.record import Result, documents, journal, run_folder
from tracking.record.journal import Record

IMPORT = quantities.init_part("import")
COMPILE = quantities.TIME_COMPILE_SEC
TAGS = {"env.stack_id": "s", "env.hardware_id": "h"}


def event(sec: float, key: str, **values: Any) -> Record:
    return Record("event", int(1000 * sec), sec, key, values=values)


def tags(**values: str) -> Record:
    return Record("tags", 0, 0.0, values=TAGS | values)


def config(**changes: Any) -> RunConfig:
    made = composed(("model=vgg", "gpus=0", "compile=true"))
    for name, value in changes.items():
        setattr(made, name, value)
    return made


def start(import_sec: float, compile_sec: float, num_compiled: int = 0, **facts: Any) -> EarlierStart:
    alike = {
        "model": "vgg", "precision": "fp32", "batch_size": config().device_batch_size(), "world_size": 1,
        "compile": True, "stack": "native", "stack_id": "s", "hardware_id": "h",
    }  # fmt: skip
    return EarlierStart({**alike, "num_compiled": num_compiled, **facts}, {IMPORT: import_sec, COMPILE: compile_sec})


def waiting(*earlier: EarlierStart, asked: RunConfig | None = None) -> Waiting:
    return Waiting(asked or config(), lambda _: list(earlier))


def words(of: Waiting, *records: Record, sec: float) -> str:
    for record in records:
        of.see(record)
    return f"{of.part}, {of.words(int(1000 * sec))}"


BEFORE = (event(0, "init_start"), event(1, "import_start"), tags(), event(20, "import_stop"))
COLD = (*BEFORE, event(20, "warmup_start"), event(20, "compiling", num_cached=0))
WARM = (*BEFORE, event(20, "warmup_start"), event(20, "compiling", num_cached=7))


def test_the_part_its_seconds_so_far_and_the_median_of_the_first_times() -> None:
    earlier = [start(5, 50, 3), start(6, 60, 3), start(40, 70, 3), start(6, 8), start(6, 9)]
    assert words(waiting(*earlier), *COLD, sec=60) == "compiling, 40 s so far; about 60 s the first time"
    assert words(waiting(*earlier), *WARM, sec=23) == "compiling, 3 s so far; about 8 s"
    assert words(waiting(*earlier), *BEFORE[:2], sec=5) == "importing PyTorch, 4 s so far; about 6 s"


def test_the_forks_of_a_sweep_say_nothing_of_an_import_that_is_waited_for() -> None:
    earlier = [start(6, 60), *(start(0.2, 8) for _ in range(5))]
    assert words(waiting(*earlier), *BEFORE[:2], sec=5) == "importing PyTorch, 4 s so far; about 6 s"
    assert words(waiting(*earlier[1:]), *BEFORE[:2], sec=5) == "importing PyTorch, 4 s so far"


def test_it_is_the_first_time_for_steps_that_no_earlier_run_had() -> None:
    other = [start(5, 60, 3, precision="bf16"), start(5, 8, precision="bf16")]
    assert words(waiting(*other), *WARM, sec=60) == "compiling, 40 s so far; about 60 s the first time"


def test_where_no_earlier_run_is_alike_there_is_no_estimate() -> None:
    earlier = [start(5, 50, 3, **{fact: "another"}) for fact in ("model", "stack_id", "hardware_id")]
    earlier += [start(5, 50, 3, compile=False), start(5, 50, 3, world_size=2)]
    assert words(waiting(*earlier), *COLD, sec=60) == "compiling, 40 s so far"
    assert words(waiting(), *COLD, sec=60) == "compiling, 40 s so far"
    assert words(waiting(start(5, 8)), *COLD, sec=60) == "compiling, 40 s so far"  # none was cold


def test_a_run_that_compiles_nothing_warms_up() -> None:
    of = waiting(start(5, 3, compile=False), asked=config(compile=False))
    assert words(of, *BEFORE, event(20, "warmup_start"), sec=22) == "warming up, 2 s so far; about 3 s"


def test_of_a_program_it_is_not_said_that_it_starts() -> None:
    program = composed(("model=program", "program.command=x", "gpus=0"))
    said = "waiting for the program's first output, 60 s so far"
    assert words(waiting(asked=program), event(0, "init_start"), sec=60) == said
    warms_up = words(waiting(asked=program), event(0, "init_start"), event(9, "warmup_start"), sec=10)
    assert warms_up == "compiling and warming up, 1 s so far"


def test_the_workloads_own_import_is_not_measured_by_pytorchs() -> None:
    of = waiting(start(5, 50))
    assert words(of, *BEFORE, event(20, "process_group_start"), event(21, "import_start"), sec=24).endswith(
        "3 s so far"
    )


def test_once_it_trains_nothing_is_waited_for() -> None:
    of = waiting(start(5, 50))
    assert words(of, *COLD, event(70, "run_start"), sec=100) == ", "
    assert of.line(100_000) == ""


def test_a_line_comes_each_time_that_a_part_has_taken_twice_as_long() -> None:
    of = waiting(start(5, 60, 3))
    for record in COLD:
        of.see(record)
    lines = {sec: of.line(1000 * (20 + sec)) for sec in range(90)}
    assert [sec for sec, line in lines.items() if line] == [10, 20, 40, 80]
    assert lines[40] == "compiling, 40 s so far; about 60 s the first time"
    of.see(event(120, "run_start"))
    of.see(event(200, "init_start"))  # It is resumed.
    assert of.line(211_000) == "starting, 11 s so far"


def console(*records: Record, terminal: bool, monkeypatch: pytest.MonkeyPatch, of: Waiting) -> str:
    """The printed line when the last record is 40 s old."""
    monkeypatch.setattr(run_folder, "now_ms", lambda: records[-1].time_ms + 40_000)
    printed = io.StringIO()
    screen = Console(file=printed, width=180, force_terminal=terminal, color_system=None)
    with RunProgress(screen, "a-run", waiting=of) as progress:
        for record in records:
            progress.update(record)
        progress.wait()
        progress.wait()
        progress._progress.refresh()
        return re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", printed.getvalue()).replace("\r", "\n").strip()


def test_a_terminal_shows_it_in_its_line_and_elsewhere_it_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    line = console(*COLD, terminal=True, monkeypatch=monkeypatch, of=waiting(start(5, 60, 3))).splitlines()[-1]
    assert line.startswith("compiling ")
    assert line.rstrip().endswith("40 s so far; about 60 s the first time")
    line = console(*COLD, terminal=False, monkeypatch=monkeypatch, of=waiting(start(5, 60, 3)))
    assert line == "a-run: compiling, 40 s so far; about 60 s the first time"


@pytest.mark.parametrize("terminal", [True, False])
def test_earlier_runs_that_cannot_be_read_end_nothing(monkeypatch: pytest.MonkeyPatch, terminal: bool) -> None:
    def broken(_: Path) -> list[EarlierStart]:
        raise RuntimeError("of all things")

    text = console(*COLD, terminal=terminal, monkeypatch=monkeypatch, of=Waiting(config(), broken))
    assert "compiling" in text if terminal else "some of its progress is not shown" in text


def finished(folder: Path, status: str = "finished", **facts: Any) -> None:
    folder.mkdir(parents=True)
    (folder / run_folder.RUN).write_text("{}")
    (folder / run_folder.CONFIG).write_text("")
    seconds = {COMPILE: 60.0, "time/train_sec": 5.0, "world_size": 1.0}
    run_folder.write_result(folder, Result(status, metrics=seconds, start=facts))


def test_earlier_starts_are_those_of_the_newest_finished_runs_also_in_sweeps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    finished(tmp_path / "20260101-a", model="oldest")
    finished(tmp_path / "20260102-b", model="b", num_compiled=2)
    finished(tmp_path / "20260103-sweep/vgg-1", model="swept")
    (tmp_path / "20260103-sweep" / run_folder.RUN).write_text("{}")
    finished(tmp_path / "20260104-c", status="failed", model="c")
    finished(tmp_path / "20260105-d")  # an earlier version's
    finished(tmp_path / "20260106-e", model="e")
    documents.write_text(tmp_path / "20260106-e" / run_folder.RESULT, "{torn")
    (tmp_path / "20260107-f").mkdir()
    starts = earlier_starts(tmp_path)
    assert [each.facts["model"] for each in starts] == ["swept", "b", "oldest"]
    assert [each.is_cold for each in starts] == [False, True, False]
    assert starts[0].seconds == {COMPILE: 60.0, "time/train_sec": 5.0}
    monkeypatch.setattr("tracking.jobs.plan.earlier_runs.MOST_RUNS", 2)
    assert len(earlier_starts(tmp_path)) == 2
    assert earlier_starts(tmp_path / "nowhere") == []


class Queue:
    """Its job has ended when it is first asked about it."""

    at_once, outlives, poll_sec, settling_sec = 2, False, 0.0, 0.0

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def states(self, tickets: Any) -> dict[str, Any]:
        run_folder.write_result(self._folder, Result("finished"))
        return {}

    def expect(self) -> None: ...


@pytest.mark.parametrize("num_jobs", [1, 2])
def test_who_follows_runs_says_what_they_wait_for(tmp_path: Path, num_jobs: int) -> None:
    asked = config(runs_dir=str(tmp_path))
    folder = run_folder.create(tmp_path, "a-run")
    run_folder.write_config(folder, asked)
    documents.write_json(folder / run_folder.RUN, run_folder.RunInfo("a-run", "timetrial", "sqlite:///none.db"))
    log = journal.Journal(folder / run_folder.JOURNAL)
    for key in ("init_start", "warmup_start"):
        log.append(Record("event", run_folder.now_ms() - 30_000, 0.0, key))
    log.close()
    printed = io.StringIO()
    uploads: Any = SimpleNamespace(start=lambda _: None, ended=lambda _: None, elsewhere=set())
    unused: Any = None
    queue: Any = Queue(folder)
    following = Following(queue, uploads, Console(file=printed, width=200), unused, num_jobs, 0.0, EventStream())
    following.take_up(Job(asked, [], folder), Ticket("shared", "1"))
    following.follow([])
    assert re.search(r"^ *\S+: compiling, 3\d s so far$", printed.getvalue(), re.M), printed.getvalue()
