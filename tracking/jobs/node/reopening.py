"""Prepares a run's folder for a second or later attempt."""

from __future__ import annotations

from pathlib import Path

from tracking.base import quantities
from tracking.record import NOTE_TAG, Checkpoint, Journal, Record, attempts, checkpoints, journal, run_folder


def reopen(folder: Path, checkpoint: Checkpoint | None, kind_without_result: str = "unknown") -> None:
    """Set the earlier attempt's files aside, and journal from where the run continues.

    Without a checkpoint the run begins its first epoch again. `kind_without_result` is the kind of failure of an
    attempt without a result. The caller holds the folder's lock.

    Rows of the journal and of MLflow that are beyond the checkpoint stay: they are earlier than the `resume` event, at
    steps above its `from_step`. Raises OSError.
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
