"""What MLflow's pages say of a run as a whole: its description, and the datasets of its training and evaluation."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from tracking.base.safe_text import in_markdown
from tracking.record import NOTE_TAG, Failure, Result, headline, journal, run_folder
from tracking.store.mirror import mlflow_run
from tracking.store.mirror.log_batches import MAX_TAG_CHARS, shortened

if TYPE_CHECKING:
    from mlflow.entities import DatasetInput

LAST_WORDS_CHARS = 4000
# mllog's keys for the number of samples in a dataset's parts; MLflow's name for what a part is for, and what is added
# to the dataset's name.
PARTS = {"train_samples": ("training", ""), "eval_samples": ("eval", "-eval")}
GENERATED = "generated"  # the digest of a dataset that has none, since it is made as it is used


def recorded(folder: Path) -> dict[str, str]:
    """The params and tags of a run's journal, the newest value of each, and the sizes of its datasets."""
    values: dict[str, str] = {}
    for record, _ in journal.read(folder / run_folder.JOURNAL):
        if record.kind in ("params", "tags"):
            values |= {key: str(value) for key, value in record.values.items()}
        elif record.key in PARTS:
            values[record.key] = f"{record.value:.0f}"
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
    neighbours = f"\n\nNot alone: {values['neighbours']}" if "neighbours" in values else ""
    earlier = f"\n\n{values[NOTE_TAG]}" if result.resumes and NOTE_TAG in values else ""
    return f"**{came_to}**{_hardware(values)}{neighbours}{earlier}"


def _hardware(values: Mapping[str, str]) -> str:
    gpu, precision = values.get("env.gpu", ""), values.get("precision", "")
    if gpu in ("", "none"):
        device, number = values.get("env.cpu", "the CPU"), values.get("cpu_processes", "1")
        where = f"{number} processes on {device}" if number != "1" else device
    else:
        where = f"{values.get('env.gpu_count', '1')} x {gpu}"
    return f" on {where}" + (f", {precision}" if precision else "")


def dataset_inputs(values: Mapping[str, str]) -> list[DatasetInput]:
    """A run's datasets as MLflow knows them: name, digest and number of samples; none where that is unknown.

    MLflow keeps one of each name and digest in an experiment, so that sending it again changes nothing. Training and
    evaluation have different numbers of samples, and therefore different names.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag

    name, digest = values.get("dataset"), values.get("data.version", GENERATED)
    source = json.dumps({"tags": mlflow_run.SOURCE})
    inputs = []
    for key, (context, suffix) in PARTS.items():
        number = values.get(key, "")
        if name and number.isdecimal() and int(number):
            dataset = Dataset(name + suffix, digest, "code", source, profile=json.dumps({"num_rows": int(number)}))
            inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", context)]))
    return inputs
