"""Writes files of tensors that are complete or absent, for checkpoints and trained models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins import TorchCheckpointIO

from tracking.record import documents


class WholeFiles(TorchCheckpointIO):
    """Writes a file completely and durably, or not at all. On failure, such as a full disk, it sets `error`."""

    error = ""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        self.error = ""
        try:
            Path(path).parent.mkdir(mode=0o700, exist_ok=True)
            with documents.replacing(Path(path)) as file:
                torch.save(checkpoint, file)
        except (OSError, RuntimeError) as error:  # PyTorch wraps the file's OSError in a RuntimeError.
            self.error = str(error.__context__ or error)
