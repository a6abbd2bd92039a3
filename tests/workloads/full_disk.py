"""A small VGG, on a disk that is full for checkpoints; each of them fails only when the training has stopped."""

from __future__ import annotations

import errno
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.commands import HANGS_SEC
from tests.workloads.small_vgg import SmallVgg
from tracking.record import journal, run_folder
from trainers.loop.saving import whole_files
from trainers.models import vgg
from trainers.workload import Workload


@contextmanager
def full(path: Path) -> Iterator[None]:
    """Stands for `documents.replacing`."""
    deadline = time.monotonic() + HANGS_SEC
    events = path.parent.parent / run_folder.JOURNAL
    while all(event.key != "run_stop" for event in journal.events(events)) and time.monotonic() < deadline:
        time.sleep(0.05)
    raise OSError(errno.ENOSPC, "No space left on device")
    yield


class OnFullDisk(SmallVgg):
    def on_train_start(self) -> None:
        whole_files.documents = type("Full", (), {"replacing": staticmethod(full)})  # type: ignore[assignment]


WORKLOAD = Workload(module=OnFullDisk, data=vgg.WORKLOAD.data)
