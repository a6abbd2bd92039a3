"""The fingerprint on captured and hand-written machines, its secrets, tags and checks, and live against nvidia-smi."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf.schema import ConfigError
from tracking import host
from tracking.fingerprint import (
    EXPECTABLE,
    REPOSITORY,
    Collector,
    collect,
    format_table,
    mismatches,
    requirements,
    tags,
)
from tracking.nvml import visible_gpus

FIXTURES = Path(__file__).parent.parent / "fixtures"
MIG = "MIG-bbbbbbbb-0000-5000-8000-000000000000"


def torch_module(**changes: Any) -> SimpleNamespace:
    """A stand-in for torch with CUDA 13.0, cuDNN 9.10.2 and NCCL 2.28.3."""
    module = SimpleNamespace(
        __version__="2.11.0+cu130",
        version=SimpleNamespace(cuda="13.0"),
        cuda=SimpleNamespace(nccl=SimpleNamespace(version=lambda: (2, 28, 3))),
    )
    vars(module).update(changes)
    return module


def fingerprint(
    fixture: str, gpu_indices: Sequence[int | str] | None = None, torch: Any = None, **environ: str
) -> dict[str, Any]:
    """The fingerprint where the commands answer what the fixture's files hold, and the others are missing."""

    def start(command: Sequence[str], folder: Path | None) -> host.Output:
        files = sorted((FIXTURES / fixture).glob("_".join(command) + ".*"))
        return lambda: files[0].read_text() if files else None

    with pytest.MonkeyPatch.context() as patch:
        # Not of the real torch, where another test has imported it.
        patch.setattr(host, "library_version", lambda name, _: "9.10.2" if "cudnn" in name else None)
        found = Collector(environ, start).finish(torch, gpu_indices)
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    return found


# ---- machines


def test_four_h200s() -> None:
    found = fingerprint("h200-x4")
    gpu = found["gpus"][0]
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
    assert [gpu["index"] for gpu in found["gpus"]] == [gpu["index"] for gpu in found["used"]] == [0, 1, 2, 3]
    assert found["topology"]["class"] == "NV18"
    assert found["software"]["driver"] == "580.159.04"
    assert found["software"]["driver_cuda"] == "13.0"
    assert found["host"]["cpu"] == "Intel(R) Xeon(R) Processor"
    assert (found["host"]["sockets"], found["host"]["cores"], found["host"]["numa_nodes"]) == (1, 64, 1)
    assert "N/A" not in json.dumps(found["gpus"])


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
    found = fingerprint("h200-x4", gpu_indices, **environ)
    assert [gpu["index"] for gpu in found["used"]] == used
    assert found["topology"]["class"] == topology
    assert len(found["gpus"]) == 4


def test_gpu_that_is_not_there_leaves_the_used_unknown() -> None:
    found = fingerprint("h200-x4", [0, 1], CUDA_VISIBLE_DEVICES="0")
    assert "used" not in found
    assert "class" not in found["topology"]
    assert not {"env.gpu", "env.gpu_count", "env.topology", "env.hardware_id"} & set(tags(found))


def test_pcie_machine_with_an_older_driver() -> None:
    found = fingerprint("handmade-pcie", [0, 1])
    gpu = found["gpus"][1]
    assert gpu["power_limit_watts"] == 250.0
    assert gpu["compute_mode"] == "Exclusive_Process"
    assert (gpu["pcie_generation"], gpu["pcie_width"], gpu["max_pcie_width"]) == (1, 8, 16)
    assert gpu["nvlink_links"] == 0
    assert not {"ecc", "mig", "default_power_limit_watts", "nvlink_gb_per_sec", "architecture"} & set(gpu)
    assert found["topology"]["class"] == "PIX"
    assert (found["host"]["sockets"], found["host"]["cores"], found["host"]["threads"]) == (2, 48, 96)
    assert fingerprint("handmade-pcie")["topology"]["class"] == "SYS"


