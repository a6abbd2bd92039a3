"""The GPUs that CUDA would show, from NVML.

It neither imports torch nor starts CUDA, so the launcher can use it before a worker exists. Some GPUs do not answer
every query (GB10 has no memory of its own); such a value is absent.
"""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

DEVICE = Path("/dev/nvidiactl")  # exists if the driver is installed and may be used


@dataclass(frozen=True)
class Gpu:
    """A device as CUDA shows it: a GPU or, where MIG partitions it, one MIG device."""

    index: int  # as in nvidia-smi and NVML, by PCI bus; for a MIG device, that of its GPU
    name: str
    uuid: str
    memory_bytes: int | None = None
    compute_capability: float | None = None
    energy_counter: bool | None = None  # None if it is not known; MIG devices and GPUs before Volta have none


def visible_gpus(environ: Mapping[str, str] = os.environ) -> list[Gpu]:
    """The GPUs that CUDA would show a process with this environment, in CUDA's order for CUDA_DEVICE_ORDER=PCI_BUS_ID.

    Empty without an NVIDIA driver, and if NVML fails (see `trouble`).
    """
    machine, _ = _machine()
    return select(machine, environ.get("CUDA_VISIBLE_DEVICES"))


def uuids_by_cuda(torch_module: Any) -> list[str]:
    """The UUIDs of GPUs by CUDA's index, as PyTorch tells them; empty unless CUDA is initialised in this process.

    CUDA counts the fastest GPU first, unless CUDA_DEVICE_ORDER says otherwise. NVML counts by PCI bus.
    """
    cuda = getattr(torch_module, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return []
    return [f"GPU-{cuda.get_device_properties(index).uuid}" for index in range(cuda.device_count())]


def counts_as_cuda(of_gpus: Iterable[str], environ: Mapping[str, str]) -> bool:
    """Whether CUDA surely counts the machine's GPUs, whose names are given, in NVML's order, or gets them by UUID."""
    by_uuid = environ.get("CUDA_VISIBLE_DEVICES", "").startswith(("GPU-", "MIG-"))
    return by_uuid or environ.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID" or len(set(of_gpus)) < 2


def names(of_gpus: Iterable[str]) -> str:
    """The names of GPUs as a tag has them; with numbers if they differ, as in `1 A100 + 3 H100`."""
    counts = sorted(Counter(of_gpus).items())
    return " + ".join(f"{count} {name}" if len(counts) > 1 else name for name, count in counts) or "none"


def trouble() -> str:
    """Why NVML fails although an NVIDIA driver is installed; empty if it works, and without a driver."""
    _, reason = _machine() if DEVICE.exists() else ([], "")
    return f"an NVIDIA driver is here, and its GPUs cannot be seen: {reason}" if reason else ""


def noted_gpus() -> list[Gpu]:
    """The GPUs of this machine. Prints a note if the driver is installed and shows no GPU."""
    if reason := trouble():
        print(f"note: {reason}", file=sys.stderr)
    return visible_gpus()


def _machine() -> tuple[list[list[Gpu]], str]:
    """The devices that CUDA could show, for each GPU of the machine; and why NVML fails, or an empty text."""
    try:
        import pynvml
    except ImportError:
        return [], "the package nvidia-ml-py is missing; install it"
    try:
        pynvml.nvmlInit()
        try:
            return [_devices(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())], ""
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError as error:  # such as a GPU that fell off the bus: CUDA does not start then either
        return [], f"NVML: {error}"


def bus_id(uuid: str) -> str:
    """A device's address on the PCI bus, such as 00000000:3B:00.0; empty if it is not known."""
    if (pynvml := _started()) is None:
        return ""
    try:
        return str(pynvml.nvmlDeviceGetPciInfo(pynvml.nvmlDeviceGetHandleByUUID(uuid)).busId)
    except pynvml.NVMLError:
        return ""
    finally:
        pynvml.nvmlShutdown()


def driver_version() -> str | None:
    """The NVIDIA driver's version, such as 580.159.04; None without a driver."""
    if (pynvml := _started()) is None:
        return None
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def _started() -> ModuleType | None:
    """The initialised NVML, which the caller shuts down; None without an NVIDIA driver or the package."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    module: ModuleType = pynvml
    return module


def _devices(pynvml: ModuleType, index: int) -> list[Gpu]:
    """The devices that CUDA could show of the GPU with this index: the GPU itself or, under MIG, its MIG devices."""
    gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
    capability = _answer(pynvml, pynvml.nvmlDeviceGetCudaComputeCapability, gpu)
    mig = _answer(pynvml, pynvml.nvmlDeviceGetMigMode, gpu)
    handles = _mig_handles(pynvml, gpu) if mig and mig[0] == pynvml.NVML_DEVICE_MIG_ENABLE else [gpu]
    gpus = []
    for handle in handles:
        memory = _answer(pynvml, pynvml.nvmlDeviceGetMemoryInfo, handle)
        gpus.append(
            Gpu(
                index,
                _answer(pynvml, pynvml.nvmlDeviceGetName, handle) or "unknown",
                pynvml.nvmlDeviceGetUUID(handle),  # A GPU without a UUID cannot be used.
                memory.total if memory else None,
                round(capability[0] + capability[1] / 10, 1) if capability else None,
                handle is gpu and _answer(pynvml, pynvml.nvmlDeviceGetTotalEnergyConsumption, gpu) is not None,
            )
        )
    return gpus


def _answer(pynvml: ModuleType, query: Callable[[Any], Any], handle: Any) -> Any:
    """NVML's answer to a query; None if this GPU does not support it."""
    try:
        return query(handle)
    except pynvml.NVMLError:
        return None


def index_of(pynvml: Any, handle: Any) -> int:
    """NVML's index of a GPU, or of a MIG device's GPU."""
    with suppress(pynvml.NVMLError):  # raised for a whole GPU
        handle = pynvml.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(handle)
    return int(pynvml.nvmlDeviceGetIndex(handle))


def _mig_handles(pynvml: ModuleType, gpu: Any) -> list[Any]:
    handles = []
    for slot in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(gpu)):
        try:
            handles.append(pynvml.nvmlDeviceGetMigDeviceHandleByIndex(gpu, slot))
        except pynvml.NVMLError_NotFound:
            continue  # a free slot
    return handles


