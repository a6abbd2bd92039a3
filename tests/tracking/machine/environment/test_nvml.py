"""Which GPUs CUDA would show, with NVML stood in for, and live against nvidia-smi; damaged answers of nvidia-smi."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tracking.machine.environment.fake_nvml import FakeNvml
from tracking.machine.environment import fingerprint, nvidia_smi, nvml
from tracking.machine.environment.nvml import Gpu, select, visible_gpus

FIXTURES = Path(__file__).parents[3] / "fixtures"


@pytest.mark.parametrize(("visible", "expected"), [
    (None, [0, 1, 2, 3]),
    ("", []),
    ("-1", []),
    ("2", [2]),
    ("2,1", [2, 1]),
    ("0,2,-1,1", [0, 2]),  # the example of the CUDA programming guide
    ("0,9,1", [0]),
    ("0,0", []),
    (" 1 , 3", [1, 3]),
    ("1gpu,2", [1, 2]),
    ("no", []),
    ("GPU-2", [2]),
    ("GPU-22222222-0000,GPU-0", [2, 0]),
    ("GPU-", []),  # more than one matches
    ("GPU-2,1", [2]),
    ("1,GPU-2", [1]),
    ("GPU-9,GPU-2", []),
])  # fmt: skip
def test_selection_as_cuda_does_it(visible: str | None, expected: list[int]) -> None:
    machine = [[Gpu(index, "GPU", f"GPU-{str(index) * 8}-0000")] for index in range(4)]
    assert [gpu.index for gpu in select(machine, visible)] == expected


@given(st.lists(st.integers(-2, 6), max_size=6), st.integers(0, 5))
def test_selection_stops_at_the_first_invalid_index(indices: list[int], num_gpus: int) -> None:
    machine = [[Gpu(index, "GPU", f"GPU-{index}")] for index in range(num_gpus)]
    chosen = [gpu.index for gpu in select(machine, ",".join(map(str, indices)))]
    valid = [index in range(num_gpus) for index in indices]
    prefix = indices[: valid.index(False)] if False in valid else indices
    assert chosen == (prefix if len(set(prefix)) == len(prefix) else [])


def test_one_mig_device_is_shown_alone() -> None:
    machine = [[Gpu(0, "slice", "MIG-a"), Gpu(0, "slice", "MIG-b")], [Gpu(1, "GPU", "GPU-1")], []]
    assert [gpu.uuid for gpu in select(machine, "MIG-b,MIG-a")] == ["MIG-b"]
    assert [gpu.uuid for gpu in select(machine, "1,0")] == ["MIG-a"]
    assert [gpu.uuid for gpu in select(machine, None)] == ["MIG-a"]
    assert select(machine, "2") == []  # under MIG, but without a MIG device


@pytest.mark.parametrize("ask", [nvml.visible_gpus, nvml.driver_version])
def test_ctrl_c_while_nvml_is_imported_is_ctrl_c(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ask: Callable[[], object]
) -> None:
    (tmp_path / "pynvml.py").write_text("raise KeyboardInterrupt")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    with pytest.raises(KeyboardInterrupt):
        ask()


def test_visible_gpus_through_nvml_with_mig(monkeypatch: pytest.MonkeyPatch) -> None:
    class NVMLError(Exception):
        pass

    class NotSupported(NVMLError):
        pass

    class NotFound(NVMLError):
        pass

    def mode(gpu: str) -> list[int]:
        if gpu == "gpu1":
            raise NotSupported
        return [1, 1]

    def slot(gpu: str, index: int) -> str:
        if index != 3:
            raise NotFound
        return "mig"

    fake = SimpleNamespace(
        NVMLError=NVMLError,
        NVMLError_NotSupported=NotSupported,
        NVMLError_NotFound=NotFound,
        NVML_DEVICE_MIG_ENABLE=1,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: f"gpu{index}",
        nvmlDeviceGetCudaComputeCapability=lambda gpu: (8, 9),
        nvmlDeviceGetMigMode=mode,
        nvmlDeviceGetMaxMigDeviceCount=lambda gpu: 7,
        nvmlDeviceGetMigDeviceHandleByIndex=slot,
        nvmlDeviceGetName=lambda handle: f"name of {handle}",
        nvmlDeviceGetUUID=lambda handle: {"gpu1": "GPU-1", "mig": "MIG-0"}[handle],
        nvmlDeviceGetMemoryInfo=lambda handle: SimpleNamespace(total=2**30),
        nvmlDeviceGetTotalEnergyConsumption=lambda gpu: 5,
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    assert visible_gpus({}) == [Gpu(0, "name of mig", "MIG-0", 2**30, 8.9, energy_counter=False)]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "1"}) == [
        Gpu(1, "name of gpu1", "GPU-1", 2**30, 8.9, energy_counter=True)
    ]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": ""}) == []


def test_no_visible_gpus_without_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert visible_gpus({}) == []
    monkeypatch.setattr(nvml, "DEVICE", tmp_path)
    assert "nvidia-ml-py is missing" in nvml.trouble()


QUERIES = ("MemoryInfo", "MigMode", "CudaComputeCapability", "Name")


@pytest.mark.parametrize("broken", [*((query,) for query in QUERIES), QUERIES])
def test_a_gpu_is_there_whatever_nvml_does_not_know_of_it(
    monkeypatch: pytest.MonkeyPatch, broken: tuple[str, ...]
) -> None:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    fake.broken |= {"nvmlDeviceGetMigMode", *(f"nvmlDeviceGet{query}" for query in broken)}
    gpus = visible_gpus({})
    assert [gpu.uuid for gpu in gpus] == ["GPU-0", "GPU-1", "GPU-2", "GPU-3"]
    whole = (None if "MemoryInfo" in broken else 100e9, None if "CudaComputeCapability" in broken else 12.1)
    assert {(gpu.memory_bytes, gpu.compute_capability) for gpu in gpus} == {whole}


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"])
def test_why_nvml_fails_is_told_where_there_is_a_driver(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, broken: str
) -> None:
    fake = FakeNvml()
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    monkeypatch.setattr(nvml, "DEVICE", tmp_path)
    assert nvml.trouble() == ""
    fake.broken.add(broken)
    assert visible_gpus({}) == []
    why = "an NVIDIA driver is here, and its GPUs cannot be seen: NVML: Not Supported"
    assert nvml.trouble() == why
    facts = fingerprint.Collector(start=lambda command, folder: lambda: None).finish()
    assert fingerprint.tags(facts)["env.nvml"] == why
    monkeypatch.setattr(nvml, "DEVICE", tmp_path / "none")
    assert nvml.trouble() == "", "no driver, and nothing to tell of it"


def test_damaged_answers_are_left_out() -> None:
    assert nvidia_smi.parse_gpus("<nvidia_smi_log><gpu>") == {}
    assert nvidia_smi.parse_gpus("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.") == {}
    query = (FIXTURES / "h200-x4" / "nvidia-smi_-q_-x.xml").read_text()
    assert len(nvidia_smi.parse_gpus(query + "WARNING: infoROM is corrupted at gpu 0000:00:06.0\n")["gpus"]) == 4


@given(st.text())
def test_any_text_is_taken(text: str) -> None:
    nvidia_smi.parse_gpus(text, text)


@pytest.mark.gpu
@pytest.mark.skipif(not visible_gpus({}), reason="no NVIDIA GPU here")
def test_visible_gpus_agree_with_nvidia_smi() -> None:
    expected = subprocess.run(
        ["nvidia-smi", "--query-gpu=index,name,uuid,memory.total,compute_cap", "--format=csv,noheader,nounits"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    gpus = visible_gpus({})
    assert [
        [str(gpu.index), gpu.name, gpu.uuid, str((gpu.memory_bytes or 0) // 2**20), str(gpu.compute_capability)]
        for gpu in gpus
    ] == [line.split(", ") for line in expected]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": gpus[-1].uuid}) == gpus[-1:]
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "-1"}) == []
