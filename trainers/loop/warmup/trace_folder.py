"""Keeps traces in a folder beside PyTorch's compiled code, with which they are exported and imported."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import torch

from conf.schema import ConfigError, RunConfig
from tracking.machine.environment import OthersWriteError, check_tree, check_way, inductor_folder
from tracking.record import documents
from trainers.loop.warmup.compile_first import TRACES
from trainers.loop.warmup.kept_traces import KeptTraces, forget_loaded
from trainers.ops import compiling

VARIABLE = "TIMETRIAL_KEEP_TRACES"


def are_kept() -> bool:
    """Return False if $TIMETRIAL_KEEP_TRACES is 0, or if this PyTorch cannot keep traces (before 2.9)."""
    return os.environ.get(VARIABLE) != "0" and find_spec("torch._dynamo.aot_compile") is not None


def keep_traces(config: RunConfig) -> None:
    """Have functions that are compiled from now on keep their traces, but for those of sharded or fp8 models.

    Their parameters are PyTorch's own kinds of tensors, and no GPU has shown that a kept trace suits them.
    """
    compiling.keeper = None
    if are_kept() and not config.sharded() and config.precision.name != "fp8":
        with suppress(OSError, KeyError):
            store = TraceFolder(inductor_folder(os.environ).absolute() / TRACES)
            compiling.keeper = partial(KeptTraces, store)


@contextmanager
def forgotten_on_failure() -> Iterator[None]:
    """If the block fails, delete the traces that it loaded, since one of them may be the cause."""
    try:
        yield
    except (ConfigError, torch.OutOfMemoryError):
        raise
    except Exception:
        if num := forget_loaded():
            logging.getLogger(__name__).error(
                "warming up failed. The %d loaded traces were deleted, since one may be the cause. Next: run it again",
                num,
            )
        raise


class TraceFolder:
    """A folder of traces. They are executed, so a file that others may have written is not read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, name: str) -> bytes | None:
        path = self._folder / f"{name}.trace"
        try:
            check_tree(path, check_way(path))
            return path.read_bytes()
        except OthersWriteError as why:
            logging.getLogger(__name__).warning("%s: not used, since %s", path, why)
        except OSError:
            pass
        return None

    def write(self, name: str, content: bytes) -> None:
        """Write atomically, if the folder can be written to."""
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            with documents.replacing(self._folder / f"{name}.trace") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(content)

    def remove(self, name: str) -> None:
        with suppress(OSError):
            (self._folder / f"{name}.trace").unlink()
