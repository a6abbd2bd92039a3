"""Finds, checks and removes the checkpoints of a run. Needs no torch, so that a refusal takes a second."""

from __future__ import annotations

import os
import re
import shutil
import zipfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tracking.record import files, run_folder, run_lock

NUM_KEPT = 2  # the newest, and the one before in case the newest is damaged


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    epoch_num: int  # number of complete epochs
    step: int = 0  # the global step after which it was made; 0 at the end of an epoch

    @property
    def place(self) -> tuple[int, int]:
        """How far the training was; later places compare as greater."""
        return self.epoch_num, self.step

    @property
    def words(self) -> str:
        """The place from which a run continues, as text."""
        return after(self.epoch_num, self.step)

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.path.parent.parent

    @property
    def is_intact(self) -> bool:
        """Whether the file is undamaged, by the checksums of its zip format, which PyTorch writes but does not check.

        PyTorch does not compress. A file that unpacks to more bytes than it has is not a checkpoint (a zip bomb).
        """
        try:
            with files.opened(self.path, "rb") as file, zipfile.ZipFile(file) as archive:
                unpacked = sum(member.file_size for member in archive.infolist())
                return unpacked <= os.fstat(file.fileno()).st_size and archive.testzip() is None
        except Exception:  # what zipfile raises depends on which bytes are wrong
            return False


def after(epoch_num: int, step: int) -> str:
    """`epoch 3`, or `step 350, in epoch 4`."""
    return f"step {step}, in epoch {epoch_num + 1}" if step else f"epoch {epoch_num}"


def after_and_next(epoch_num: int, step: int) -> str:
    """The text of `after`, and the step or epoch that comes next."""
    rest = f", with step {step + 1}" if step else f", with epoch {epoch_num + 1} from its start"
    return after(epoch_num, step) + rest


def path_of(folder: Path, epoch_num: int, step: int = 0) -> Path:
    """The path of the checkpoint after `epoch_num` epochs, or after `step` in the next epoch."""
    suffix = f"-step{step}" if step else ""
    return folder / run_folder.CHECKPOINTS / f"epoch{epoch_num}{suffix}.ckpt"


def in_folder(folder: Path) -> list[Checkpoint]:
    """The checkpoints in a run's folder, newest first, damaged ones too."""
    inner = folder / run_folder.CHECKPOINTS
    matches = (re.fullmatch(r"epoch(\d{1,9})(?:-step(\d{1,12}))?\.ckpt", name) for name in files.names(inner))
    present = [Checkpoint(inner / match[0], int(match[1]), int(match[2] or 0)) for match in matches if match]
    return sorted(present, key=lambda checkpoint: checkpoint.place, reverse=True)


def newest(folder: Path) -> Checkpoint | None:
    """The newest undamaged checkpoint; None without one."""
    return next((checkpoint for checkpoint in in_folder(folder) if checkpoint.is_intact), None)


def newest_of(folders: Sequence[Path]) -> Checkpoint | None:
    """The newest checkpoint of the last folder that has one and that no process runs."""
    for folder in reversed(folders):
        with (
            suppress(run_lock.Running),
            run_lock.hold_abandoned(folder, ended=run_folder.read_result(folder) is not None),
        ):
            if checkpoint := newest(folder):
                return checkpoint
    return None


def prune(folder: Path) -> None:
    """Delete all but the newest checkpoints, and files that a crash left half-written."""
    kept = {checkpoint.path for checkpoint in in_folder(folder)[:NUM_KEPT]}
    inner = folder / run_folder.CHECKPOINTS
    for path in (inner / name for name in files.names(inner)):
        if path not in kept:
            files.remove(path)


def remove(folder: Path) -> None:
    """Delete all checkpoints of a finished run."""
    shutil.rmtree(folder / run_folder.CHECKPOINTS, ignore_errors=True)
