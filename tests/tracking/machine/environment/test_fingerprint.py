"""The fingerprint of captured and hand-written machines, without their secrets."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.support.commands import ROOT
from tests.support.fingerprints import fingerprint, torch_module
from tracking.machine.environment import nvidia_smi, nvml
from tracking.machine.environment.fingerprint import tags
from tracking.machine.environment.fingerprint_table import format_table

MIG = "MIG-bbbbbbbb-0000-5000-8000-000000000000"


def test_all_facts_of_four_h200s() -> None:
    facts = fingerprint("h200-x4")
    gpu = facts["gpus"][0]
    expected = {
        "index": 0,
        "name": "NVIDIA H200",
        "architecture": "Hopper",
        "memory_bytes": 143771 * 2**20,
        "power_limit_watts": 700.0,
        "default_power_limit_watts": 700.0,
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 3201,
        "max_sm_clock_mhz": 1980,
        "max_memory_clock_mhz": 3201,
        "application_sm_clock_mhz": 1980,
        "application_memory_clock_mhz": 3201,
        "ecc": "Enabled",
        "mig": "Disabled",
        "compute_mode": "Default",
        "pcie_generation": 5,
        "pcie_width": 16,
        "max_pcie_generation": 5,
        "nvlink_links": 18,
        "nvlink_gb_per_sec": 26.562,
    }
    assert expected.items() <= gpu.items()
    assert [gpu["index"] for gpu in facts["gpus"]] == [gpu["index"] for gpu in facts["used"]] == [0, 1, 2, 3]
    assert facts["topology"]["class"] == "NV18"
    assert facts["software"]["driver"] == "580.159.04"
    assert facts["software"]["driver_cuda"] == "13.0"
    assert facts["host"]["cpu"] == "Intel(R) Xeon(R) Processor"
    assert (facts["host"]["sockets"], facts["host"]["cores"], facts["host"]["numa_nodes"]) == (1, 64, 1)
    assert "N/A" not in json.dumps(facts["gpus"])


@pytest.mark.parametrize(("visible", "gpu_indices", "used", "topology"), [
    (None, [0], [0], "single"),
    (None, [1, 2], [1, 2], "NV18"),
    ("3,1", [0, 1], [3, 1], "NV18"),
    ("3,1", [1], [1], "single"),
    ("2", None, [2], "single"),
    ("", None, [], "none"),
    (None, [], [], "none"),
])  # fmt: skip
def test_used_gpus_follow_cuda_visible_devices(
    visible: str | None, gpu_indices: list[int] | None, used: list[int], topology: str
) -> None:
    environ = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    facts = fingerprint("h200-x4", gpu_indices, **environ)
    assert [gpu["index"] for gpu in facts["used"]] == used
    assert facts["topology"]["class"] == topology
    assert len(facts["gpus"]) == 4


@pytest.mark.parametrize("is_here", [True, False])
def test_a_silent_nvidia_smi_is_no_machine_without_gpus(
    is_here: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nvml, "DEVICE", tmp_path if is_here else tmp_path / "missing")
    facts = fingerprint("no such folder")
    assert facts.get("used") == (None if is_here else [])
    assert tags(facts).get("env.gpu") == (None if is_here else "none")
    assert fingerprint("no such folder", [])["used"] == [], "a run on the CPU"


def test_gpu_that_is_not_there_leaves_the_used_unknown() -> None:
    facts = fingerprint("h200-x4", [0, 1], CUDA_VISIBLE_DEVICES="0")
    assert "used" not in facts
    assert "class" not in facts["topology"]
    assert not {"env.gpu", "env.gpu_count", "env.topology", "env.hardware_id"} & set(tags(facts))


def cuda_of(uuids: list[str]) -> SimpleNamespace:
    """A torch whose CUDA counts the GPUs in this order."""
    return torch_module(
        cuda=SimpleNamespace(
            nccl=SimpleNamespace(version=lambda: (2, 28, 3)),
            is_initialized=lambda: True,
            device_count=lambda: len(uuids),
            get_device_properties=lambda index: SimpleNamespace(uuid=uuids[index].removeprefix("GPU-")),
        )
    )


def test_the_used_gpus_are_those_that_cuda_counts() -> None:
    """CUDA counts the fastest first, NVML by PCI bus."""
    uuids = [gpu["uuid"] for gpu in fingerprint("handmade-pcie")["gpus"]]
    facts = fingerprint("handmade-pcie", [0, 1], cuda_of([uuids[index] for index in (3, 0, 1, 2)]))
    assert [gpu["index"] for gpu in facts["used"]] == [3, 0]
    facts = fingerprint("handmade-pcie", [0], cuda_of([uuids[2]]), CUDA_VISIBLE_DEVICES="3")
    assert [gpu["index"] for gpu in facts["used"]] == [2]
    mig = fingerprint("handmade-mig", [0], cuda_of(["GPU-of-the-slice"]), CUDA_VISIBLE_DEVICES=MIG)
    assert [gpu["uuid"] for gpu in mig["used"]] == [MIG], "CUDA may give a slice the UUID of its GPU"


@pytest.mark.parametrize(("environ", "is_known"), [
    ({}, False),
    ({"CUDA_VISIBLE_DEVICES": "1"}, False),
    ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, False),
    ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, True),
    ({"CUDA_VISIBLE_DEVICES": "GPU-"}, True),
])  # fmt: skip
def test_a_number_names_no_gpu_of_several_kinds_unless_the_order_is_known(
    environ: dict[str, str], is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = fingerprint("handmade-pcie")["gpus"]
    known[0]["name"] = "NVIDIA T4"
    monkeypatch.setattr(nvidia_smi, "parse_gpus", lambda query, listing: {"gpus": known})
    if "GPU-" in environ.values():
        environ = {"CUDA_VISIBLE_DEVICES": known[0]["uuid"]}
    facts = fingerprint("handmade-pcie", [0], **environ)
    assert [gpu["name"] for gpu in facts.get("used", [])] == (["NVIDIA T4"] if is_known else [])
    assert fingerprint("handmade-pcie", [known[0]["uuid"]])["used"][0]["index"] == 0, "a UUID needs no order"


def test_pcie_machine_with_an_older_driver() -> None:
    facts = fingerprint("handmade-pcie", [0, 1])
    gpu = facts["gpus"][1]
    assert gpu["power_limit_watts"] == 250.0
    assert gpu["compute_mode"] == "Exclusive_Process"
    assert (gpu["pcie_generation"], gpu["pcie_width"], gpu["max_pcie_width"]) == (1, 8, 16)
    assert gpu["nvlink_links"] == 0
    assert not {"ecc", "mig", "default_power_limit_watts", "nvlink_gb_per_sec", "architecture"} & set(gpu)
    assert facts["topology"]["class"] == "PIX"
    assert (facts["host"]["sockets"], facts["host"]["cores"], facts["host"]["threads"]) == (2, 48, 96)
    assert fingerprint("handmade-pcie")["topology"]["class"] == "SYS"


@pytest.mark.parametrize(("pair", "link"), [((0, 1), "PIX"), ((2, 0), "PHB"), ((2, 3), "NODE"), ((0, 3), "SYS")])
def test_the_topology_is_that_of_the_gpus_that_were_chosen(pair: tuple[int, int], link: str) -> None:
    """As `gpus=[2,0]` shows them to the worker, which counts from 0."""
    uuids = [gpu["uuid"] for gpu in fingerprint("handmade-pcie")["gpus"]]
    facts = fingerprint("handmade-pcie", [0, 1], CUDA_VISIBLE_DEVICES=",".join(uuids[index] for index in pair))
    assert [gpu["index"] for gpu in facts["used"]] == list(pair)
    assert tags(facts)["env.topology"] == link


def test_gpu_under_mig() -> None:
    facts = fingerprint("handmade-mig")
    assert facts["gpus"][0]["mig"] == "Enabled"
    assert facts["gpus"][0]["mig_devices"][1] == {
        "index": 1,
        "gpu_instance": 9,
        "compute_instance": 0,
        "memory_bytes": 18048 * 2**20,
        "multiprocessors": 16,
        "name": "NVIDIA H200 MIG 1g.18gb",
        "uuid": MIG,
    }
    assert "application_sm_clock_mhz" not in facts["gpus"][0]  # "Requested functionality has been deprecated"
    assert [gpu["name"] for gpu in facts["used"]] == ["NVIDIA H200 MIG 3g.71gb"]  # CUDA shows one MIG device, alone
    for chosen in (fingerprint("handmade-mig", [0], CUDA_VISIBLE_DEVICES=MIG), fingerprint("handmade-mig", [MIG])):
        assert chosen["used"][0]["memory_bytes"] == 18048 * 2**20
        assert chosen["topology"]["class"] == "single"
        assert tags(chosen)["env.gpu"] == "NVIDIA H200 MIG 1g.18gb"
    assert fingerprint("handmade-mig", [0], CUDA_VISIBLE_DEVICES="1")["used"][0]["name"] == "NVIDIA H200"


def test_a_machine_without_gpus_has_no_facts_of_them() -> None:
    facts = fingerprint("no such folder")
    assert "gpus" not in facts
    assert facts["used"] == []
    assert {"env.gpu": "none", "env.gpu_count": "0", "env.topology": "none"}.items() <= tags(facts).items()
    assert "env.driver" not in tags(facts)


def test_gpus_in_use_are_unknown_without_nvidia_smi() -> None:
    facts = fingerprint("no such folder", [0], torch_module())
    assert not {"gpus", "used"} & set(facts)
    assert tags(facts)["env.torch"] == "2.11.0+cu130"
    assert not {"env.gpu", "env.gpu_count", "env.hardware_id"} & set(tags(facts))
    assert re.search(r"GPUs +unknown\n", format_table(facts))


@pytest.mark.slow
def test_collect_works_here_and_imports_no_torch() -> None:
    code = "import json, sys\nfrom tracking.machine.environment import fingerprint as f\n"
    code += "print(json.dumps([f.collect(), 'torch' in sys.modules]))"
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    facts, imported = json.loads(answer.stdout)
    assert not imported
    assert {"used", "software", "host", "environment"} <= set(facts)
    assert not {"torch", "cuda", "cudnn", "nccl"} & set(facts["software"])
    assert facts["software"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts["software"]["packages"]["pytest"] == pytest.__version__
    assert facts["host"]["usable_threads"] >= 1


def test_environment_of_a_fingerprint() -> None:
    environ = {
        "CUDA_VISIBLE_DEVICES": "0",
        "NCCL_DEBUG": "INFO",
        "NVIDIA_API_KEY": "hunter2",
        "TORCH_hub_token": "hunter2",
        "NVIDIA_PROXY": "https://someone:hunter2@example.org:8080/x",
        "MLFLOW_TRACKING_PASSWORD": "hunter2",
        "PATH": "/bin",
        "TIMETRIAL_IMAGE": "example.org/timetrial:1",
    }
    facts = fingerprint("h200-x4", **environ)
    assert facts["environment"] == {
        "CUDA_VISIBLE_DEVICES": "0",
        "NCCL_DEBUG": "INFO",
        "NVIDIA_PROXY": "https://***@example.org:8080/x",
    }
    assert facts["host"]["image"] == "example.org/timetrial:1"
    assert "hunter2" not in json.dumps(facts)
