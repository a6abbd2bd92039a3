"""Files of tensors that are whole or not there, for checkpoints and for trained models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning_fabric.plugins import TorchCheckpointIO

from tracking.record import documents


class WholeFiles(TorchCheckpointIO):
    """Writes a file durably and whole or not at all; `error` says why not. A disk that is full ends no training."""

    error = ""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        self.error = ""
        try:
            Path(path).parent.mkdir(mode=0o700, exist_ok=True)
            with documents.replacing(Path(path)) as file:
                torch.save(checkpoint, file)
        except (OSError, RuntimeError) as error:  # PyTorch makes a RuntimeError of what the file raises.
            self.error = str(error.__context__ or error)
