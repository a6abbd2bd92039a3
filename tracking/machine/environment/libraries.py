"""The CUDA libraries, drivers and frameworks that a process has really loaded, from its memory map.

The version that torch was built with, the wheel's version and the loaded one can differ: libraries of the system or in
LD_LIBRARY_PATH precede those of wheels, and an image's compatibility library precedes the driver's. A process maps a
framework's libraries when it imports it, so neither a hook nor an import of ours is needed. Packages of pure Python,
such as Keras, Flax and Lightning, map no library; the framework below them is named.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

MAPS = Path("/proc/self/maps")
KERNEL_DRIVER = Path("/proc/driver/nvidia/version")
LIBRARY = re.compile(r"(/\S*/lib(\w+)\.so\S*)$")
NAMES = ("cuda", "cudart", "cublas", "cublasLt", "cudnn", "nccl")
# By framework: the folder of its libraries in site-packages, and the distributions that install it.
FRAMEWORKS = {
    "pytorch": ("torch", ("torch",)),
    "jax": ("jaxlib", ("jax",)),
    "tensorflow": ("tensorflow", ("tensorflow", "tensorflow-cpu", "tf-nightly", "tensorflow-gpu")),
    "mxnet": ("mxnet", ("mxnet",)),  # its wheels for CUDA are mxnet-cu112 and the like
    "paddle": ("paddle", ("paddlepaddle", "paddlepaddle-gpu")),
}
FOLDERS = {folder: name for name, (folder, _) in FRAMEWORKS.items()}
# An environment may be named after a framework: /opt/torch/lib/python3.12/site-packages/numpy/core.so is not PyTorch's.
OF_FRAMEWORK = re.compile(rf"(/\S*)/({'|'.join(FOLDERS)})/(?!\S*\b(?:site|dist)-packages/)\S*\.so\S*$")


def mapped(maps: Path = MAPS) -> dict[str, str]:
    """The paths of the CUDA libraries that a process has mapped, by name without lib and .so."""
    text = maps.read_text() if maps.exists() else ""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        if (match := LIBRARY.search(line)) and match[2] in NAMES:
            paths.setdefault(match[2], match[1])
    return dict(sorted(paths.items()))


def mapped_by(pids: Iterable[int]) -> dict[str, str]:
    """The paths of CUDA libraries mapped by other processes that may be read; the first path of each library."""
    paths: dict[str, str] = {}
    for pid in pids:
        with suppress(OSError):  # It has ended, or belongs to another user.
            paths = mapped(Path(f"/proc/{pid}/maps")) | paths
    return dict(sorted(paths.items()))


def summary(paths: dict[str, str]) -> str:
    """`cudnn 9.26.0.51, nccl 2.30.7`: the version of a wheel's library, the path of any other."""
    owners = _known_versions(tuple(paths.values()))
    return ", ".join(f"{name} {owners.get(path, path)}" for name, path in paths.items() if name != "cuda")


@lru_cache(maxsize=4)
def _known_versions(paths: tuple[str, ...]) -> dict[str, str]:
    """Cached versions: a process does not load other libraries from the same paths."""
    return wheel_versions(paths)


def wheel_versions(paths: Sequence[str]) -> dict[str, str]:
    """The versions of the wheels to which these files belong; without files of no wheel.

    Wheels are searched beside the files, which may be in another Python's environment.
    """
    from importlib import metadata

    versions = {}
    folders = {match[1] for path in paths if (match := re.match(r"(.*/(?:site|dist)-packages)/", path))}
    infos = [str(info.parent) for folder in sorted(folders) for info in Path(folder).glob("nvidia_*.dist-info/RECORD")]
    for wheel in map(metadata.Distribution.at, infos):
        for file in wheel.files or []:
            if ".so" in file.name:
                with suppress(OSError):
                    versions[str(Path(str(wheel.locate_file(file))).resolve())] = str(wheel.version)
    return {path: versions[str(Path(path).resolve())] for path in paths if str(Path(path).resolve()) in versions}


def frameworks_of(pids: Iterable[int], proc: Path = Path("/proc")) -> dict[str, str]:
    """By framework, the folder of packages (site-packages) whose libraries one of these processes has mapped."""
    folders: dict[str, str] = {}
    for pid in pids:
        with suppress(OSError):  # It has ended, or belongs to another user.
            for line in (proc / str(pid) / "maps").read_text().splitlines():
                if match := OF_FRAMEWORK.search(line):
                    folders.setdefault(FOLDERS[match[2]], match[1])
    return folders


def framework_words(folders: Mapping[str, str]) -> str:
    """`jax 0.11.2 + pytorch 2.11.0`: the frameworks with their versions in these folders of packages."""
    return " + ".join(framework(name, _packages(folders[name])) for name in sorted(folders))


def installed_framework(packages: Mapping[str, str]) -> str | None:
    """The framework of a Python with these packages; None without one, and with several, since any may be in use."""
    installed = [name for name in FRAMEWORKS if any(_installs(name, package) for package in packages)]
    return framework(installed[0], packages) if len(installed) == 1 else None


def framework(name: str, packages: Mapping[str, str]) -> str:
    """`jax 0.11.2`; only the name if no package has its version."""
    versions = [version for package, version in packages.items() if _installs(name, package)]
    return " ".join([name, *versions[:1]])


def _packages(folder: str) -> dict[str, str]:
    from importlib import metadata

    return {package.metadata["Name"] or "": package.version for package in metadata.distributions(path=[folder])}


def _installs(name: str, distribution: str) -> bool:
    return distribution.lower().replace("_", "-") in FRAMEWORKS[name][1] or distribution.startswith(f"{name}-cu")


def drivers() -> dict[str, str]:
    """The drivers of a fingerprint's `software`."""
    driver_versions = {"kernel_driver": kernel_driver(), "cuda_driver": cuda_driver()}
    return {key: version for key, version in driver_versions.items() if version}


def kernel_driver() -> str | None:
    """The version of the kernel's NVIDIA module; None without the module."""
    path = KERNEL_DRIVER
    match = re.search(r"Kernel Module\D*?(?:for \S+)?\s+(\d+(?:\.\d+)+)", path.read_text()) if path.exists() else None
    return match[1] if match else None


def cuda_driver() -> str | None:
    """The newest CUDA of the driver library that a program loads, which may be a compatibility library.

    CUDA stays uninitialised (cuDriverGetVersion does not touch a GPU).
    """
    version = ctypes.c_int()
    try:
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)):
            return None
    except (OSError, AttributeError):
        return None
    return f"{version.value // 1000}.{version.value % 1000 // 10}"
