"""The checkpoints of a run: which there are, which are whole. Needs no torch, so that a refusal takes a second."""

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

NUM_KEPT = 2  # the newest, and the one before for the day on which the newest is damaged


@dataclass(frozen=True)
class Checkpoint:
    path: Path
    epoch_num: int  # number of epochs that were complete
    step: int = 0  # the global step after which it was made, of one within an epoch

    @property
    def place(self) -> tuple[int, int]:
        """How far the training was: a later one compares as greater."""
        return self.epoch_num, self.step

    @property
    def words(self) -> str:
        """After what a run goes on from it."""
        return after(self.epoch_num, self.step)

    @property
    def folder(self) -> Path:
        """The run's folder, in which it lies."""
        return self.path.parent.parent

    @property
    def whole(self) -> bool:
        """Whether it is as it was written. It is a zip file, whose checksums PyTorch writes and does not check.

        PyTorch compresses nothing: what unpacks to more than the file has is no checkpoint, and may take hours.
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


def going_on(epoch_num: int, step: int) -> str:
    """The same, and what comes next."""
    rest = f", with step {step + 1}" if step else f", with epoch {epoch_num + 1} from its start"
    return after(epoch_num, step) + rest


def path_of(folder: Path, epoch_num: int, step: int = 0) -> Path:
    """Where the checkpoint after so many epochs lies, or after a step of the next one."""
    within = f"-step{step}" if step else ""
    return folder / run_folder.CHECKPOINTS / f"epoch{epoch_num}{within}.ckpt"


def in_folder(folder: Path) -> list[Checkpoint]:
    """The checkpoints in a run's folder, newest first, damaged ones too."""
    inner = folder / run_folder.CHECKPOINTS
    matches = (re.fullmatch(r"epoch(\d{1,9})(?:-step(\d{1,12}))?\.ckpt", name) for name in files.names(inner))
    present = [Checkpoint(inner / match[0], int(match[1]), int(match[2] or 0)) for match in matches if match]
    return sorted(present, key=lambda checkpoint: checkpoint.place, reverse=True)


def newest(folder: Path) -> Checkpoint | None:
    """The newest checkpoint that is whole."""
    return next((checkpoint for checkpoint in in_folder(folder) if checkpoint.whole), None)


def newest_of(folders: Sequence[Path]) -> Checkpoint | None:
    """The newest checkpoint of the last folder that has one and in which nobody is at work."""
    for folder in reversed(folders):
        with (
            suppress(run_lock.Running),
            run_lock.hold_abandoned(folder, ended=run_folder.read_result(folder) is not None),
        ):
            if checkpoint := newest(folder):
                return checkpoint
    return None


def prune(folder: Path) -> None:
    """Delete all but the newest checkpoints, and what a crash left half written."""
    kept = {checkpoint.path for checkpoint in in_folder(folder)[:NUM_KEPT]}
    inner = folder / run_folder.CHECKPOINTS
    for path in (inner / name for name in files.names(inner)):
        if path not in kept:
            files.remove(path)


def remove(folder: Path) -> None:
    """Delete all checkpoints of a run, which has finished."""
    shutil.rmtree(folder / run_folder.CHECKPOINTS, ignore_errors=True)
