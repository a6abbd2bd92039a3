"""Cost of sampling: steps on a GPU with and without the sensors' process beside them, and its share of a core.

    python benchmarks/overhead/sensors_beside.py --out sensors.json    # one GPU, about four minutes

A step is a chain of bf16 matrix products and normalisations, about 6 ms on an H100. Each round times it once beside a
process that samples the GPU and the machine every two seconds, as a launcher does, and once without. The order
alternates. n is the number of rounds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

import torch
from torch import nn

SAMPLER = """
import json, sys, time
from pathlib import Path
from tracking.machine.usage import CoTenants, SystemMetricsThread
from tracking.record import Journal

folder, uuid = Path(sys.argv[1]), sys.argv[2]
journal = Journal(folder / "journal.jsonl")
thread = SystemMetricsThread(journal, [uuid], folder, float(sys.argv[3]), neighbours=CoTenants([uuid])).start()
time.sleep(6)  # the thread imports MLflow
cpu_sec, start = time.process_time(), time.perf_counter()
print("ready", flush=True)
sys.stdin.readline()
print(json.dumps((time.process_time() - cpu_sec) / (time.perf_counter() - start)), flush=True)
"""
INTERVAL_SEC = 2.0
WIDTH, BATCH, DEPTH = 4096, 4096, 8


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds of a measurement")
    parser.add_argument("--out", type=Path, default=Path("sensors.json"))
    arguments = parser.parse_args()
    layers = [layer for _ in range(DEPTH) for layer in (nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH))]
    model = nn.Sequential(*layers).cuda().bfloat16()
    model.compile()
    images = torch.randn(BATCH, WIDTH, device="cuda", dtype=torch.bfloat16)
    uuid = f"GPU-{torch.cuda.get_device_properties(0).uuid}"
    step_ms(model, images, 2.0)
    rows: list[dict[str, float]] = []
    for number in range(arguments.rounds):
        row: dict[str, float] = {}
        for beside in (True, False) if number % 2 else (False, True):
            if beside:
                folder = arguments.out.absolute().parent
                row["with_ms"], row["core_share"] = sampled(model, images, arguments.seconds, uuid, folder)
            else:
                row["without_ms"] = step_ms(model, images, arguments.seconds)
        rows.append(row)
        print(json.dumps(row), flush=True)
    over = [row["with_ms"] - row["without_ms"] for row in rows]
    error = statistics.stdev(over) / len(over) ** 0.5
    summary = {
        "without_ms": statistics.mean(row["without_ms"] for row in rows), "over_ms": statistics.mean(over),
        "over_ms_error": error, "n": len(over), "core_share": statistics.mean(row["core_share"] for row in rows),
    }  # fmt: skip
    arguments.out.write_text(json.dumps({"summary": summary, "rounds": rows}, indent=2))
    print(json.dumps(summary))


def step_ms(model: nn.Module, images: torch.Tensor, seconds: float) -> float:
    """Milliseconds of a forward and backward pass, repeated for `seconds`."""
    torch.cuda.synchronize()
    start, steps = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        for _ in range(20):
            model(images).sum().backward()
        torch.cuda.synchronize()
        steps += 20
    return 1e3 * (time.perf_counter() - start) / steps


def sampled(model: nn.Module, images: torch.Tensor, seconds: float, uuid: str, folder: Path) -> tuple[float, float]:
    """Milliseconds of a step beside the sensors' process, and that process's share of a core."""
    command = [sys.executable, "-c", SAMPLER, str(folder.absolute()), uuid, str(INTERVAL_SEC)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
        milliseconds = step_ms(model, images, seconds)
        process.stdin.write("\n")
        process.stdin.flush()
        return milliseconds, float(process.stdout.readline())


if __name__ == "__main__":
    main()
