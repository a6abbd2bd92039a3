"""Changes of a test to its process are undone, so tests pass together as they do alone."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytorch_lightning as pl
import torch
import torch.distributed as dist

from tests.support import process_state


def leak() -> None:
    pl.seed_everything(4, verbose=False)
    os.environ["OMP_NUM_THREADS"] = "7"
    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("high")
    torch.backends.cudnn.allow_tf32 = not torch.backends.cudnn.allow_tf32
    torch.set_default_device("meta")
    torch.autograd.set_detect_anomaly(True)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.excepthook = lambda *_: None
    os.chdir("/")
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


def test_it_is_undone_and_named() -> None:
    before, folder, hook = process_state.environment(), Path.cwd(), sys.excepthook
    with process_state.kept() as changes:
        leak()
    assert process_state.environment() == before
    assert not dist.is_initialized()
    assert (Path.cwd(), sys.excepthook) == (folder, hook)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert torch.zeros(1).device.type == "cpu"
    assert torch.get_default_dtype() == torch.float32
    assert torch.get_float32_matmul_precision() == "highest"
    named = " ".join(changes)
    for words in (
        "process group",
        "default dtype",
        "matmul precision",
        "cudnn.allow_tf32",
        "default device: cpu became meta",
        "anomaly detection: False became True",
        "SIGTERM",
        "excepthook",
        "folder",
        "$PL_GLOBAL_SEED: None became 4",
    ):
        assert words in named


def test_a_test_leaks() -> None:
    leak()


def test_the_next_one_finds_all_as_it_was() -> None:
    """It follows `test_a_test_leaks`, in the same process."""
    assert "PL_GLOBAL_SEED" not in os.environ
    assert torch.get_default_dtype() == torch.float32
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    assert not dist.is_initialized()


def test_nothing_is_changed_where_nothing_was() -> None:
    with process_state.kept() as changes:
        torch.manual_seed(1)
    assert changes == []
