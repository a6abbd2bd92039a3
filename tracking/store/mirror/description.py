"""A run's description on MLflow's pages, and its training and evaluation datasets."""

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
# By mllog's key for the samples of a dataset's part: MLflow's context, and the suffix of the dataset's name.
DATASET_PARTS = {"train_samples": ("training", ""), "eval_samples": ("eval", "-eval")}
GENERATED = "generated"  # the digest of a dataset that is generated on use and so has no digest


def journal_values(folder: Path) -> dict[str, str]:
    """The params and tags of a run's journal, each with its newest value, and the sizes of its datasets."""
    values: dict[str, str] = {}
    for record, _ in journal.read(folder / run_folder.JOURNAL):
        if record.kind in ("params", "tags"):
            values |= {key: str(value) for key, value in record.values.items()}
        elif record.key in DATASET_PARTS:
            values[record.key] = f"{record.value:.0f}"
    return values


def end_tags(result: Result, values: Mapping[str, str]) -> dict[str, str]:
    """The tags of an ended run, its description among them. `values` are its params and tags."""
    if result.failure:
        return {"failure": result.failure.kind, NOTE_TAG: _failure_note(result.failure)}
    note = _note(result, values)
    return {NOTE_TAG: note} if note else {}


def _failure_note(failure: Failure) -> str:
    """The cause and the end of the worker's traceback."""
    cause = shortened(in_markdown(failure.message), MAX_TAG_CHARS - LAST_WORDS_CHARS - 100)
    traceback = failure.traceback.strip().replace("```", "` ` `")[-LAST_WORDS_CHARS:]
    return f"{cause}\n\n```\n{traceback}\n```" if traceback else cause


def _note(result: Result, values: Mapping[str, str]) -> str:
    """The headline, the hardware, the co-tenants, and the journal's note on earlier attempts of a resumed run."""
    outcome = headline(result)
    if not outcome:
        return ""
    neighbours = f"\n\nNot alone: {values['neighbours']}" if "neighbours" in values else ""
    earlier = f"\n\n{values[NOTE_TAG]}" if result.resumes and NOTE_TAG in values else ""
    return f"**{outcome}**{_hardware(values)}{neighbours}{earlier}"


def _hardware(values: Mapping[str, str]) -> str:
    gpu, precision = values.get("env.gpu", ""), values.get("precision", "")
    if gpu in ("", "none"):
        device, number = values.get("env.cpu", "the CPU"), values.get("cpu_processes", "1")
        device_text = f"{number} processes on {device}" if number != "1" else device
    else:
        device_text = f"{values.get('env.gpu_count', '1')} x {gpu}"
    return f" on {device_text}" + (f", {precision}" if precision else "")


def dataset_inputs(values: Mapping[str, str]) -> list[DatasetInput]:
    """A run's datasets for MLflow: name, digest and number of samples; datasets of unknown size are left out.

    MLflow keeps one dataset for each name and digest of an experiment, so sending it again changes nothing. Training
    and evaluation have different numbers of samples, and so different names.
    """
    from mlflow.entities import Dataset, DatasetInput, InputTag

    name, digest = values.get("dataset"), values.get("data.version", GENERATED)
    source = json.dumps({"tags": mlflow_run.SOURCE})
    inputs = []
    for key, (context, suffix) in DATASET_PARTS.items():
        number = values.get(key, "")
        if name and number.isdecimal() and int(number):
            dataset = Dataset(name + suffix, digest, "code", source, profile=json.dumps({"num_rows": int(number)}))
            inputs.append(DatasetInput(dataset, [InputTag("mlflow.data.context", context)]))
    return inputs
