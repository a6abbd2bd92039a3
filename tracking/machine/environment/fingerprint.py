"""The environment that produced a number: `python -m tracking fingerprint`, and the same inside every run.

A fingerprint is a plain dict for JSON. A value that cannot be measured is left out, never guessed.

    gpus         every GPU of the machine by nvidia-smi index: index name uuid architecture pci_bus_id vbios
                 memory_bytes power_limit_watts default_power_limit_watts [max_]{sm,memory}_clock_mhz
                 application_{sm,memory}_clock_mhz compute_mode persistence_mode ecc mig ("Enabled" | "Disabled")
                 [max_]pcie_generation [max_]pcie_width (lanes) nvlink_links (active) nvlink_gb_per_sec (of one link in
                 one direction) mig_devices (index gpu_instance compute_instance memory_bytes multiprocessors name
                 uuid). Left out if nvidia-smi failed
    used         the GPUs in use: index name uuid memory_bytes; [] on a CPU; left out if they are not known
    topology     class (of the GPUs in use; see tracking.machine.environment.topology) links cpu_affinity numa_node
    software     driver driver_cuda (newest CUDA of that driver) kernel_driver (of the kernel's module) cuda_driver
                 (newest CUDA of the driver library that a program loads; it differs from driver_cuda if a
                 compatibility library shadows it) nvml (why NVML shows no GPU) python packages {name: version}; if
                 torch is imported, as loaded: torch cuda cudnn nccl, libraries {name: path} as mapped, loaded (their
                 versions as text), framework (`pytorch 2.11.0`); for a program, the packages of its Python, also jax
                 and tensorflow, if known
    host         node kernel os architecture cpu sockets cores threads usable_threads numa_nodes memory_bytes
                 container image
    git          commit branch dirty diff diff_truncated untracked, of the repository of the script or program, else of
                 this code; of an installation: commit and dirty of the repository that its wheel was built from
    timetrial    commit dirty, of this code, if `git` is that of a script or a program
    environment  the variables that change how a run computes
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from conf.schema import ConfigError
from tracking.machine.environment import host, libraries, nvidia_smi, nvml, topology
from tracking.machine.environment import repository as repositories
from tracking.record import documents, run_folder

Fingerprint = dict[str, Any]

COMMANDS = {
    "query": ("nvidia-smi", "-q", "-x"),
    "list": ("nvidia-smi", "-L"),  # the only one that names MIG devices
    "topology": ("nvidia-smi", "topo", "-m"),
    "nvlink": ("nvidia-smi", "nvlink", "-s"),
    "lscpu": ("lscpu",),
}
EXPECTABLE = ("torch", "cuda", "cudnn", "nccl", "driver", "python", "jax", "tensorflow")
# The values that identify a stack.
STACK = ("driver", "cuda_driver", "cuda", "cudnn", "nccl", "libraries", "torch", "image")


class Collector:
    """Starts the slow commands (nvidia-smi takes seconds) when it is created. `finish` waits for them.

    A worker creates one before it imports torch, and finishes it afterwards without added latency. `repository` is a
    folder of the script or program; default: this code.
    """

    def __init__(
        self,
        environ: Mapping[str, str] = os.environ,
        start: Callable[[Sequence[str], Path | None], host.Output] = host.start,
        repository: Path | None = None,
    ) -> None:
        self._environ = environ  # No copy: imports before `finish` set variables, which a later fork already has.
        self._outputs = {name: start(command, None) for name, command in COMMANDS.items()}
        parts = repositories.from_launcher(self._environ)
        self._repositories = repositories.ask(repository, start) if parts is None else lambda: parts

    def wait(self) -> None:
        """Wait for the commands. Then a fork of this process can finish too, although it is not their parent."""
        texts, states = {name: output() for name, output in self._outputs.items()}, self._repositories()
        self._outputs = {name: partial(texts.get, name) for name in texts}
        self._repositories = lambda: states

    def finish(self, torch_module: Any = None, gpu_indices: Sequence[int | str] | None = None) -> Fingerprint:
        """The fingerprint.

        `torch_module` is torch if the caller has imported it, else None. Only its versions are read, which does not
        initialize CUDA, so that the caller can still fork. `gpu_indices` are the GPUs in use, as CUDA's indices (the
        first of CUDA_VISIBLE_DEVICES is 0) or as UUIDs; [] = no GPU; None = all that CUDA shows.
        """
        text = {name: output() for name, output in self._outputs.items()}
        driver = nvidia_smi.parse_gpus(text["query"] or "", text["list"] or "")
        gpus = driver.pop("gpus", None)
        for index, links in topology.parse_nvlink(text["nvlink"] or "").items():
            if gpus and index < len(gpus):
                gpus[index] |= links
        used = _used(gpus, self._environ, gpu_indices, nvml.uuids_by_cuda(torch_module))
        matrix = topology.parse_matrix(text["topology"] or "")
        if used is not None:
            link_class = topology.classify(matrix.get("links", {}), [gpu.get("index") for gpu in used])
            matrix |= {"class": link_class} if link_class else {}
        software = driver | host.loaded_versions(torch_module) | libraries.drivers()
        software |= {"nvml": trouble} if (trouble := nvml.trouble()) else {}
        if torch_module is not None and (paths := libraries.mapped()):
            software |= {"libraries": paths, "loaded": libraries.summary(paths)}
        packages = host.packages()
        if torch_module is not None:
            software["framework"] = libraries.framework("pytorch", packages)
        parts = {
            "gpus": gpus,
            "used": used,
            "topology": matrix or None,
            "software": software | {"python": platform.python_version(), "packages": packages},
            "host": host.describe(text["lscpu"] or "", self._environ),
            **self._repositories(),
            "environment": host.environment(self._environ),
        }
        return {name: part for name, part in parts.items() if part is not None}


def collect(torch_module: Any = None, gpu_indices: Sequence[int | str] | None = None) -> Fingerprint:
    """Take the fingerprint of this process's environment now; see Collector.finish."""
    return Collector().finish(torch_module, gpu_indices)


