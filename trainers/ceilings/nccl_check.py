"""Checks that PyTorch sees the GPUs and how fast they communicate: python -m trainers.ceilings.nccl_check.

It needs only torch, and prints one line of JSON: torch, cuda (null for a build without CUDA), gpus (the number that
CUDA shows) and, with two or more GPUs, nccl and bus_gb_per_sec; after a failure, error. The bandwidth is nccl-tests'
"bus bandwidth" of an all-reduce, bytes / seconds x 2 (n - 1) / n, which is comparable to a link's bandwidth
(https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md).
"""

from __future__ import annotations

import datetime
import json
import os
import socket
import sys
import time
from typing import Any

import torch
import torch.distributed as dist

BACKENDS = {"cuda": "nccl", "cpu": "gloo"}  # Gloo is for tests without a GPU.
NUM_BYTES = 2**28  # large enough for the links to be the limit, not the latency
NUM_WARMUP, NUM_TIMED = 5, 20
TIMEOUT_SEC = 60  # the longest wait for a GPU that does not answer


def main() -> int:
    answer: dict[str, Any] = {
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "gpus": torch.cuda.device_count() if torch.version.cuda else 0,
    }
    try:
        if answer["gpus"]:
            torch.zeros(1, device="cuda").sum().item()  # Raises if the driver is too old.
        if answer["gpus"] > 1:
            answer["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
            answer["bus_gb_per_sec"] = bandwidth(answer["gpus"])
    except Exception as error:  # The caller reports any error.
        answer["error"] = f"{type(error).__name__}: {one_line(str(error))}"
    print(json.dumps(answer))
    return 1 if "error" in answer else 0


def bandwidth(num_ranks: int, device: str = "cuda", num_bytes: int = NUM_BYTES) -> float:
    """Return the bus bandwidth of an all-reduce over all GPUs, in GB/s (1e9 bytes).

    Raises if NCCL fails or sums wrongly.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    results = torch.multiprocessing.get_context("spawn").SimpleQueue()
    torch.multiprocessing.spawn(run_rank, (num_ranks, port, device, num_bytes, results), nprocs=num_ranks)
    return float(results.get())


def run_rank(rank: int, num_ranks: int, port: int, kind: str, num_bytes: int, results: Any) -> None:
    device = torch.device(kind, rank if kind == "cuda" else 0)
    if kind == "cuda":
        torch.cuda.set_device(device)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    timeout = datetime.timedelta(seconds=TIMEOUT_SEC)
    bound = device if kind == "cuda" else None
    dist.init_process_group(BACKENDS[kind], rank=rank, world_size=num_ranks, timeout=timeout, device_id=bound)
    data = torch.full((num_bytes // 4,), float(rank + 1), device=device)
    dist.all_reduce(data)
    expected = num_ranks * (num_ranks + 1) / 2
    if (wrong := data[data != expected]).numel():
        raise RuntimeError(f"an all-reduce over {num_ranks} GPUs gave {wrong[0].item()}, expected {expected}")
    data.zero_()
    start = 0.0
    for step in range(NUM_WARMUP + NUM_TIMED):
        if step == NUM_WARMUP:
            wait_for(device)
            start = time.perf_counter()
        dist.all_reduce(data)
    wait_for(device)
    slowest = torch.tensor([(time.perf_counter() - start) / NUM_TIMED], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    if rank == 0:
        results.put(num_bytes / slowest.item() * 2 * (num_ranks - 1) / num_ranks / 1e9)
    dist.destroy_process_group()


def wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def one_line(text: str) -> str:
    """Return an error's message in one line, without the frames of another process's traceback."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith((" ", "-- Process"))]
    return " ".join(line for line in lines if not line.startswith("Traceback"))


if __name__ == "__main__":
    sys.exit(main())
