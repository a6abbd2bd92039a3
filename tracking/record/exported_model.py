"""The trained network in a form that PyTorch loads without timetrial, as the worker leaves it for MLflow.

The program itself is in one file, an example of its input in another. The third says what they are. It is written last,
so that a model is there where it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tracking.record import documents, files
from tracking.record.typed_json import checked

PROGRAM = "exported.pt2"  # written by torch.export
EXAMPLE = "exported_example.json"  # nested lists: an input of one sample
ABOUT = "exported.json"
FILES = (PROGRAM, EXAMPLE, ABOUT)
NAME = re.compile(r"[\w+-]{1,100}", re.ASCII)
DTYPE = re.compile(r"(u?int|float)(8|16|32|64)|bool")


@dataclass
class Array:
    dtype: str  # numpy's name
    shape: list[int]  # the first is that of the batch, -1: as many as one likes


@dataclass
class ExportedModel:
    name: str
    kept: str  # final | best
    step: int  # the number of steps that the weights were trained for
    torch: str  # version
    python: str  # version
    inputs: Array
    outputs: Array


def read(folder: Path) -> ExportedModel | None:
    """The model that a run has left, None where it has not. Raises OSError, and ValueError for what is no such file."""
    path = folder / ABOUT
    if not files.exists(path):
        return None
    model = checked(ExportedModel, documents.read_json(path), path)
    arrays = (model.inputs, model.outputs)
    if not NAME.fullmatch(model.name) or not all(DTYPE.fullmatch(array.dtype) for array in arrays):
        raise ValueError(f"{path}: {model.name!r} or a dtype is no name; move the file away, and there is no model")
    return model
