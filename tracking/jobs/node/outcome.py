"""Ends a run: its result, final metrics, and files for other tools. Reopens its folder for a further attempt."""

from __future__ import annotations

import dataclasses
from contextlib import suppress
from pathlib import Path
from typing import Any

from conf.schema import RunConfig
from tracking.base import quantities
from tracking.jobs.node.signals import Interrupted
from tracking.measure.bottleneck import account
from tracking.measure.training import clock
from tracking.record import (
    NOTE_TAG,
    Checkpoint,
    Failure,
    Journal,
    Record,
    Result,
    attempts,
    checkpoints,
    failures,
    journal,
    run_folder,
)

GIVEN_UP = ("nan", *failures.STOP_CAUSES)  # failures that make a run censored: it had not reached its target by then


def end(
    folder: Path, failure: Failure | None, co_tenants: str = "", bottleneck: dict[str, Any] | None = None
) -> Result:
    """Return the run's result, and write it if it is missing: a finished worker's result stays.

    `co_tenants` names the run's co-tenants, and `bottleneck` what limited it.
    """
    measured: dict[str, Any] = {"neighbours": co_tenants, "bottleneck": bottleneck}
    added = {name: value for name, value in measured.items() if value}
    written = run_folder.read_result(folder)
    stays = written is not None and (failure is None or written.status == "finished")
    failed = written.failure if written is not None and stays else failure
    is_finished = stays and written is not None and written.status == "finished"
    spent = account(folder, is_finished, failed.time_ms if failed else 0)
    added |= {"goodput": spent} if spent else {}
    if written is not None and stays:
        if written.failure and (with_words := failures.with_last_words(folder, written.failure)) != written.failure:
            added["failure"] = with_words
        if not added:
            return written
        result = dataclasses.replace(written, **added)
    else:
        assert failure is not None
        status = "killed" if failure.kind.startswith("signal:") else "failed"
        result = Result(status, failure=failure, **added)
    with suppress(OSError):  # no room even for this file: `sync` ends the run later
        run_folder.write_result(folder, result)
    return result


def stopped_by(error: Interrupted, where: str = "") -> Failure:
    """The failure of a stopped run; `where` names the node for readers on other machines."""
    return Failure(f"signal:{error.signum}", f"{where}stopped by {error}")


def stopped(folder: Path, error: Interrupted, where: str = "") -> Result:
    """End a run that was told to stop."""
    failure = stopped_by(error, where)
    failure.traceback = failures.last_words(folder)
    with suppress(OSError, ValueError):
        record_given_up(folder, run_folder.read_config(folder), failure)
    return end(folder, failure)


def record_given_up(folder: Path, config: RunConfig, failure: Failure | None) -> None:
    """Journal once the censoring time and the cost of a run that diverged or was stopped.

    Raises OSError.
    """
    written = run_folder.read_result(folder)
    if written is not None and (failure is None or written.status == "finished"):  # `end` chooses in the same way.
        failure = written.failure
    if failure is None or failure.kind not in GIVEN_UP:
        return
    censored = clock.censored(journal.events(folder / run_folder.JOURNAL), config.targets())
    if not censored or is_recorded(folder):
        return
    price = config.instance.price_per_hour
    hours = censored[quantities.TIME_CENSORED_SEC] / 3600
    usd = {} if price is None else {quantities.COST_USD: price * config.nodes * hours}
    journal.append_at_end(folder / run_folder.JOURNAL, censored | usd)


def is_recorded(folder: Path) -> bool:
    """Whether this attempt's journal already has the censoring time."""
    recorded = False
    for record, _ in journal.read(folder / run_folder.JOURNAL):
        if record.kind == "event" and record.key == "init_start":
            recorded = False
        recorded |= record.kind == "metrics" and quantities.TIME_CENSORED_SEC in record.values
    return recorded


def describe(folder: Path) -> None:
    """Write the files for other tools: MLPerf's log, and the roofline chart."""
    from tracking.analysis import mlperf, report  # imported here, so that no worker's start waits for them

    with suppress(OSError):  # a full disk: the run has its result
        mlperf.write(folder)
    with suppress(OSError, ValueError):  # a full disk, or a damaged record
        report.roofline_chart.write_of_run(folder)


def reopen(folder: Path, checkpoint: Checkpoint | None, kind_without_result: str = "unknown") -> None:
    """Set the earlier attempt's files aside, and journal from where the run continues.

    Without a checkpoint the run begins its first epoch again. `kind_without_result` is the kind of failure of an
    attempt without a result. The caller holds the folder's lock.

    Rows beyond the checkpoint stay in the journal and in MLflow. They are those before the `resume` event with steps
    above its `from_step`. Raises OSError.
    """
    events = journal.events(folder / run_folder.JOURNAL)
    before = [event for event in events if event.key == attempts.RESUME]
    number = len(before) + 1
    result = run_folder.read_result(folder)
    after = result.failure.kind if result is not None and result.failure else kind_without_result
    epoch_num, step = checkpoint.place if checkpoint else (0, 0)
    within = {"step": step} if step else {}
    run_folder.reserve(folder)
    checkpoints.prune(folder)
    run_folder.keep_attempt(folder, number)
    here = Record("event", 0, 0.0, attempts.RESUME, values={"epoch_num": epoch_num, **within})
    from_step = step or attempts.last_step([events[place] for place in attempts.surviving([*events, here])])
    log = Journal(folder / run_folder.JOURNAL)
    log.event(
        attempts.RESUME,
        epoch_num=epoch_num,
        **within,
        from_step=from_step,
        checkpoint=str(checkpoint.path.relative_to(folder)) if checkpoint else "",
        after=after,
    )
    log.metrics({quantities.RESUME_COUNT: number}, from_step)
    log.tags(
        {
            "resumed": number,
            "resumed.after": ",".join([*(event.values["after"] for event in before), after]),
            NOTE_TAG: f"Interrupted ({after}) and resumed after {checkpoints.after_and_next(epoch_num, step)}: no time"
            " to accuracy of an uninterrupted run.",
        }
    )
    log.close()
