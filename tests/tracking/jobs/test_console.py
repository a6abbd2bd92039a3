"""What is printed while a run trains."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tracking.jobs.follow.job_words import job_line
from tracking.jobs.follow.progress import RunProgress
from tracking.record import Checkpoint, attempts
from tracking.record.journal import Record


def event(clock_sec: float, key: str, **values: Any) -> Record:
    return Record("event", 0, clock_sec, key, values=values)


def test_an_epochs_rate_is_that_of_the_epoch_and_not_of_its_last_few_steps() -> None:
    printed = io.StringIO()
    with RunProgress(Console(file=printed, width=200), "a-run") as progress:
        for record in (
            event(1, "run_start", max_epochs=2, num_batches=22),
            event(1, "epoch_start", epoch_num=1),
            Record("metrics", 0, 8, step=20, values={"train/loss": 0.5, "throughput/samples_per_sec": 320.0}),
            event(8, "throughput_window", step=20),
            Record("metrics", 0, 9, step=22, values={"train/loss": 0.4, "throughput/samples_per_sec": 90.0}),
            event(9, "epoch_stop", epoch_num=1, samples=2400),
            event(10, "eval_accuracy", epoch_num=1, metrics={"accuracy": 0.75}),
        ):
            progress.update(record)
    assert printed.getvalue().splitlines() == ["a-run: epoch 1/2 loss 0.4  300 samples/s  accuracy 0.75"]


@pytest.mark.parametrize(("tokens", "rate"), [(2400, "tokens"), (7200, "samples")])
def test_where_a_sample_is_a_token_the_rate_is_in_tokens(tokens: int, rate: str) -> None:
    window = event(8, "throughput_window", step=20, samples=2400, tokens=tokens)
    metrics = Record("metrics", 0, 8, step=20, values={"throughput/samples_per_sec": 1200.0})
    evaluated = event(10, "eval_accuracy", epoch_num=0.5, metrics={"loss": 2.5})
    assert shown(START, metrics, window, evaluated).endswith(f"1,200 {rate}/s  loss 2.5")


def shown(*records: Record, terminal: bool = False, checkpoint: Checkpoint | None = None, **targets: float) -> str:
    """What stands on the screen after these records."""
    printed = io.StringIO()
    console = Console(file=printed, width=140, force_terminal=terminal, color_system=None)
    with RunProgress(console, "a-run", targets, None, checkpoint) as progress:
        for record in records:
            progress.update(record)
        progress._progress.refresh()
        return re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", printed.getvalue()).replace("\r", "\n").strip().splitlines()[-1]


def epoch(number: int, accuracy: float) -> tuple[Record, ...]:
    """Ten steps in ten seconds, and an evaluation."""
    end = 10.0 * number
    return (
        event(end - 10, "epoch_start", epoch_num=number),
        Record("metrics", 0, end - 5, step=10 * number - 5, values={"train/loss": 0.5}),
        event(end - 5, "throughput_window", step=10 * number - 5),
        event(end, "throughput_window", step=10 * number),
        event(end, "epoch_stop", epoch_num=number, samples=3000),
        event(end, "eval_start", epoch_num=number),
        event(end, "eval_accuracy", epoch_num=number, metrics={"accuracy": accuracy}),
    )


START = event(0, "run_start", max_epochs=4, num_batches=10)


def test_a_terminal_shows_the_epoch_the_time_left_the_target_and_the_best() -> None:
    line = shown(
        START, *epoch(1, 0.9), *epoch(2, 0.8), event(20, "epoch_start", epoch_num=3), terminal=True, accuracy=0.97
    )
    assert line.startswith("epoch 3 of 4, training ")
    assert "0:20 left at most" in line
    assert line.rstrip().endswith("loss 0.5  300 samples/s  accuracy 0.8 of 0.97 (best 0.9)")


def test_elsewhere_an_evaluation_is_a_line_with_the_target_and_the_best() -> None:
    line = shown(START, *epoch(1, 0.9), *epoch(2, 0.8), accuracy=0.97)
    assert line == "a-run: epoch 2/4 loss 0.5  300 samples/s  accuracy 0.8 of 0.97 (best 0.9)"
    assert shown(START, *epoch(1, 0.9)) == "a-run: epoch 1/4 loss 0.5  300 samples/s  accuracy 0.9"


def test_a_resumed_run_is_timed_from_where_it_went_on() -> None:
    line = shown(START, *epoch(3, 0.9), terminal=True)
    assert "0:10 left at most" in line


WITHIN_EPOCH_1 = (
    event(100, "run_start", max_epochs=4, num_batches=10), event(100, "epoch_start", epoch_num=1),
    event(101, "throughput_window", step=9),
)  # fmt: skip


def test_a_run_that_goes_on_within_an_epoch_is_timed_from_its_step(tmp_path: Path) -> None:
    """Whether the records begin before the resume, as for a follower, or after it."""
    resume = event(90, attempts.RESUME, epoch_num=0, step=8, from_step=8, checkpoint="", after="signal:9")
    assert "0:31 left at most" in shown(START, *epoch(1, 0.9), resume, *WITHIN_EPOCH_1, terminal=True)
    checkpoint = Checkpoint(tmp_path / "epoch0-step8.ckpt", 0, 8)
    assert "0:31 left at most" in shown(*WITHIN_EPOCH_1, terminal=True, checkpoint=checkpoint)


def test_a_resume_shows_no_time_left_until_there_is_a_pace() -> None:
    resume = event(90, attempts.RESUME, epoch_num=1, from_step=10, checkpoint="", after="signal:9")
    line = shown(START, *epoch(1, 0.9), *epoch(2, 0.9), resume, WITHIN_EPOCH_1[0], terminal=True)
    assert "left at most" not in line


def test_a_job_that_ended_is_a_line_with_what_is_left() -> None:
    assert job_line("a", "x", 3, 50.0) == "  a: x; 3 jobs left, about 2:30"
    assert job_line("a", "x", 1, 3600.0) == "  a: x; 1 job left, about 1:00:00"
    assert job_line("a", "x", 0, 50.0) == "  a: x"


def test_nodes_that_are_not_alike_are_told_before_they_train() -> None:
    def tags(**values: str) -> Record:
        return Record("tags", 0, 0.0, values={key.replace("_", "."): value for key, value in values.items()})

    printed = io.StringIO()
    with RunProgress(Console(file=printed, width=200), "a-run") as progress:
        progress.update(tags(env_nodes="a,b"))
        assert not printed.getvalue()
        progress.update(tags(env_nodes="a,b", env_differs="env.driver"))
        progress.update(START)
    assert printed.getvalue().splitlines() == ["a-run: its nodes a,b differ in env.driver"]


def test_a_first_value_that_is_no_number_is_shown_as_it_is() -> None:
    nothing = float("nan")
    assert shown(START, *epoch(1, nothing), accuracy=0.97).endswith("accuracy nan of 0.97")
    assert shown(START, *epoch(1, nothing), *epoch(2, 0.8), accuracy=0.97).endswith("accuracy 0.8 of 0.97")
    assert shown(START, *epoch(1, 0.8), *epoch(2, nothing), accuracy=0.97).endswith("accuracy nan of 0.97 (best 0.8)")


def test_a_record_that_cannot_be_drawn_ends_nothing_and_is_said_once() -> None:
    broken = event(5, "eval_accuracy")  # without its metrics
    printed = io.StringIO()
    with RunProgress(Console(file=printed, width=200), "a-run") as progress:
        for record in (START, broken, broken, *epoch(1, 0.9)):
            progress.update(record)
    lines = printed.getvalue().splitlines()
    assert lines[0] == "note: a-run: some of its progress is not shown: KeyError: 'metrics'"
    assert [line.partition(" loss")[0] for line in lines[1:]] == ["a-run: epoch 1/4"]


def test_what_is_missing_in_the_figures_of_a_program_is_told_when_it_is_known() -> None:
    tags = {
        "timetrial.uncounted": "world size 1, not 2 as requested",
        "program.unread_numbers": "1: loss 'x' is not a number",
    }
    printed = io.StringIO()
    with RunProgress(Console(file=printed, width=200), "a-run") as progress:
        progress.update(Record("tags", 0, 1, values=tags))
    assert printed.getvalue().splitlines() == [
        "a-run: not counted: world size 1, not 2 as requested; numbers that are not read (program.unread_numbers):"
        " 1: loss 'x' is not a number"
    ]


def evaluated(number: int, **metrics: float) -> Record:
    return event(number, "eval_accuracy", epoch_num=number, metrics=metrics)


def test_the_evaluations_loss_is_shown_where_it_is_the_target_or_all_that_there_is() -> None:
    trained = Record("metrics", 0, 5, step=5, values={"train/loss": 1.25})
    assert shown(START, trained, evaluated(1, loss=2.5), loss=3.0).endswith("train loss 1.25  loss 2.5 of 3")
    assert shown(START, evaluated(1, loss=2.5), accuracy=0.9).endswith("epoch 1/4 loss 2.5")
    assert shown(START, trained, evaluated(1, loss=2.5, f1=0.5), accuracy=0.9).endswith("loss 1.25  f1 0.5")


def test_without_a_terminal_a_thousand_evaluations_are_some_lines_and_the_target_is_one() -> None:
    printed = io.StringIO()
    with RunProgress(Console(file=printed, width=200), "a-run", {"accuracy": 0.9}) as progress:
        for number in range(1, 1401):
            progress.update(evaluated(number, accuracy=0.95 if number == 1234 else 0.5))
    lines = printed.getvalue().splitlines()
    assert len(lines) < 150
    assert [line for line in lines if "epoch 1234 " in line]
    assert lines[:20] == [line for line in lines if int(line.split()[2]) <= 20], "the first are whole"


@pytest.mark.parametrize("number", [15, 1400])
def test_without_a_terminal_the_last_evaluation_is_a_line_once_however_the_run_ends(number: int) -> None:
    printed = io.StringIO()
    with RunProgress(Console(file=printed, width=200), "a-run") as progress:
        for epoch in range(1, number + 1):
            progress.update(evaluated(epoch, accuracy=0.5))
    assert printed.getvalue().count(f"epoch {number} ") == 1
