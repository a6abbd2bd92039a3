"""The exported network, which PyTorch loads without timetrial. The worker writes it for MLflow.

One file has the program, one an example of its input. The third describes them; it is written last, so the model is
complete if this file exists.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tracking.record import documents, files
from tracking.record.typed_json import checked

PROGRAM = "exported.pt2"  # written by torch.export
EXAMPLE = "exported_example.json"  # nested lists: an input of one sample
DESCRIPTION = "exported.json"
FILES = (PROGRAM, EXAMPLE, DESCRIPTION)
NAME = re.compile(r"[\w+-]{1,100}", re.ASCII)
DTYPE = re.compile(r"(u?int|float)(8|16|32|64)|bool")


@dataclass
class Array:
    dtype: str  # numpy's name
    shape: list[int]  # the batch dimension first; -1: any size


@dataclass
class ExportedModel:
    name: str
    kept: str  # final | best
    step: int  # number of training steps of the weights
    torch: str  # version
    python: str  # version
    inputs: Array
    outputs: Array


def read(folder: Path) -> ExportedModel | None:
    """The model that a run exported; None without one. Raises OSError, and ValueError for a malformed file."""
    path = folder / DESCRIPTION
    if not files.exists(path):
        return None
    model = checked(ExportedModel, documents.read_json(path), path)
    arrays = (model.inputs, model.outputs)
    if not NAME.fullmatch(model.name) or not all(DTYPE.fullmatch(array.dtype) for array in arrays):
        raise ValueError(
            f"{path}: the name {model.name!r} or a dtype is wrong. Next: move the file away, to go on without the model"
        )
    return model
