"""Show that stock Lightning DDP under a Hydra multirun measures a false speed-up, and that launch.py does not.

    python benchmarks/peers/hydra_ddp_trap.py                  # needs two GPUs
    python benchmarks/peers/hydra_ddp_trap.py --cpu            # two processes on a CPU
    python benchmarks/peers/hydra_ddp_trap.py --devices 2,1    # the other order

Prints a table of stock_lightning_sweep.py and one of launch.py, each from one sweep over the same device counts.
"samples trained" counts the samples that went through a training step: by sample index for the stock script, by the
journals for launch.py. The models differ, so compare rates within a table only.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.data import fashion_mnist_sized
from tracking.record import journal, run_folder
from trainers.data.digits import digits
from trainers.data.fashion_mnist import fashion_mnist

TIMEOUT_SEC = 280.0  # of a sweep: stock Lightning may deadlock


@dataclass(frozen=True)
class Row:
    """A job's figures. `group_world_size` is by torch.distributed or a counting all-reduce; None: not known."""

    devices: int
    claimed_world_size: int | None
    group_world_size: int | None
    samples: int | None
    samples_per_sec: float | None


def run(command: Sequence[str], folder: Path) -> str:
    """Run a sweep in `folder` and kill processes that it leaves behind. Returns how it ended."""
    print(f"$ {' '.join(command)}", flush=True)
    log = folder / "output.log"
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))}
    with log.open("wb") as output:
        process = subprocess.Popen(
            command, cwd=folder, env=environ, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            ending = f"exit code {process.wait(TIMEOUT_SEC)}"
        except subprocess.TimeoutExpired:
            ending = f"still running after {TIMEOUT_SEC:.0f} s, killed"
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    if ending != "exit code 0":
        print("\n".join(log.read_text(errors="replace").splitlines()[-15:]))
    return ending


def stock(devices: Sequence[int], options: Sequence[str], folder: Path) -> tuple[str, list[Row]]:
    script = str(ROOT / "benchmarks" / "peers" / "stock_lightning_sweep.py")
    devices_option = f"devices={','.join(map(str, devices))}"
    ending = run([sys.executable, script, "-m", devices_option, f"out={folder}", *options], folder)
    return ending, [stock_row(number, folder) for number in devices]


def stock_row(devices: int, folder: Path) -> Row:
    """Row of a job from the reports of its processes. A sample counts once, however many processes trained it."""
    reports: list[dict[str, Any]] = [json.loads(path.read_text()) for path in folder.glob(f"devices={devices}-*.json")]
    if not reports:
        return Row(devices, None, None, None, None)
    first = min(reports, key=lambda report: report["rank"])
    trained = {index for report in reports for index in report["seen"]}
    rate = float(first["samples_per_sec"])
    return Row(devices, first["trainer_world_size"], first["group_world_size"], len(trained), rate)


def ours(devices: Sequence[int], options: Sequence[str], folder: Path) -> tuple[str, list[Row]]:
    fixed = ["max_epochs=1", "stop_at_target=false", "compile=false", "tracking.offline=true", f"runs_dir={folder}"]
    ending = run([sys.executable, str(ROOT / "launch.py"), "-m", *options, *fixed], folder)
    rows_by_devices = {
        row.devices: row for path in folder.glob(f"*/*/{run_folder.CONFIG}") for row in [our_row(path.parent)]
    }
    return ending, [rows_by_devices.get(number, Row(number, None, None, None, None)) for number in devices]


def our_row(folder: Path) -> Row:
    config = run_folder.read_config(folder)
    result = run_folder.read_result(folder)
    if result is None or result.status != "finished":
        return Row(config.world_size(), None, None, None, None)
    # Each process counts its own samples; an event has their sum over an all-gather.
    events = journal.events(folder / run_folder.JOURNAL)
    samples = sum(event.values["samples"] for event in events if event.key == "epoch_stop")
    counted = int(result.metrics["world_size"])
    return Row(config.world_size(), counted, counted, samples, result.metrics.get("throughput/samples_per_sec"))


def table(title: str, ending: str, rows: Sequence[Row], num_samples: int) -> str:
    lines = [
        f"\n**{title}** ({ending})\n",
        "| job | devices | world size reported | torch.distributed world size | samples trained | samples/s |",
        "|---|---|---|---|---|---|",
    ]
    for number, row in enumerate(rows):
        trained = "-"
        if row.samples is not None:
            trained = f"{row.samples:,} of {num_samples:,} ({row.samples / num_samples:.0%})"
        rate = "-" if row.samples_per_sec is None else f"{row.samples_per_sec:,.0f}"
        cells = [number, row.devices, row.claimed_world_size or "-", row.group_world_size or "-", trained, rate]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cpu", action="store_true", help="CPU processes over gloo, with fewer samples")
    parser.add_argument("--devices", default="1,2", help="device counts, in the sweep's order")
    arguments = parser.parse_args()
    devices = [int(number) for number in arguments.devices.split(",")]
    with tempfile.TemporaryDirectory() as scratch:
        folders = [Path(scratch, name) for name in ("stock", "ours", "data")]
        for folder in folders:
            folder.mkdir()
        if arguments.cpu:
            num_samples = digits().num_train
            our_options = ["gpus=0", f"cpu_processes={arguments.devices}", "dataset=digits", "batch_size=32"]
            stock_options = ["accelerator=cpu", "batch_size=32"]
        else:
            fashion_mnist_sized.write(folders[2])
            num_samples = fashion_mnist(str(folders[2])).num_train
            our_options = [f"gpus={arguments.devices}", "dataset=fashion_mnist", f"dataset.path={folders[2]}"]
            stock_options = ["accelerator=gpu"]
        stock_ending, stock_rows = stock(devices, [*stock_options, f"num_samples={num_samples}"], folders[0])
        our_ending, our_rows = ours(devices, our_options, folders[1])
        print(table("Stock Lightning DDP under a Hydra multirun", stock_ending, stock_rows, num_samples))
        print(table("launch.py -m", our_ending, our_rows, num_samples))
    return 0 if our_ending == "exit code 0" and all(row.samples == num_samples for row in our_rows) else 1


if __name__ == "__main__":
    sys.exit(main())
