"""State of the process that a test may change and must restore: else another test fails, but only in company."""

from __future__ import annotations

import gc
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

# pytest's own, which changes within a test.
NOT_OURS = {"PYTEST_CURRENT_TEST"}
# By which launchers, supervisors and workers are told to end.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)


def torch_settings() -> dict[str, tuple[Any, Callable[[Any], object]]]:
    """PyTorch's settings for a process, each with what sets it; {} where nothing has imported it."""
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "compiler"):  # Absent, or within its import
        return {}
    compiler = sys.modules.get("torch._dynamo.config")  # It takes seconds to import.

    def set_default_device(device: Any) -> None:
        torch.set_default_device(None if device.type == "cpu" else device)  # None costs no call of PyTorch anything.

    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn

    def attribute(owner: Any, name: str) -> tuple[Any, Callable[[Any], object]]:
        return getattr(owner, name), lambda value: setattr(owner, name, value)

    return {
        "default dtype": (torch.get_default_dtype(), torch.set_default_dtype),
        "matmul precision": (torch.get_float32_matmul_precision(), torch.set_float32_matmul_precision),
        "cudnn.allow_tf32": attribute(cudnn, "allow_tf32"),
        "cudnn.benchmark": attribute(cudnn, "benchmark"),
        "cudnn.deterministic": attribute(cudnn, "deterministic"),
        "bf16 reduction": attribute(matmul, "allow_bf16_reduced_precision_reduction"),
        "deterministic": (torch.are_deterministic_algorithms_enabled(), torch.use_deterministic_algorithms),
        "gradients": (torch.is_grad_enabled(), torch.set_grad_enabled),
        "threads": (torch.get_num_threads(), torch.set_num_threads),
        "default device": (torch.get_default_device(), set_default_device),
        "anomaly detection": (torch.is_anomaly_enabled(), torch.autograd.set_detect_anomaly),
        **({"GPU": (torch.cuda.current_device(), torch.cuda.set_device)} if torch.cuda.is_initialized() else {}),
        **({"recompile limit": attribute(compiler, "recompile_limit")} if compiler else {}),
    }


def python_settings() -> dict[str, tuple[Any, Callable[[Any], object]]]:
    """The signal handlers, the exception hooks and the current folder of this process, each with its setter."""
    settings: dict[str, tuple[Any, Callable[[Any], object]]] = {
        "folder": (os.getcwd(), os.chdir),  # noqa: PTH109  (as a text, which outlives the folder)
        "excepthook": (sys.excepthook, lambda hook: setattr(sys, "excepthook", hook)),
    }
    for number in SIGNALS:
        if (handler := signal.getsignal(number)) is not None:  # None was not set from Python.
            settings[number.name] = handler, partial(signal.signal, number)
    return settings


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name not in NOT_OURS}


def end_process_group() -> bool:
    """End a process group that a test left; whether there was one."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return False
    distributed.destroy_process_group()
    return True


def free_gpus() -> None:
    """Free what is compiled, captured and cached, so that the next test has the GPU to itself."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return
    torch.compiler.reset()
    gc.collect()
    torch.cuda.empty_cache()


@contextmanager
def kept() -> Iterator[list[str]]:
    """Undo what the block changes; the list it gives names the changes afterwards."""
    changes: list[str] = []
    variables, settings = environment(), torch_settings() | python_settings()
    had_group = "torch.distributed" in sys.modules and sys.modules["torch.distributed"].is_initialized()
    try:
        yield changes
    finally:
        if not had_group and end_process_group():
            changes.append("a process group is open")
        for name, (value, _) in (torch_settings() | python_settings()).items():
            before, restore = settings.get(name, (value, None))
            if restore is not None and value != before:
                changes.append(f"{name}: {before} became {value}")
                restore(before)
        for name in {*variables, *environment()}:
            if variables.get(name) != os.environ.get(name):
                changes.append(f"${name}: {variables.get(name)} became {os.environ.get(name)}")
                if name in variables:
                    os.environ[name] = variables[name]
                else:
                    del os.environ[name]
