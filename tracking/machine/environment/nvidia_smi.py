"""Parses the output of `nvidia-smi`, for the fingerprint, and if NVML is not available."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tracking.machine.environment.nvml import Gpu

if TYPE_CHECKING:
    from xml.etree import ElementTree

# Paths of values in `nvidia-smi -q -x`; later alternatives are for older drivers.
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
    """`driver`, `driver_cuda` (the newest CUDA that the driver supports) and `gpus`, a list by index.

    `query` is the output of `nvidia-smi -q -x`, `listing` that of `nvidia-smi -L`, which has names and UUIDs of MIG
    devices. Returns {} for malformed XML.
    """
    from xml.etree import ElementTree  # Only here: a launcher with NVML does not parse XML.

    try:
        # A driver may append a warning to the document ("infoROM is corrupted").
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
    """The fields with a value in this element, without "N/A" and similar values."""
    values = {}
    for key, paths in fields.items():
        for path in paths:
            text = element.findtext(path, "").strip()
            if not _UNKNOWN.fullmatch(text):
                values[key] = text
                break
    return values


def _numbers(element: ElementTree.Element, fields: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """The fields with a number in this element, in the unit of their key."""
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
    """The `gpus` of parse_gpus in the form for `nvml.select`, without MIG devices that lack a UUID."""
    return [
        [
            Gpu(gpu["index"], device.get("name", gpu.get("name", "")), device["uuid"], device.get("memory_bytes"))
            for device in (gpu.get("mig_devices", []) if gpu.get("mig") == "Enabled" else [gpu])
            if "uuid" in device
        ]
        for gpu in gpus
    ]
