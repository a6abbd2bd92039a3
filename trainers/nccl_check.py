"""Whether this PyTorch sees the GPUs, and how fast they talk: python -m trainers.nccl_check, which needs torch alone.

Prints one line of JSON: torch, cuda (null for a build without), gpus (that CUDA shows), and, of two or more GPUs, nccl
and bus_gb_per_sec; or error. The bandwidth is nccl-tests' "bus bandwidth" of an all-reduce: bytes / seconds x
2 (n - 1) / n (https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md), to be held against the links'.
"""

from __future__ import annotations

import datetime
import json
import os
import socket
import sys
from typing import Any

import torch
import torch.distributed as dist

NUM_BYTES = 2**28  # large enough for the links to be the limit
NUM_WARMUP, NUM_TIMED = 5, 20
TIMEOUT_SEC = 60  # a GPU that does not answer


def main() -> int:
    found: dict[str, Any] = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "gpus": torch.cuda.device_count() if torch.version.cuda else 0,
    }
    try:
        if found["gpus"]:
            torch.zeros(1, device="cuda").sum().item()  # raises where the driver is too old
        if found["gpus"] > 1:
            found["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
            found["bus_gb_per_sec"] = bandwidth(found["gpus"])
    except Exception as error:  # whatever it is, it is what the caller wants to know
        found["error"] = f"{type(error).__name__}: {str(error).strip()}"
    print(json.dumps(found))
    return 1 if "error" in found else 0


def bandwidth(num_gpus: int) -> float:
    """Bus bandwidth in GB/s (1e9 bytes) of an all-reduce over all GPUs. Raises where NCCL fails or sums wrongly."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    results = torch.multiprocessing.get_context("spawn").SimpleQueue()
    torch.multiprocessing.spawn(run_rank, (num_gpus, port, results), nprocs=num_gpus)
    return float(results.get())


def run_rank(rank: int, num_gpus: int, port: int, results: Any) -> None:
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    timeout = datetime.timedelta(seconds=TIMEOUT_SEC)
    dist.init_process_group("nccl", rank=rank, world_size=num_gpus, timeout=timeout, device_id=device)
    counts = torch.full((1,), float(rank + 1), device=device)
    dist.all_reduce(counts)
    expected = num_gpus * (num_gpus + 1) / 2
    if counts.item() != expected:
        raise RuntimeError(f"an all-reduce over {num_gpus} GPUs gave {counts.item()} in place of {expected}")
    data = torch.zeros(NUM_BYTES // 4, device=device)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for step in range(NUM_WARMUP + NUM_TIMED):
        if step == NUM_WARMUP:
            start.record()
        dist.all_reduce(data)
    end.record()
    end.synchronize()
    sec = start.elapsed_time(end) / 1e3 / NUM_TIMED
    slowest = torch.tensor([sec], device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    if rank == 0:
        results.put(NUM_BYTES / slowest.item() * 2 * (num_gpus - 1) / num_gpus / 1e9)
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