def test_gpu_under_mig() -> None:
    found = fingerprint("handmade-mig")
    assert found["gpus"][0]["mig"] == "Enabled"
    assert found["gpus"][0]["mig_devices"][1] == {
        "index": 1,
        "gpu_instance": 9,
        "compute_instance": 0,
        "memory_bytes": 18048 * 2**20,
        "multiprocessors": 16,
        "name": "NVIDIA H200 MIG 1g.18gb",
        "uuid": MIG,
    }
    assert "application_sm_clock_mhz" not in found["gpus"][0]  # "Requested functionality has been deprecated"
    assert [gpu["name"] for gpu in found["used"]] == ["NVIDIA H200 MIG 3g.71gb"]  # CUDA shows one MIG device, alone
    for chosen in (fingerprint("handmade-mig", [0], CUDA_VISIBLE_DEVICES=MIG), fingerprint("handmade-mig", [MIG])):
        assert chosen["used"][0]["memory_bytes"] == 18048 * 2**20
        assert chosen["topology"]["class"] == "single"
        assert tags(chosen)["env.gpu"] == "NVIDIA H200 MIG 1g.18gb"
    assert fingerprint("handmade-mig", [0], CUDA_VISIBLE_DEVICES="1")["used"][0]["name"] == "NVIDIA H200"


def test_no_gpu() -> None:
    found = fingerprint("no such folder")
    assert "gpus" not in found
    assert found["used"] == []
    assert {"env.gpu": "none", "env.gpu_count": "0", "env.topology": "none"}.items() <= tags(found).items()
    assert "env.driver" not in tags(found)


def test_gpus_in_use_are_unknown_without_nvidia_smi() -> None:
    found = fingerprint("no such folder", [0], torch_module())
    assert not {"gpus", "used"} & set(found)
    assert tags(found)["env.torch"] == "2.11.0+cu130"
    assert not {"env.gpu", "env.gpu_count", "env.hardware_id"} & set(tags(found))
    assert re.search(r"GPUs +unknown\n", format_table(found))


def test_collect_works_here_and_imports_no_torch() -> None:
    code = "import json, sys, tracking.fingerprint as f; print(json.dumps([f.collect(), 'torch' in sys.modules]))"
    answer = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    found, imported = json.loads(answer.stdout)
    assert not imported
    assert {"used", "software", "host", "environment"} <= set(found)
    assert not {"torch", "cuda", "cudnn", "nccl"} & set(found["software"])
    assert found["software"]["python"] == ".".join(map(str, sys.version_info[:3]))
    assert found["software"]["packages"]["pytest"] == pytest.__version__
    assert found["host"]["usable_threads"] >= 1


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
    found = fingerprint("h200-x4", **environ)
    assert found["environment"] == {
        "CUDA_VISIBLE_DEVICES": "0",
        "NCCL_DEBUG": "INFO",
        "NVIDIA_PROXY": "https://***@example.org:8080/x",
    }
    assert found["host"]["image"] == "example.org/timetrial:1"
    assert "hunter2" not in json.dumps(found)


# ---- tags, checks


def test_tags_are_those_of_the_contract() -> None:
    found = fingerprint("h200-x4", [0, 1], torch_module()) | {"git": {"commit": "abc", "dirty": True}}
    values = tags(found, image="example.org/timetrial:1")
    names = "gpu gpu_count driver cuda cudnn nccl torch topology cpu kernel python node image stack_id hardware_id"
    assert set(values) == {f"env.{name}" for name in names.split()} | {"git.commit", "git.dirty"}
    assert (values["env.gpu"], values["env.gpu_count"], values["env.topology"]) == ("NVIDIA H200", "2", "NV18")
    assert (values["env.driver"], values["env.cudnn"], values["git.dirty"]) == ("580.159.04", "9.10.2", "true")
    assert all(isinstance(value, str) and len(value) < 8_000 for value in values.values())


