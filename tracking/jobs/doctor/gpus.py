"""Checks that the GPUs, their driver and PyTorch fit together, and that NCCL works."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from tracking.base import installation
from tracking.jobs.doctor.finding import Finding
from tracking.machine.environment import nvidia_smi, nvml
from tracking.machine.stacks import MIN_DRIVER

NOT_STARTED = 127  # a shell's exit code for a missing command
NCCL_TIMEOUT_SEC = 180.0

CommandRunner = Callable[[Sequence[str], float], tuple[int, str]]  # command, seconds to wait -> exit code, output


def run(command: Sequence[str], timeout_sec: float) -> tuple[int, str]:
    """Exit code and output; NOT_STARTED or 124 with the reason if the command does not start or end.

    Kills all its children, since a process that waits for a GPU keeps its memory.
    """
    folders = [str(installation.SEARCH_FOLDER), os.environ.get("PYTHONPATH")]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    try:
        with subprocess.Popen(command, env=environ, start_new_session=True, **pipes) as process:
            try:
                output, errors = process.communicate(timeout=timeout_sec)
            finally:  # after Ctrl-C too, which does not reach the new session
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
    except OSError as error:
        return NOT_STARTED, str(error)
    except subprocess.TimeoutExpired:
        return 124, f"still ran after {timeout_sec:g} s, and was killed"
    return process.returncode, output or errors


def gpus(run: CommandRunner) -> Iterator[Finding]:
    """Findings on GPUs, NVML, torch, driver and NCCL."""
    code, text = run(("nvidia-smi", "-q", "-x"), 60)
    machine = nvidia_smi.parse_gpus(text)
    names = [gpu.get("name", "unknown") for gpu in machine.get("gpus", [])]
    if not names:
        missing = code == NOT_STARTED
        words = (
            "no GPU on this machine; gpus=0 trains on the CPU"
            if missing
            else f"nvidia-smi finds no GPU: {last_line(text)}"
        )
        yield Finding("GPU", words, ok=missing)
    else:
        counts = " + ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))
        yield Finding("GPU", f"{counts}, driver {machine.get('driver')}")
    if why := nvml.trouble():
        yield Finding("NVML", why, ok=False)
    command = (sys.executable, "-P", "-m", installation.module("trainers.ceilings.nccl_check"))
    code, text = run(command, NCCL_TIMEOUT_SEC)
    try:
        stack = json.loads(last_line(text))
    except ValueError:
        yield Finding("torch", f"{' '.join(command[1:])} ended with exit code {code}: {last_line(text)}", ok=False)
        return
    yield driver(machine.get("driver"), stack, len(names))
    yield nccl(stack)


def driver(version: str | None, stack: dict[str, Any], num_gpus: int) -> Finding:
    """The finding on whether the driver is new enough for torch's CUDA."""
    torch, cuda = stack["torch"], stack["cuda"]
    if not num_gpus or version is None:
        return Finding("driver", f"no GPU: not checked (torch {torch}, CUDA {cuda or 'none'})")
    if cuda is None:
        return Finding("driver", f"torch {torch} is built without CUDA. Next: install a build that has it", ok=False)
    oldest = MIN_DRIVER.get(int(cuda.split(".")[0]))
    if oldest is None:
        return Finding("driver", f"{version}; the driver that CUDA {cuda} of torch {torch} needs is not known")
    if int(version.split(".")[0]) < oldest:
        fitting = [major for major, needed in MIN_DRIVER.items() if int(version.split(".")[0]) >= needed]
        other = f", or a torch built for CUDA {max(fitting)}" if fitting else ""
        words = f"{version} is too old for CUDA {cuda} of torch {torch}. Next: install driver {oldest} or newer{other}"
        return Finding("driver", words, ok=False)
    if not stack["gpus"]:
        words = f"torch {torch} does not see the {num_gpus} GPUs. Next: check CUDA_VISIBLE_DEVICES"
        return Finding("driver", words, ok=False)
    return Finding("driver", f"{version} is new enough for CUDA {cuda} of torch {torch} (from {oldest} on)")


def nccl(stack: dict[str, Any]) -> Finding:
    """The finding on NCCL: its version and the bandwidth of an all-reduce."""
    if "error" in stack:
        return Finding("NCCL", f"{stack['error']}. Next: set NCCL_DEBUG=INFO, which says more", ok=False)
    if stack["gpus"] < 2:
        return Finding("NCCL", "no GPU: not checked" if not stack["gpus"] else "one GPU: not checked")
    words = f"{stack['nccl']}, all-reduce over {stack['gpus']} GPUs at {stack['bus_gb_per_sec']:.1f} GB/s bus bandwidth"
    return Finding("NCCL", words)


def last_line(text: str) -> str:
    return next((line for line in reversed(text.splitlines()) if line.strip()), "no output")
