"""Parses the output of commands, and files, that describe the machine, the code and the process of a run."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from tracking.base.secrets import may_be_secret_name, redact

Output = Callable[[], str | None]
TIMEOUT_SEC = 20.0
DIFF_LIMIT_BYTES = 200_000
UNTRACKED_LIMIT = 1_000

_GIT = ("git", "--no-optional-locks", "-c", "core.quotepath=off")  # without a lock, since several runs may read at once
GIT_COMMANDS = {
    "commit": (*_GIT, "rev-parse", "HEAD"),
    "branch": (*_GIT, "symbolic-ref", "--short", "-q", "HEAD"),
    "diff": (*_GIT, "diff", "--no-color", "--no-ext-diff", "HEAD"),
    "untracked": (*_GIT, "ls-files", "--others", "--exclude-standard", "-z"),
}

COMPUTING_VARIABLES = ("CUDA_", "NCCL_", "OMP_", "GOMP_", "TORCH_", "PYTORCH_", "MKL_", "CUDNN_", "CUBLAS_", "NVIDIA_")


def start(command: Sequence[str], folder: Path | None = None) -> Output:
    """Start a command at once. Returns a function that waits for it and returns its output.

    The output is None if the command is missing, failed, or still ran TIMEOUT_SEC after its start (then it is killed).
    """
    deadline = time.monotonic() + TIMEOUT_SEC
    try:
        # A file, since a pipe has room for 64 KiB, and the command would wait for us to read the rest.
        file = tempfile.TemporaryFile()  # noqa: SIM115 - finish() closes it
    except OSError:
        return lambda: None
    try:
        process = subprocess.Popen(
            list(command),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError:
        file.close()
        return lambda: None

    def finish() -> str | None:
        with file:
            try:
                code = process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                with suppress(subprocess.TimeoutExpired):  # a process that hangs in the driver outlives its kill
                    process.wait(1.0)
                return None
            file.seek(0)
            # nvidia-smi returns 14 if its answer is good but a GPU's infoROM is corrupted.
            known = code == 0 or (code == 14 and command[0] == "nvidia-smi")
            return file.read().decode("utf-8", "replace") if known else None

    return finish


def parse_lscpu(text: str) -> dict[str, Any]:
    """The CPU from the output of `lscpu`. Cores are physical, threads logical, both of the whole machine."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        name, _, value = line.partition(":")
        if value.strip() not in ("", "-"):
            fields.setdefault(name.strip(), value.strip())
    values: dict[str, Any] = {"cpu": fields.get("Model name"), "architecture": fields.get("Architecture")}
    names = {"sockets": "Socket(s)", "threads": "CPU(s)", "numa_nodes": "NUMA node(s)"}
    values |= {key: int(fields[name]) for key, name in names.items() if fields.get(name, "").isdecimal()}
    per_socket = fields.get("Core(s) per socket", "")
    if "sockets" in values and per_socket.isdecimal():
        values["cores"] = values["sockets"] * int(per_socket)
    return {key: value for key, value in values.items() if value}


def cpu_model() -> str:
    """The model of this machine's CPU, as in a fingerprint; empty if it is not known."""
    return str(parse_lscpu(start(("lscpu",), None)() or "").get("cpu") or "")


def parse_meminfo(text: str) -> dict[str, int]:
    """The main memory from the text of /proc/meminfo."""
    match = re.search(r"^MemTotal:\s+(\d+) kB", text, re.M)
    return {"memory_bytes": int(match[1]) * 1024} if match else {}


def describe(lscpu: str, environ: Mapping[str, str]) -> dict[str, Any]:
    """The `host` part of a fingerprint."""
    values: dict[str, Any] = {"node": platform.node(), "kernel": platform.release()}
    with suppress(OSError):  # missing outside Linux
        values["os"] = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    meminfo = Path("/proc/meminfo")
    memory = parse_meminfo(meminfo.read_text()) if meminfo.exists() else {}
    values |= parse_lscpu(lscpu) | memory | container(environ)
    if hasattr(os, "sched_getaffinity"):
        values["usable_threads"] = len(os.sched_getaffinity(0))
    return {key: value for key, value in values.items() if value}


def container(environ: Mapping[str, str], root: Path = Path("/")) -> dict[str, str]:
    """The container runtime and the image of this process, as far as they are known."""
    values = {}
    podman = root / "run/.containerenv"
    if podman.exists():
        values["container"] = "podman"
        if match := re.search(r'^image="(.+)"$', podman.read_text(), re.M):
            values["image"] = match[1]
    elif (root / ".dockerenv").exists():
        values["container"] = "docker"
    elif "APPTAINER_CONTAINER" in environ:
        values |= {"container": "apptainer", "image": environ["APPTAINER_CONTAINER"]}
    return values | ({"image": environ["TIMETRIAL_IMAGE"]} if environ.get("TIMETRIAL_IMAGE") else {})


def environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that change how a run computes, without secrets."""
    return {
        name: redact(value)
        for name, value in sorted(environ.items())
        if name.startswith(COMPUTING_VARIABLES) and not may_be_secret_name(name)
    }


def parse_git(commit: str | None, branch: str | None, diff: str | None, untracked: str | None) -> dict[str, Any]:
    """The `git` part of a fingerprint from the output of GIT_COMMANDS; {} outside a repository.

    A tree is dirty if a tracked file differs from the commit, or if there are untracked files, which may be in use.
    """
    if not commit:
        return {}
    values: dict[str, Any] = {"commit": commit.strip()}
    if branch:
        values["branch"] = branch.strip()
    if diff is None or untracked is None:
        return values
    names = [name for name in untracked.split("\0") if name]
    values["dirty"] = bool(diff or names)
    if diff:
        content = diff.encode()
        # Cut first, since redacting takes seconds per megabyte, and at a line's end, so that no secret is split.
        kept = content[:DIFF_LIMIT_BYTES].rpartition(b"\n")[0] if len(content) > DIFF_LIMIT_BYTES else content
        # Redacted, since tracked files may have URLs with passwords and tokens (.gitmodules, .env).
        values["diff"] = redact(kept.decode(errors="ignore"))
        values["diff_truncated"] = len(content) > DIFF_LIMIT_BYTES
    return values | ({"untracked": names[:UNTRACKED_LIMIT]} if names else {})


def packages() -> dict[str, str]:
    """The version of every installed Python package by name; if one is installed twice, that of the imported one."""
    return dict(_packages(tuple(sys.path), tuple(_changed(folder) for folder in sys.path)))


def _changed(folder: str) -> int:
    """The time of the last change in a folder of packages, which decides whether the cached versions are valid."""
    with suppress(OSError):
        return os.stat(folder or ".").st_mtime_ns  # noqa: PTH116  (an entry of sys.path may be empty)
    return 0


@lru_cache(maxsize=2)
def _packages(path: tuple[str, ...], changed: tuple[int, ...]) -> dict[str, str]:
    from importlib import metadata  # Only in functions, since its import is slow.

    versions: dict[str, str] = {}
    for distribution in metadata.distributions(path=list(path)):
        # Only the head: parsing the description after it takes ten times as long.
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        head = dict(re.findall(r"^(Name|Version): *(.+?) *$", text.partition("\n\n")[0], re.M))
        if len(head) == 2:  # A broken installation can lack its name or version.
            versions.setdefault(head["Name"], head["Version"])
    return dict(sorted(versions.items(), key=lambda item: item[0].lower()))


def loaded_versions(torch_module: Any) -> dict[str, str]:
    """The versions of torch and of the CUDA, cuDNN and NCCL that it has loaded; {} without torch.

    CUDA stays uninitialised, because an initialised process cannot fork ranks that use CUDA.
    """
    if torch_module is None:
        return {}
    versions = {"torch": str(torch_module.__version__), "cuda": torch_module.version.cuda}
    if versions["cuda"]:
        versions["cudnn"] = library_version("libcudnn.so", "cudnnGetVersion")
        versions["nccl"] = library_version("libnccl.so", "ncclGetVersion")
        # torch.backends.cudnn.version() would initialise CUDA. torch's nccl.version() is that of its compilation.
        versions["nccl"] = versions["nccl"] or ".".join(map(str, torch_module.cuda.nccl.version()[:3]))
    return {key: version for key, version in versions.items() if version}


def library_version(name: str, function: str, maps: Path = Path("/proc/self/maps")) -> str | None:
    """The version that a loaded library reports; None if this process has not loaded it."""
    lines = maps.read_text().splitlines() if maps.exists() else []
    path = next((line[line.index("/") :] for line in lines if f"/{name}" in line), None)
    if path is None:
        return None
    try:
        ask = getattr(ctypes.CDLL(path), function)  # already loaded: loads nothing
    except (OSError, AttributeError):
        return None
    if name.startswith("libnccl"):  # ncclResult_t ncclGetVersion(int*)
        code = ctypes.c_int()
        return None if ask(ctypes.byref(code)) else version_of(code.value)
    ask.restype = ctypes.c_size_t  # size_t cudnnGetVersion(void)
    return version_of(ask())


def version_of(code: int) -> str:
    """The version in a number of cuDNN or NCCL: 91002 is 9.10.2, 22803 is 2.28.3, and before the change of scheme
    (cuDNN 9, NCCL 2.9) 8902 is 8.9.2 and 2708 is 2.7.8."""
    major = 10_000 if code >= 10_000 else 1_000
    return f"{code // major}.{code % major // 100}.{code % 100}"