def test_stack_id_and_hardware_id_change_with_what_they_stand_for() -> None:
    base = tags(fingerprint("h200-x4", [0, 1], torch_module()))
    assert base == tags(fingerprint("h200-x4", [2, 3], torch_module()))
    fewer = tags(fingerprint("h200-x4", [0], torch_module()))
    assert fewer["env.stack_id"] == base["env.stack_id"]
    assert fewer["env.hardware_id"] != base["env.hardware_id"]
    newer = tags(fingerprint("h200-x4", [0, 1], torch_module(__version__="2.12.0+cu130")))
    assert newer["env.stack_id"] != base["env.stack_id"]
    assert newer["env.hardware_id"] == base["env.hardware_id"]
    imaged = tags(fingerprint("h200-x4", [0, 1], torch_module()), image="x")
    assert imaged["env.stack_id"] != base["env.stack_id"]
    assert "env.stack_id" not in tags(fingerprint("h200-x4", [0, 1]))  # what torch would load is not known


versions = st.lists(st.integers(0, 120).map(str), min_size=1, max_size=4).map(".".join)


@given(st.sampled_from(EXPECTABLE), versions, st.sampled_from(["", "+cu130"]))
def test_version_matches_itself_and_its_dotted_prefixes_only(key: str, version: str, local: str) -> None:
    found = {"software": {key: version + local}}
    parts = version.split(".")
    for length in range(1, len(parts) + 1):
        assert mismatches(found, {key: ".".join(parts[:length])}) == []
    assert mismatches(found, {key: version + local}) == []
    (sentence,) = mismatches(found, {key: version + "0.1"})
    assert key in sentence
    assert version + local in sentence
    assert version + "0.1" in sentence


def test_mismatches() -> None:
    found = {"software": {"torch": "2.110.0+cu130", "python": "3.12.3"}}
    assert mismatches(found, {}) == []
    assert mismatches(found, {"torch": "2.11", "python": "3.12", "cuda": "13.0"}) == [
        "stack.expect.torch: expected 2.11, found 2.110.0+cu130",
        "stack.expect.cuda: expected 13.0, found none",
    ]
    with pytest.raises(ConfigError, match=r"stack\.expect\.pytorch: no such key; allowed here: torch, cuda"):
        mismatches(found, {"pytorch": "2.11"})


def test_requirements_are_sorted_lines() -> None:
    assert requirements({"software": {"packages": {"torch": "2.11.0+cu130", "numpy": "2.3"}}}) == (
        "numpy==2.3\ntorch==2.11.0+cu130\n"
    )
    assert f"\npytest=={pytest.__version__}\n" in requirements(fingerprint("h200-x4"))


def test_table() -> None:
    table = format_table(fingerprint("h200-x4", [2], torch_module()))
    assert re.search(r"GPU 2 +NVIDIA H200, 140.4 GiB, 700 W, 1980 MHz, 18 NVLinks \(in use\)\n", table)
    assert table.count("in use") == 1
    assert re.search(r"topology +single\n", table)
    assert re.search(r"driver +580.159.04\n", table)
    assert re.search(r"nccl +2.28.3\n", table)
    assert re.search(r"GPUs +none\n", format_table(fingerprint("no such folder")))
    assert "2 MIG devices" in format_table(fingerprint("handmade-mig"))


# ---- live


gpus_here = [
    pytest.mark.gpu,
    pytest.mark.skipif(not visible_gpus({}), reason="no NVIDIA GPU here"),
    pytest.mark.filterwarnings("ignore"),  # torch's and NVML's own
]


def gpu_test(function: Any) -> Any:
    for mark in gpus_here:
        function = mark(function)
    return function


