"""The machine, the code and the process around a run: commands' and files' text as dicts."""

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

_GIT = ("git", "--no-optional-locks", "-c", "core.quotepath=off")  # no lock: several runs may look at once
GIT_COMMANDS = {
    "commit": (*_GIT, "rev-parse", "HEAD"),
    "branch": (*_GIT, "symbolic-ref", "--short", "-q", "HEAD"),
    "diff": (*_GIT, "diff", "--no-color", "--no-ext-diff", "HEAD"),
    "untracked": (*_GIT, "ls-files", "--others", "--exclude-standard", "-z"),
}

COMPUTING_VARIABLES = ("CUDA_", "NCCL_", "OMP_", "GOMP_", "TORCH_", "PYTORCH_", "MKL_", "CUDNN_", "CUBLAS_", "NVIDIA_")


def start(command: Sequence[str], folder: Path | None = None) -> Output:
    """Start a command at once. The function returned waits for it and returns what it wrote.

    That is None where the command is missing, failed, or still runs TIMEOUT_SEC after its start (it is then killed).
    """
    deadline = time.monotonic() + TIMEOUT_SEC
    try:
        # A file, not a pipe: a pipe holds 64 KiB, and the command would wait for us to read the rest.
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
            # nvidia-smi returns 14 where its answer is good but a GPU's infoROM is corrupted.
            known = code == 0 or (code == 14 and command[0] == "nvidia-smi")
            return file.read().decode("utf-8", "replace") if known else None

    return finish


def parse_lscpu(text: str) -> dict[str, Any]:
    """Read `lscpu`. Cores are physical and threads logical, both of the whole machine."""
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
    """The model of this machine's CPU, as in a fingerprint; empty where it is not told."""
    return str(parse_lscpu(start(("lscpu",), None)() or "").get("cpu") or "")


def parse_meminfo(text: str) -> dict[str, int]:
    """Read /proc/meminfo."""
    match = re.search(r"^MemTotal:\s+(\d+) kB", text, re.M)
    return {"memory_bytes": int(match[1]) * 1024} if match else {}


def describe(lscpu: str, environ: Mapping[str, str], root: Path = Path("/")) -> dict[str, Any]:
    """The `host` part of a fingerprint; `root` is where the machine's files are looked for."""
    values: dict[str, Any] = {"node": platform.node(), "kernel": platform.release()}
    with suppress(OSError):  # no such file outside Linux
        values["os"] = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    meminfo = root / "proc/meminfo"
    memory = parse_meminfo(meminfo.read_text()) if meminfo.exists() else {}
    values |= parse_lscpu(lscpu) | memory | container(environ, root)
    if hasattr(os, "sched_getaffinity"):
        values["usable_threads"] = len(os.sched_getaffinity(0))
    return {key: value for key, value in values.items() if value}


def container(environ: Mapping[str, str], root: Path = Path("/")) -> dict[str, str]:
    """The container runtime and the image that this process runs in, as far as they can be known."""
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
    """The variables that change how a run computes, without any whose name or value may hold a secret."""
    return {
        name: redact(value)
        for name, value in sorted(environ.items())
        if name.startswith(COMPUTING_VARIABLES) and not may_be_secret_name(name)
    }


def parse_git(commit: str | None, branch: str | None, diff: str | None, untracked: str | None) -> dict[str, Any]:
    """The `git` part of a fingerprint from the output of GIT_COMMANDS; {} outside a repository.

    A tree is dirty where a tracked file differs from the commit or an untracked file could be in use.
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
        # Cut first, since to look for secrets takes seconds a megabyte; at the end of a line, so that none is cut.
        kept = content[:DIFF_LIMIT_BYTES].rpartition(b"\n")[0] if len(content) > DIFF_LIMIT_BYTES else content
        # Redacted, since a remote's URL or a token can stand in a tracked file too (.gitmodules, .env).
        values["diff"] = redact(kept.decode(errors="ignore"))
        values["diff_truncated"] = len(content) > DIFF_LIMIT_BYTES
    return values | ({"untracked": names[:UNTRACKED_LIMIT]} if names else {})


def packages() -> dict[str, str]:
    """The version of every installed Python package by name; where two are installed, the one that is imported."""
    return dict(_packages(tuple(sys.path), tuple(_changed(folder) for folder in sys.path)))


def _changed(folder: str) -> int:
    """When something was last installed there or taken out; a script that fits many times asks as often."""
    with suppress(OSError):
        return os.stat(folder or ".").st_mtime_ns  # noqa: PTH116  (an entry of sys.path may be empty)
    return 0


@lru_cache(maxsize=2)
def _packages(path: tuple[str, ...], changed: tuple[int, ...]) -> dict[str, str]:
    from importlib import metadata  # Here, and where else it is asked: it takes as long to import as a room of ours.

    versions: dict[str, str] = {}
    for distribution in metadata.distributions(path=list(path)):
        # The head alone: to parse the description behind it takes ten times as long.
        text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
        head = dict(re.findall(r"^(Name|Version): *(.+?) *$", text.partition("\n\n")[0], re.M))
        if len(head) == 2:  # A broken installation can lack its name or version.
            versions.setdefault(head["Name"], head["Version"])
    return dict(sorted(versions.items(), key=lambda item: item[0].lower()))


def loaded_versions(torch_module: Any) -> dict[str, str]:
    """The versions of torch and of the CUDA, cuDNN and NCCL that it has loaded; {} for None.

    CUDA stays uninitialised, because a process that has initialised it cannot fork ranks that use it.
    """
    if torch_module is None:
        return {}
    versions = {"torch": str(torch_module.__version__), "cuda": torch_module.version.cuda}
    if versions["cuda"]:
        versions["cudnn"] = library_version("libcudnn.so", "cudnnGetVersion")
        versions["nccl"] = library_version("libnccl.so", "ncclGetVersion")
        # torch.backends.cudnn.version() would initialise CUDA; and this NCCL is the one that torch was compiled with.
        versions["nccl"] = versions["nccl"] or ".".join(map(str, torch_module.cuda.nccl.version()[:3]))
    return {key: version for key, version in versions.items() if version}


def library_version(name: str, function: str, maps: Path = Path("/proc/self/maps")) -> str | None:
    """The version of a library that this process has loaded, asked of itself; None where it is not one of its own."""
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
