"""Keeps traces and the FLOPs of steps beside PyTorch's compiled code; exports and imports of it include them."""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytorch_lightning as pl
import torch

from conf.schema import ConfigError, RunConfig
from tracking.machine.environment import OthersWriteError, check_tree, check_way, inductor_folder
from tracking.record import documents
from trainers.loop.warmup import compile_first, kept_sources
from trainers.loop.warmup.kept_traces import KeptTraces, forget_loaded
from trainers.loop.warmup.steps import flops_per_sample
from trainers.ops import compiling
from trainers.workload import Batch, TrialModule

VARIABLE = "TIMETRIAL_KEEP_TRACES"


def are_kept() -> bool:
    """Return False if $TIMETRIAL_KEEP_TRACES is 0, or if this PyTorch cannot keep traces (before 2.9)."""
    return os.environ.get(VARIABLE) != "0" and find_spec("torch._dynamo.aot_compile") is not None


def keep_traces(config: RunConfig) -> None:
    """Have functions compiled from now on keep their traces, except in sharded or fp8 models.

    The parameters of these are special kinds of tensors, for which kept traces have not been tried on a GPU.
    """
    compiling.keeper = None
    if are_kept() and not config.sharded() and config.precision.name != "fp8":
        with suppress(OSError, KeyError):
            store = TraceFolder(inductor_folder(os.environ).absolute() / compile_first.TRACES)
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


def kept_flops(config: RunConfig, trainer: pl.Trainer, module: TrialModule, batch: Batch) -> float:
    """Return the FLOPs that an earlier run counted for this module and batch; else count and keep them.

    Counting runs a step without compiled code, which takes a second or two on a GPU.
    """
    ours = config.model.workload.startswith(compile_first.OUR_OWN) and not config.sharded()
    if (stated := module.flops_per_sample()) is not None or not ours or not are_kept():
        return flops_per_sample(trainer, module, batch) if stated is None else stated
    shapes = {name: value.shape for name, value in batch.items() if isinstance(value, torch.Tensor)}
    facts = [torch.__version__, config.precision.name, repr(module), config.model.hparams, shapes]
    name = hashlib.sha256(repr(facts).encode()).hexdigest()
    try:
        store = TraceFolder(inductor_folder(os.environ).absolute() / compile_first.FOLDER, ".flops")
    except (OSError, KeyError):
        return flops_per_sample(trainer, module, batch)
    if kept := kept_sources.unchanged(store.read(name)):
        with suppress(ValueError):
            return float(kept)
    counted = flops_per_sample(trainer, module, batch)
    if content := kept_sources.with_sources(repr(counted).encode()):
        store.write(name, content)
    return counted


class TraceFolder:
    """A folder of traces. They are executed, so a file that others may have written is not read."""

    def __init__(self, folder: Path, suffix: str = ".trace") -> None:
        self._folder, self._suffix = folder, suffix

    def read(self, name: str) -> bytes | None:
        path = self._folder / f"{name}{self._suffix}"
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
            with documents.replacing(self._folder / f"{name}{self._suffix}") as file:
                os.fchmod(file.fileno(), 0o600)
                file.write(content)

    def remove(self, name: str) -> None:
        with suppress(OSError):
            (self._folder / f"{name}{self._suffix}").unlink()