def query(*fields: str) -> list[list[str]]:
    command = ["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader,nounits"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return [[cell.strip() for cell in line.split(",")] for line in lines]


@gpu_test
def test_fingerprint_agrees_with_nvidia_smi() -> None:
    keys = {
        "uuid": "uuid",
        "name": "name",
        "pci.bus_id": "pci_bus_id",
        "vbios_version": "vbios",
        "compute_mode": "compute_mode",
        "ecc.mode.current": "ecc",
        "mig.mode.current": "mig",
        "power.limit": "power_limit_watts",
        "clocks.max.sm": "max_sm_clock_mhz",
        "clocks.max.mem": "max_memory_clock_mhz",
        "pcie.link.gen.max": "max_pcie_generation",
        "pcie.link.width.max": "max_pcie_width",
    }
    found = collect()
    for gpu, cells in zip(found["gpus"], query(*keys), strict=True):
        for (name, key), cell in zip(keys.items(), cells, strict=True):
            if re.fullmatch(r"\W*(N/A|Not Supported)\W*", cell):
                assert key not in gpu, name
            elif isinstance(gpu[key], str):
                assert gpu[key] == cell, name
            else:
                assert gpu[key] == pytest.approx(float(cell)), name
    assert [[str(gpu["memory_bytes"] // 2**20)] for gpu in found["gpus"]] == query("memory.total")
    assert {found["software"]["driver"]} == {row[0] for row in query("driver_version")}


@gpu_test
def test_topology_class_agrees_with_nvidia_smi_and_nvml() -> None:
    import pynvml

    used = visible_gpus()
    found = collect(gpu_indices=range(len(used)))
    assert [gpu["uuid"] for gpu in found["used"]] == [gpu.uuid for gpu in used]
    if len(used) < 2:
        assert found["topology"]["class"] == ("single" if used else "none")
        return
    text = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, check=True).stdout
    rows = {int(index): cells.split() for index, cells in re.findall(r"^GPU(\d+)\s+(.*\bX\b.*)$", text, re.M)}
    labels = [rows[a.index][b.index] for a, b in combinations(used, 2)]
    order = [*(f"NV{count}" for count in range(36, 0, -1)), "PIX", "PXB", "PHB", "NODE", "SYS"]
    assert found["topology"]["class"] == max(labels, key=order.index)

    pynvml.nvmlInit()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(gpu.index) for gpu in used]
        levels = [pynvml.nvmlDeviceGetTopologyCommonAncestor(a, b) for a, b in combinations(handles, 2)]
        counts = [found["gpus"][gpu.index].get("nvlink_links", 0) for gpu in used]
        active = [
            sum(pynvml.nvmlDeviceGetNvLinkState(handle, link) for link in range(count))
            for handle, count in zip(handles, counts, strict=True)
        ]
    finally:
        pynvml.nvmlShutdown()
    assert active == counts
    if bonded := re.fullmatch(r"NV(\d+)", found["topology"]["class"]):
        # Through switches every link of a GPU reaches every other GPU; without, a pair has fewer.
        assert 1 <= int(bonded[1]) <= min(active)
    elif not any(label.startswith("NV") for label in labels):
        assert found["topology"]["class"] == {10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}[max(levels)]


@gpu_test
def test_versions_that_torch_has_loaded() -> None:
    """In a process of its own, since the fingerprint must leave CUDA as it was: the worker forks after it."""
    pytest.importorskip("torch")
    code = """if True:
        import json, torch
        from tracking.fingerprint import collect, tags
        found = collect(torch, range(torch.cuda.device_count()))
        answer = {"initialized": torch.cuda.is_initialized(), "software": found["software"], "tags": tags(found)}
        answer["used"] = [gpu["name"] for gpu in found["used"]]
        answer["names"] = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        answer["expected"] = [torch.__version__, torch.version.cuda, torch.backends.cudnn.version()]
        answer["nccl"] = torch.cuda.nccl.version()
        print(json.dumps(answer))
    """
    answer = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    found = json.loads(answer.stdout.splitlines()[-1])
    torch_version, cuda, cudnn = found["expected"]
    if cuda is None:
        pytest.skip("this torch has no CUDA")
    software = found["software"]
    assert not found["initialized"]
    assert found["used"] == found["names"]
    assert found["used"]
    assert (software["torch"], software["cuda"]) == (torch_version, cuda)
    major, minor, patch = map(int, software["cudnn"].split("."))
    assert cudnn == major * (10_000 if major >= 9 else 1_000) + minor * 100 + patch
    # Of the major version that torch was built against; the rest is that of the library in the process.
    assert re.fullmatch(rf"{found['nccl'][0]}\.\d+\.\d+", software["nccl"])
    assert {"env.cuda", "env.cudnn", "env.nccl", "env.torch", "env.stack_id", "env.hardware_id"} <= set(found["tags"])