def select(machine: Sequence[Sequence[Gpu]], visible: str | None) -> list[Gpu]:
    """The devices that CUDA shows with this value of CUDA_VISIBLE_DEVICES (None: not set).

    `machine` has the devices that CUDA could show, for each GPU index. Rules: the CUDA programming guide (enumeration
    stops at the first invalid entry), torch.cuda._parse_visible_devices for what the guide leaves open (a repeated
    entry hides everything; indices and UUIDs do not mix), and the MIG user guide (a process sees one MIG device, and
    then no other GPU).
    """
    if visible is None:
        chosen = [devices[0] for devices in machine if devices]
    else:
        chosen = []
        kind = visible[:4] if visible.startswith(("GPU-", "MIG-")) else ""
        for entry in visible.split(","):
            device = _find(machine, entry, kind)
            if device is None:
                break
            chosen.append(device)
        if len(set(chosen)) < len(chosen):
            return []
    return [device for device in chosen if device.uuid.startswith("MIG-")][:1] or chosen


def _find(machine: Sequence[Sequence[Gpu]], entry: str, kind: str) -> Gpu | None:
    if kind:
        matches = [device for devices in machine for device in devices if device.uuid.startswith(entry)]
        return matches[0] if entry.startswith(kind) and len(matches) == 1 else None
    number = re.match(r"\s*\+?(\d+)", entry)  # like strtoul: text after the digits is ignored
    index = int(number[1]) if number else len(machine)
    return machine[index][0] if index < len(machine) and machine[index] else None
