"""What MLflow's pages say of a run as a whole: its description, and the dataset that it was trained on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from conf.safe_text import in_markdown
from tracking.mirror import mlflow_run
from tracking.mirror.log_batches import MAX_TAG_CHARS, shortened
from tracking.run import Failure, Result, headline, journal, run_folder

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput

NOTE_TAG = "mlflow.note.content"
LAST_WORDS_CHARS = 4000
TRAIN_SAMPLES = "train_samples"  # mllog's key: the number of samples in the training set
GENERATED = "generated"  # the digest of a dataset that has none, since it is made as it is used


def recorded(folder: Path) -> dict[str, str]:
    """The params and tags of a run's journal, the newest value of each, and the size of its training set."""
    values: dict[str, str] = {}
    for record, _ in journal.read(folder / run_folder.JOURNAL):
        if record.kind in ("params", "tags"):
            values |= {key: str(value) for key, value in record.values.items()}
        elif record.key == TRAIN_SAMPLES:
            values[TRAIN_SAMPLES] = f"{record.value:.0f}"
    return values


def end_tags(result: Result, values: Mapping[str, str]) -> dict[str, str]:
    """The tags of a run that has ended, whose params and tags are `values`; its description is one of them."""
    if result.failure:
        return {"failure": result.failure.kind, NOTE_TAG: _failure_note(result.failure)}
    note = _note(result, values)
    return {NOTE_TAG: note} if note else {}


def _failure_note(failure: Failure) -> str:
    """The cause and the worker's last words."""
    cause = shortened(in_markdown(failure.message), MAX_TAG_CHARS - LAST_WORDS_CHARS - 100)
    words = failure.traceback.strip().replace("```", "` ` `")[-LAST_WORDS_CHARS:]
    return f"{cause}\n\n```\n{words}\n```" if words else cause


def _note(result: Result, values: Mapping[str, str]) -> str:
    """The headline, the hardware and, where the run was resumed, what its journal says of that."""
    came_to = headline(result)
    if not came_to:
        return ""
    beside = f"\n\nNot alone: {values['neighbours']}" if "neighbours" in values else ""
    earlier = f"\n\n{values[NOTE_TAG]}" if result.resumes and NOTE_TAG in values else ""
    return f"**{came_to}**{_hardware(values)}{beside}{earlier}"


def _hardware(values: Mapping[str, str]) -> str:
    gpu, precision = values.get("env.gpu", ""), values.get("precision", "")
    if gpu in ("", "none"):
        device, number = values.get("env.cpu", "the CPU"), values.get("cpu_processes", "1")
        where = f"{number} processes on {device}" if number != "1" else device
    else:
        where = f"{values.get('env.gpu_count', '1')} x {gpu}"
    return f" on {where}" + (f", {precision}" if precision else "")


def dataset_input(values: Mapping[str, str]) -> DatasetInput | None:
    """The dataset of a run as MLflow knows one: name, digest and number of training samples; None where it is unknown.

    MLflow keeps one of each name and digest in an experiment, so that sending it again changes nothing.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag

    name, digest = values.get("dataset"), values.get("data.version", GENERATED)
    if not name or TRAIN_SAMPLES not in values:
        return None
    profile = json.dumps({"num_rows": int(values[TRAIN_SAMPLES])})
    dataset = Dataset(name, digest, "code", json.dumps({"tags": mlflow_run.SOURCE}), profile=profile)
    return DatasetInput(dataset, [InputTag("mlflow.data.context", "training")])
