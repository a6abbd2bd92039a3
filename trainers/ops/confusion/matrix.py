"""The confusion matrix: counted on the device without synchronising, exact over all processes, saved as CSV and PNG."""

from __future__ import annotations

import csv
import importlib.util
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist


def confusion_cells(logits: torch.Tensor, labels: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return each sample's cell: label * classes + prediction, or the spare cell classes² for padding (weight zero).

    Shapes: logits [n, classes], labels [n], weights [n]; returns int64 [n].
    """
    num_classes = logits.shape[1]
    return torch.where(weights > 0, labels * num_classes + logits.argmax(dim=1), num_classes * num_classes)


class ConfusionCounter:
    """Counts of one evaluation, kept on the device until they are reduced."""

    def __init__(self, num_classes: int) -> None:
        self.num_classes = num_classes
        # Not buffers, because DDP would broadcast them; not inference tensors, because they outlive inference mode.
        self._cells: torch.Tensor | None = None  # int64 [classes² + 1]
        self._loss: torch.Tensor | None = None  # float64, summed over samples

    def add(self, cells: torch.Tensor, loss: torch.Tensor) -> None:
        """Count cells, int64 [n], from `confusion_cells`, and add the batch's sum of losses."""
        if self._cells is None or self._loss is None:
            with torch.inference_mode(False):
                self._cells = torch.zeros(self.num_classes**2 + 1, dtype=torch.int64, device=cells.device)
                self._loss = torch.zeros((), dtype=torch.float64, device=cells.device)
        # Not torch.bincount: on CUDA it waits for the device to find the range of its input.
        self._cells.scatter_add_(0, cells, torch.ones_like(cells))
        self._loss += loss

    def reduce(self) -> tuple[np.ndarray, float]:
        """Return the matrix, int64 [labels, predictions], and the sum of losses over all processes, and reset both.

        A collective call.
        """
        cells, loss = self._cells, self._loss
        assert cells is not None, "nothing was evaluated"
        assert loss is not None
        self._cells = self._loss = None
        if dist.is_available() and dist.is_initialized():
            dist.all_reduce(cells)
            dist.all_reduce(loss)
        return cells[:-1].view(self.num_classes, self.num_classes).cpu().numpy(), float(loss)


def write_csv(matrix: np.ndarray, class_names: Sequence[str], path: Path) -> None:
    """Write the matrix with one row for each label and one column for each prediction."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["label", *class_names])
        for name, row in zip(class_names, matrix.tolist(), strict=True):
            writer.writerow([name, *row])


def plot(matrix: np.ndarray, class_names: Sequence[str], path: Path) -> None:
    """Draw the matrix as PNG: colours are shares of a label's samples, numbers are counts.

    In a stack without matplotlib, print that and draw nothing.
    """
    if importlib.util.find_spec("matplotlib") is None:
        print(f"{path.name} is not drawn: matplotlib is not installed in this stack")
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # This import takes a second.
    from matplotlib.figure import Figure

    num_classes = len(class_names)
    share = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    size = 2.5 + 0.55 * num_classes
    figure = Figure(figsize=(size + 0.8, size), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    image = axes.imshow(share, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, ax=axes, label="share of the label's samples", shrink=0.8)
    axes.set_xticks(range(num_classes), class_names, rotation=45, ha="right", rotation_mode="anchor")
    axes.set_yticks(range(num_classes), class_names)
    axes.set_xlabel("prediction")
    axes.set_ylabel("label")
    axes.set_title(f"accuracy {np.trace(matrix) / max(matrix.sum(), 1):.4f}, {matrix.sum():,} samples")
    for (row, column), count in np.ndenumerate(matrix):
        if count:  # Zeros would only hide the mistakes.
            colour = "white" if share[row, column] > 0.5 else "black"
            axes.text(column, row, f"{count}", ha="center", va="center", fontsize=8, color=colour)
    figure.savefig(path, dpi=150)
