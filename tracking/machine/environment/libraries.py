"""The CUDA libraries, drivers and frameworks that a process has really loaded, told by its own map of its memory.

What torch says it was built with, what a wheel installed and what the dynamic linker found can be three things: a
system's library or one of LD_LIBRARY_PATH comes before a wheel's, and an image's compatibility library before the
driver's own. A process maps a framework's own libraries once it imports it, so no hook and no import of ours is
needed. Packages of pure Python, such as Keras, Flax and Lightning, map nothing: the framework below them is named.
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
LOOKED_FOR = ("cuda", "cudart", "cublas", "cublasLt", "cudnn", "nccl")
# By framework: the folder of its libraries in site-packages, and the distributions that install it.
FRAMEWORKS = {
    "pytorch": ("torch", ("torch",)),
    "jax": ("jaxlib", ("jax",)),
    "tensorflow": ("tensorflow", ("tensorflow", "tensorflow-cpu", "tf-nightly", "tensorflow-gpu")),
    "mxnet": ("mxnet", ("mxnet",)),  # its wheels for CUDA are mxnet-cu112 and the like
    "paddle": ("paddle", ("paddlepaddle", "paddlepaddle-gpu")),
}
FOLDERS = {folder: name for name, (folder, _) in FRAMEWORKS.items()}
OF_FRAMEWORK = re.compile(rf"(/\S*)/({'|'.join(FOLDERS)})/\S*\.so\S*$")


def mapped(maps: Path = MAPS) -> dict[str, str]:
    """The path of each of the libraries that this process has mapped, by its name without lib and .so."""
    text = maps.read_text() if maps.exists() else ""
    paths: dict[str, str] = {}
    for line in text.splitlines():
        if (match := LIBRARY.search(line)) and match[2] in LOOKED_FOR:
            paths.setdefault(match[2], match[1])
    return dict(sorted(paths.items()))


def mapped_by(pids: Iterable[int], proc: Path = Path("/proc")) -> dict[str, str]:
    """The same of other processes, as far as they may be looked at; of each library the first path that is found."""
    paths: dict[str, str] = {}
    for pid in pids:
        with suppress(OSError):  # it has ended, or is another user's
            paths = mapped(proc / str(pid) / "maps") | paths
    return dict(sorted(paths.items()))


def summary(paths: dict[str, str]) -> str:
    """`cudnn 9.26.0.51, nccl 2.30.7`: of a wheel its version, of any other library its path."""
    owners = _known_versions(tuple(paths.values()))
    return ", ".join(f"{name} {owners.get(path, path)}" for name, path in paths.items() if name != "cuda")


@lru_cache(maxsize=4)
def _known_versions(paths: tuple[str, ...]) -> dict[str, str]:
    """Once for the libraries that a process has loaded: it does not load others of the same paths."""
    return wheel_versions(paths)


def wheel_versions(paths: Sequence[str]) -> dict[str, str]:
    """The version of the installed wheel that each of these files belongs to, of those that belong to one.

    The wheels are looked for beside the files: these may be of another Python's environment.
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
    """By framework, the folder of packages from which one of these processes has mapped its libraries."""
    folders: dict[str, str] = {}
    for pid in pids:
        with suppress(OSError):  # it has ended, or is another user's
            for line in (proc / str(pid) / "maps").read_text().splitlines():
                if match := OF_FRAMEWORK.search(line):
                    folders.setdefault(FOLDERS[match[2]], match[1])
    return folders


def framework_words(folders: Mapping[str, str]) -> str:
    """`jax 0.11.2 + pytorch 2.11.0`: the frameworks with the versions that these folders of packages hold."""
    return " + ".join(framework(name, _packages(folders[name])) for name in sorted(folders))


def installed_framework(packages: Mapping[str, str]) -> str | None:
    """The framework of a Python with these packages; None without one, and with several, of which any may be in use."""
    there = [name for name in FRAMEWORKS if any(_installs(name, package) for package in packages)]
    return framework(there[0], packages) if len(there) == 1 else None


def framework(name: str, packages: Mapping[str, str]) -> str:
    """`jax 0.11.2`; the name alone where no package has its version."""
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


def kernel_driver(path: Path = KERNEL_DRIVER) -> str | None:
    """The version of the kernel's NVIDIA module; None where there is none."""
    match = re.search(r"Kernel Module\D*?(?:for \S+)?\s+(\d+(?:\.\d+)+)", path.read_text()) if path.exists() else None
    return match[1] if match else None


def cuda_driver() -> str | None:
    """The newest CUDA of the driver's library that a program here gets: of a compatibility library, that one's.

    CUDA stays uninitialised (cuDriverGetVersion asks nothing of a GPU).
    """
    version = ctypes.c_int()
    try:
        if ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version)):
            return None
    except (OSError, AttributeError):
        return None
    return f"{version.value // 1000}.{version.value % 1000 // 10}"
