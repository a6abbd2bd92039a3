"""The fingerprint of a machine with GPUs against nvidia-smi, NVML and torch."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import ROOT, Launched, launch
from tracking.machine.environment.fingerprint import collect
from tracking.machine.environment.nvml import visible_gpus

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
    facts = collect()
    for gpu, cells in zip(facts["gpus"], query(*keys), strict=True):
        for (name, key), cell in zip(keys.items(), cells, strict=True):
            if re.fullmatch(r"\W*(N/A|Not Supported)\W*", cell):
                assert key not in gpu, name
            elif isinstance(gpu[key], str):
                assert gpu[key] == cell, name
            else:
                assert gpu[key] == pytest.approx(float(cell)), name
    assert [[str(gpu["memory_bytes"] // 2**20)] for gpu in facts["gpus"]] == query("memory.total")
    assert {facts["software"]["driver"]} == {row[0] for row in query("driver_version")}


@gpu_test
def test_topology_class_agrees_with_nvidia_smi_and_nvml() -> None:
    import pynvml

    used = visible_gpus()
    facts = collect(gpu_indices=range(len(used)))
    assert [gpu["uuid"] for gpu in facts["used"]] == [gpu.uuid for gpu in used]
    if len(used) < 2:
        assert facts["topology"]["class"] == ("single" if used else "none")
        return
    text = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, check=True).stdout
    rows = {int(index): cells.split() for index, cells in re.findall(r"^GPU(\d+)\s+(.*\bX\b.*)$", text, re.M)}
    labels = [rows[a.index][b.index] for a, b in combinations(used, 2)]
    order = [*(f"NV{count}" for count in range(36, 0, -1)), "PIX", "PXB", "PHB", "NODE", "SYS"]
    assert facts["topology"]["class"] == max(labels, key=order.index)

    pynvml.nvmlInit()
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(gpu.index) for gpu in used]
        levels = [pynvml.nvmlDeviceGetTopologyCommonAncestor(a, b) for a, b in combinations(handles, 2)]
        counts = [facts["gpus"][gpu.index].get("nvlink_links", 0) for gpu in used]
        active = [
            sum(pynvml.nvmlDeviceGetNvLinkState(handle, link) for link in range(count))
            for handle, count in zip(handles, counts, strict=True)
        ]
    finally:
        pynvml.nvmlShutdown()
    assert active == counts
    if bonded := re.fullmatch(r"NV(\d+)", facts["topology"]["class"]):
        # Through switches every link of a GPU reaches every other GPU; without, a pair has fewer.
        assert 1 <= int(bonded[1]) <= min(active)
    elif not any(label.startswith("NV") for label in labels):
        assert facts["topology"]["class"] == {10: "PIX", 20: "PXB", 30: "PHB", 40: "NODE", 50: "SYS"}[max(levels)]


@gpu_test
def test_versions_that_torch_has_loaded() -> None:
    """In a process of its own, since the fingerprint must leave CUDA as it was: the worker forks after it."""
    pytest.importorskip("torch")
    code = """if True:
        import json, torch
        from tracking.machine.environment.fingerprint import collect, tags
        found = collect(torch, range(torch.cuda.device_count()))
        answer = {"initialized": torch.cuda.is_initialized(), "software": found["software"], "tags": tags(found)}
        answer["used"] = [gpu["name"] for gpu in found["used"]]
        answer["names"] = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
        answer["expected"] = [torch.__version__, torch.version.cuda, torch.backends.cudnn.version()]
        answer["nccl"] = torch.cuda.nccl.version()
        print(json.dumps(answer))
    """
    answer = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stderr
    facts = json.loads(answer.stdout.splitlines()[-1])
    torch_version, cuda, cudnn = facts["expected"]
    if cuda is None:
        pytest.skip("this torch has no CUDA")
    software = facts["software"]
    assert not facts["initialized"]
    assert facts["used"] == facts["names"]
    assert facts["used"]
    assert (software["torch"], software["cuda"]) == (torch_version, cuda)
    major, minor, patch = map(int, software["cudnn"].split("."))
    assert cudnn == major * (10_000 if major >= 9 else 1_000) + minor * 100 + patch
    # Only the major version is that of torch's build; the rest is that of the loaded library.
    assert re.fullmatch(rf"{facts['nccl'][0]}\.\d+\.\d+", software["nccl"])
    assert {"env.cuda", "env.cudnn", "env.nccl", "env.torch", "env.stack_id", "env.hardware_id"} <= set(facts["tags"])


def num_neighbours(run: Launched) -> int:
    """How many other processes on its GPU a run has named. CUDA_VISIBLE_DEVICES decides which GPU that is."""
    named = re.search(r"gpu \d+: (\d+) process", run.result["neighbours"])
    return int(named[1]) if named else 0


@gpu_test
@pytest.mark.slow
def test_another_process_on_the_gpu_is_a_neighbour_of_a_real_run(tmp_path: Path) -> None:
    """One that is there before the run, which every container sees. Tests before this one may hold the GPU, too."""
    busy = "import torch; torch.ones(8, device='cuda').sum().item(); print('there', flush=True); input()"
    asked = ("gpus=1", "max_epochs=1", "tracking.offline=true")
    for name in ("beside", "alone"):
        (tmp_path / name).mkdir()
    with subprocess.Popen([sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout
        assert other.stdout.readline().strip() == b"there"
        beside = launch(tmp_path / "beside", *asked)
        other.kill()
    alone = launch(tmp_path / "alone", *asked)
    assert num_neighbours(beside) == num_neighbours(alone) + 1
