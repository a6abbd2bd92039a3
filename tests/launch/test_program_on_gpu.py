"""A program of any kind on GPUs: which libraries it has loaded, and on how many GPUs it computes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.launch.test_programs import tags
from tests.support.commands import launch
from tracking.machine.environment import nvml
from tracking.machine.usage import compute_processes_of
from tracking.record import documents, run_folder

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an NVIDIA GPU")]

# Each rank convolves (cuDNN) and agrees with the others (NCCL) on a GPU of its own. The first one says what it has
# mapped, and which processes NVML shows on the GPUs that the command names.
CONVOLVES = r"""
import json, os, re, sys, time
import pynvml, torch
import torch.distributed as dist

torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
images = torch.ones(2, 3, 32, 32, device="cuda")
total = torch.nn.functional.conv2d(images, torch.ones(4, 3, 3, 3, device="cuda")).mean()
dist.all_reduce(total)
said = {"total": total.item(), "cudnn": torch.backends.cudnn.version()}
if dist.get_rank() == 0:
    maps = open("/proc/self/maps").read()
    names = ("cudart", "cudnn", "nccl")
    said["paths"] = {name: re.search(rf"(/\S*/lib{name}\.so\S*)$", maps, re.M)[1] for name in names}
    pynvml.nvmlInit()
    handles = [pynvml.nvmlDeviceGetHandleByUUID(uuid) for uuid in sys.argv[1:]]
    said["pids"] = [[process.pid for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)]
                    for handle in handles]
    print("seen", json.dumps(said), flush=True)
time.sleep(5)  # The listener looks at its processes every second.
dist.barrier()
dist.destroy_process_group()
"""


def test_a_programs_libraries_and_gpus_are_those_that_it_uses(tmp_path: Path) -> None:
    gpus = nvml.visible_gpus()[:2]
    num_gpus, uuids = len(gpus), [gpu.uuid for gpu in gpus]
    before = {pid for pids in compute_processes_of(uuids).values() for pid in pids}
    (tmp_path / "script.py").write_text(CONVOLVES)
    command = f"program.command=python script.py {' '.join(uuids)}"
    asked = (command, "program.launch=torchrun", f"gpus={num_gpus}")
    launched = launch(tmp_path, "model=program", *asked, "tracking.offline=true")
    assert launched.code == 0, launched.output
    log = (launched.folder / run_folder.WORKER_LOG).read_text()
    (line,) = [line for line in log.splitlines() if line.startswith("seen ")]
    said = json.loads(line.removeprefix("seen "))
    assert said["total"] == 27 * num_gpus
    software = documents.read_json(launched.folder / run_folder.FINGERPRINT)["software"]
    assert said["paths"].items() <= software["libraries"].items()
    seen = tags(launched.folder)
    assert seen["env.cuda"] == torch.version.cuda
    major, minor, patch = map(int, seen["env.cudnn"].split(".")[:3])
    assert said["cudnn"] == major * 10_000 + minor * 100 + patch
    assert seen["env.nccl"] in software["loaded"]
    assert seen["env.gpu_count"] == str(num_gpus)
    # In a container NVML may show no process at all: then nothing tells the world size.
    shown = sum(bool(set(pids) - before) for pids in said["pids"])
    assert launched.result["metrics"].get("world_size", 0) == shown
    assert shown in (0, num_gpus)
