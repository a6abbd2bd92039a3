"""The GPUs as the NVIDIA driver reports them: those that CUDA would show (through NVML), and `nvidia-smi` as dicts.

Neither imports torch nor starts CUDA, so that the launcher can ask before a worker exists.
"""

from __future__ import annotations

import os
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import ModuleType
from typing import Any


@dataclass(frozen=True)
class Gpu:
    """A device as CUDA shows it: a GPU or, where MIG partitions it, one MIG device."""

    index: int  # nvidia-smi's and NVML's, by PCI bus; of the whole GPU also for a MIG device
    name: str
    uuid: str
    memory_bytes: int | None = None
    compute_capability: float | None = None


def visible_gpus(environ: Mapping[str, str] = os.environ) -> list[Gpu]:
    """The GPUs that CUDA would show a process with this environment, in CUDA's order for CUDA_DEVICE_ORDER=PCI_BUS_ID.

    Empty where there is no NVIDIA driver or the package nvidia-ml-py is missing.
    """
    pynvml = _started()
    if pynvml is None:
        return []
    try:
        machine = [_devices(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    except pynvml.NVMLError:  # a GPU that fell off the bus, say: CUDA does not start then either
        return []
    finally:
        pynvml.nvmlShutdown()
    return select(machine, environ.get("CUDA_VISIBLE_DEVICES"))


def bus_id(uuid: str) -> str:
    """Where a device is on the PCI bus, as 00000000:3B:00.0; empty where the driver does not tell."""
    if (pynvml := _started()) is None:
        return ""
    try:
        return str(pynvml.nvmlDeviceGetPciInfo(pynvml.nvmlDeviceGetHandleByUUID(uuid)).busId)
    except pynvml.NVMLError:
        return ""
    finally:
        pynvml.nvmlShutdown()


def driver_version() -> str | None:
    """The NVIDIA driver's version, such as 580.159.04; None where there is no driver."""
    if (pynvml := _started()) is None:
        return None
    try:
        return str(pynvml.nvmlSystemGetDriverVersion())
    except pynvml.NVMLError:
        return None
    finally:
        pynvml.nvmlShutdown()


def _started() -> ModuleType | None:
    """NVML, to be shut down by the caller; None where there is no NVIDIA driver or no package."""
    try:
        import pynvml
    except ImportError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _devices(pynvml: ModuleType, index: int) -> list[Gpu]:
    """What CUDA could show of the GPU with this index: the GPU itself or, under MIG, its MIG devices."""
    gpu = pynvml.nvmlDeviceGetHandleByIndex(index)
    major, minor = pynvml.nvmlDeviceGetCudaComputeCapability(gpu)
    handles = [gpu]
    try:
        if pynvml.nvmlDeviceGetMigMode(gpu)[0] == pynvml.NVML_DEVICE_MIG_ENABLE:
            handles = _mig_handles(pynvml, gpu)
    except pynvml.NVMLError_NotSupported:
        handles = [gpu]
    return [
        Gpu(
            index,
            pynvml.nvmlDeviceGetName(handle),
            pynvml.nvmlDeviceGetUUID(handle),
            pynvml.nvmlDeviceGetMemoryInfo(handle).total,
            round(major + minor / 10, 1),
        )
        for handle in handles
    ]


def index_of(pynvml: Any, handle: Any) -> int:
    """NVML's index of a GPU, or of the GPU that a MIG device is a part of."""
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
    """What CUDA shows of a machine under this value of CUDA_VISIBLE_DEVICES (None: not set).

    `machine` has, for each GPU index, the devices that CUDA could show of it. The rules are those of the CUDA
    programming guide (enumeration stops at the first invalid entry), of torch.cuda._parse_visible_devices for what the
    guide leaves open (a repeated entry hides everything; indices and UUIDs do not mix), and of the MIG user guide (one
    process sees one MIG device, and then no other GPU).
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
    number = re.match(r"\s*\+?(\d+)", entry)  # like strtoul: what follows the digits is ignored
    index = int(number[1]) if number else len(machine)
    return machine[index][0] if index < len(machine) and machine[index] else None


# Where `nvidia-smi -q -x` keeps a value; of several places, the later ones are those of older drivers.
_TEXTS = {
    "name": ("product_name",),
    "uuid": ("uuid",),
    "architecture": ("product_architecture",),
    "pci_bus_id": ("pci/pci_bus_id",),
    "vbios": ("vbios_version",),
    "compute_mode": ("compute_mode",),
    "persistence_mode": ("persistence_mode",),
    "ecc": ("ecc_mode/current_ecc",),
    "mig": ("mig_mode/current_mig",),
}
_NUMBERS = {
    "memory_bytes": ("fb_memory_usage/total",),
    "power_limit_watts": (
        "gpu_power_readings/current_power_limit",
        "gpu_power_readings/power_limit",
        "power_readings/power_limit",
    ),
    "default_power_limit_watts": ("gpu_power_readings/default_power_limit", "power_readings/default_power_limit"),
    "sm_clock_mhz": ("clocks/sm_clock",),
    "memory_clock_mhz": ("clocks/mem_clock",),
    "max_sm_clock_mhz": ("max_clocks/sm_clock",),
    "max_memory_clock_mhz": ("max_clocks/mem_clock",),
    "application_sm_clock_mhz": ("applications_clocks/graphics_clock",),
    "application_memory_clock_mhz": ("applications_clocks/mem_clock",),
    "pcie_generation": ("pci/pci_gpu_link_info/pcie_gen/current_link_gen",),
    "pcie_width": ("pci/pci_gpu_link_info/link_widths/current_link_width",),
    "max_pcie_generation": ("pci/pci_gpu_link_info/pcie_gen/max_link_gen",),
    "max_pcie_width": ("pci/pci_gpu_link_info/link_widths/max_link_width",),
}
_MIG_NUMBERS = {
    "index": ("index",),
    "gpu_instance": ("gpu_instance_id",),
    "compute_instance": ("compute_instance_id",),
    "memory_bytes": ("fb_memory_usage/total",),
    "multiprocessors": ("device_attributes/shared/multiprocessor_count",),
}
_UNKNOWN = re.compile(r"(\W*(n/?a|none|not supported|unknown error|.*deprecated|.*permissions?|.*reset)\W*)?", re.I)


def parse_gpus(query: str, listing: str = "") -> dict[str, Any]:
    """Read `nvidia-smi -q -x` and, for the names and UUIDs of MIG devices, `nvidia-smi -L`.

    Returns `driver`, `driver_cuda` (the newest CUDA that the driver supports) and `gpus`, a list by index; {} for text
    that is no such XML.
    """
    try:
        # A driver may put a warning behind the document ("infoROM is corrupted").
        root = ElementTree.fromstring("".join(query.partition("</nvidia_smi_log>")[:2]))
    except ElementTree.ParseError:
        return {}
    names = _mig_names(listing)
    gpus = []
    for index, element in enumerate(root.findall("gpu")):
        slices = [_numbers(mig, _MIG_NUMBERS) for mig in element.iter("mig_device")]
        for mig in slices:
            mig |= names.get((index, mig.get("index")), {})
        gpu = {"index": index} | _texts(element, _TEXTS) | _numbers(element, _NUMBERS)
        gpus.append(gpu | ({"mig_devices": slices} if slices else {}))
    return _texts(root, {"driver": ("driver_version",), "driver_cuda": ("cuda_version",)}) | {"gpus": gpus}


def _texts(element: ElementTree.Element, fields: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The fields that have a value in this element; "N/A" and its like are left out."""
    values = {}
    for key, paths in fields.items():
        for path in paths:
            text = element.findtext(path, "").strip()
            if not _UNKNOWN.fullmatch(text):
                values[key] = text
                break
    return values


def _numbers(element: ElementTree.Element, fields: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The fields that have a number in this element, in the unit that their key names."""
    values: dict[str, Any] = {}
    for key, text in _texts(element, fields).items():
        if match := re.fullmatch(r"(\d+(?:\.\d+)?)\s*(MiB|MHz|W|x)?", text):
            number = float(match[1])
            values[key] = number if match[2] == "W" else int(number * (2**20 if match[2] == "MiB" else 1))
    return values


def _mig_names(listing: str) -> dict[tuple[int, int | None], dict[str, str]]:
    """{(GPU index, MIG index): {"name": as CUDA names it, "uuid": ...}} of `nvidia-smi -L`."""
    names: dict[tuple[int, int | None], dict[str, str]] = {}
    index, model = -1, ""
    for line in listing.splitlines():
        if match := re.match(r"GPU (\d+): (.+) \(UUID", line):
            index, model = int(match[1]), match[2]
        elif match := re.match(r"\s*MIG (\S+)\s+Device\s+(\d+): \(UUID: (\S+)\)", line):
            names[index, int(match[2])] = {"name": f"{model} MIG {match[1]}", "uuid": match[3]}
    return names


def devices(gpus: Sequence[Mapping[str, Any]]) -> list[list[Gpu]]:
    """The `gpus` of parse_gpus in the form that `select` takes. A MIG device without a UUID cannot be selected."""
    return [
        [
            Gpu(gpu["index"], device.get("name", gpu.get("name", "")), device["uuid"], device.get("memory_bytes"))
            for device in (gpu.get("mig_devices", []) if gpu.get("mig") == "Enabled" else [gpu])
            if "uuid" in device
        ]
        for gpu in gpus
    ]