def _used(
    gpus: list[dict[str, Any]] | None,
    environ: Mapping[str, str],
    chosen: Sequence[int | str] | None,
    uuids: Sequence[str] = (),
) -> list[dict[str, Any]] | None:
    """The GPUs in use; None if they are not known. `gpus` is None if nvidia-smi failed or is missing.

    `uuids` has the GPUs by CUDA's index; empty where CUDA is not initialised.
    """
    if chosen is None and gpus is None and nvml.DEVICE.exists():
        return None  # The driver is here, so that this is no machine without GPUs.
    machine = nvidia_smi.devices(gpus or [])
    shown = nvml.select(machine, environ.get("CUDA_VISIBLE_DEVICES"))
    if chosen is None:
        return [_plain(gpu) for gpu in shown]
    by_uuid: dict[int | str, nvml.Gpu] = {device.uuid: device for devices in machine for device in devices}
    if {*uuids} <= {*by_uuid}:  # not under MIG, where CUDA shows one device
        shown = [by_uuid[uuid] for uuid in uuids] or shown
    if not uuids and not nvml.counts_as_cuda([str(gpu.get("name")) for gpu in gpus or []], environ):
        shown = []
    used = [(by_uuid | dict(enumerate(shown))).get(item) for item in chosen]
    return None if None in used else [_plain(gpu) for gpu in used if gpu]


def _plain(gpu: nvml.Gpu) -> dict[str, Any]:
    return {key: value for key, value in vars(gpu).items() if value is not None}


