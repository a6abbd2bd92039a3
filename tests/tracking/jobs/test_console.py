"""What is printed while a run trains."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from tracking.jobs.console import RunProgress
from tracking.run.journal import Record


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