def tags(fingerprint: Fingerprint, image: str | None = None) -> dict[str, str]:
    """The MLflow tags of a run, without unknown values. `image` is the container image of the stack.

    `env.stack_id` needs a loaded torch or a framework, `env.hardware_id` the GPUs, their class and the CPU: a hash over
    unknown values would make different environments equal. `env.affinity` tells how the GPUs in use are divided over
    the sockets.
    """
    software, machine = fingerprint["software"], fingerprint["host"]
    used = fingerprint.get("used")
    values: dict[str, Any] = {
        **{f"env.{key}": software.get(key) for key in EXPECTABLE},
        **{f"env.{key}": machine.get(key) for key in ("cpu", "kernel", "node")},
        "env.framework": software.get("framework"),
        "env.cuda_driver": software.get("cuda_driver"),
        "env.libraries": software.get("loaded"),
        "env.nvml": software.get("nvml"),
        "env.image": image or machine.get("image"),
        "env.topology": fingerprint.get("topology", {}).get("class"),
    }
    if used is not None:
        values["env.gpu"] = nvml.names(gpu["name"] for gpu in used)
        values["env.gpu_count"] = str(len(used))
        indices = [gpu.get("index") for gpu in used] if len(used) > 1 else []
        values["env.affinity"] = topology.by_affinity(fingerprint.get("topology", {}).get("cpu_affinity", {}), indices)
    values |= repositories.tags(fingerprint)
    if values["env.torch"]:
        values["env.stack_id"] = _hash(values, *STACK)
    elif values["env.framework"]:
        values["env.stack_id"] = _hash(values, *STACK, "framework")
    if all(values.get(f"env.{key}") for key in ("gpu", "gpu_count", "topology", "cpu")):
        # GPUs at the same cores keep the hash of older versions, which ignored affinity.
        spread = ("affinity",) if "+" in (values.get("env.affinity") or "") else ()
        values["env.hardware_id"] = _hash(values, "gpu", "gpu_count", "topology", "cpu", *spread)
    return {key: value for key, value in values.items() if value}


def record(folder: Path, facts: Fingerprint) -> dict[str, str]:
    """Write a run's fingerprint and its packages into its folder. Returns the tags."""
    documents.write_json(folder / run_folder.FINGERPRINT, facts)
    documents.write_text(folder / run_folder.REQUIREMENTS, requirements(facts))
    return tags(facts)


def taken(folder: Path) -> list[Fingerprint]:
    """The fingerprints of a run's attempts, the current one last; empty for an imported run."""
    paths = [*run_folder.earlier_attempts(folder, run_folder.FINGERPRINT), folder / run_folder.FINGERPRINT]
    return [documents.read_json(path) for path in paths if path.exists()]


def changes(taken: Sequence[Fingerprint]) -> list[str]:
    """The tags that differ between fingerprints, without the hashes, which summarise others."""
    tags_of_each = [tags(fingerprint) for fingerprint in taken]
    keys = set().union(*tags_of_each) - {"env.stack_id", "env.hardware_id"}
    return sorted(key for key in keys if len({values.get(key) for values in tags_of_each}) > 1)


def compared(names: Sequence[str], taken: Sequence[Fingerprint]) -> dict[str, str]:
    """Tags of a run on several nodes: their names, and the tags that differ between them, if any."""
    differing = [key for key in changes(taken) if key != "env.node"]  # Names always differ.
    return {"env.nodes": ",".join(names)} | ({"env.differs": ",".join(differing)} if differing else {})


def _hash(values: Mapping[str, Any], *keys: str) -> str:
    return hashlib.sha256(json.dumps([values.get(f"env.{key}") for key in keys]).encode()).hexdigest()[:12]


def mismatches(fingerprint: Fingerprint, expect: Mapping[str, str]) -> list[str]:
    """A sentence for each version that differs from the expected one, which may be a dotted prefix.

    Raises ConfigError for a key that is not in EXPECTABLE.
    """
    sentences = []
    for key, expected in expect.items():
        if key not in EXPECTABLE:
            raise ConfigError(f"stack.expect.{key}: no such key. Allowed: {', '.join(EXPECTABLE)}")
        actual = fingerprint["software"].get(key)
        if actual != expected and not (actual or "").startswith((f"{expected}.", f"{expected}+")):
            sentences.append(f"stack.expect.{key}: expected {expected}, found {actual or 'none'}")
    return sentences


def requirements(fingerprint: Fingerprint) -> str:
    """The Python packages as a requirements file; empty if they are not known."""
    return "".join(
        sorted(f"{name}=={version}\n" for name, version in fingerprint["software"].get("packages", {}).items())
    )
