"""Cost of a checkpoint after a step: the step after it, the time that training waits, and the time to write.

    python benchmarks/steps/checkpoint_steps.py --every 10 --seeds 3 \
        model=vgg dataset=digits gpus=0 stop_at_target=false batch_size=32

On GPUs, where a copy on the device and a thread should hide it:

    python benchmarks/steps/checkpoint_steps.py --every 100 --seeds 3 \
        model=resnet50 dataset=synthetic gpus=1 precision=bf16 limit_train_batches=500 max_epochs=2
    python benchmarks/steps/checkpoint_steps.py --every 100 --seeds 3 \
        model=maskrcnn dataset=synthetic gpus=8 precision=bf16 limit_train_batches=500 max_epochs=2

Each seed is a run. Printed are means over runs, with standard errors, of medians of a run: a step without a checkpoint
before it, the step after one ("behind"), their difference, the training's wait (`checkpoint_start` to
`checkpoint_stop`, "held up"), and the time until the file is complete. The first two windows are left out. A second
table has the parts of the wait (`checkpoint_stop`) and of the writing (`checkpoint_saved`), from the journal; "device
copy" is the time between the two ends of the copies on the GPU, idle time included. A line of JSON for each checkpoint
precedes the tables, since medians of the parts need not add up to the median of the wait.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tracking.measure.training import throughput
from tracking.record import Record, journal, run_folder

COLUMNS = ("step (ms)", "step behind one (ms)", "longer by (ms)", "held up (ms)", "written in (s)")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    arguments, options = parser.parse_known_args()
    options = [*options, f"checkpoint_every_steps={arguments.every}"]
    runs = [measured([*options, f"seed={seed}"]) for seed in range(1, arguments.seeds + 1)]
    show(COLUMNS, [row for row, _ in runs])
    print()
    names = list(runs[0][1])
    show([name.removesuffix("_ms").replace("_", " ") + " (ms)" for name in names],
         [[parts[name] for name in names] for _, parts in runs])  # fmt: skip


def show(columns: Sequence[str], rows: Sequence[Sequence[float]]) -> None:
    """Print a table with the means of the rows."""
    print(f"| n | {' | '.join(columns)} |\n|{'---|' * (len(columns) + 1)}")
    print(f"| {len(rows)} | {' | '.join(mean(column) for column in zip(*rows, strict=True))} |")


def measured(options: Sequence[str]) -> tuple[tuple[float, ...], dict[str, float]]:
    """Values of a run, in the order of COLUMNS, and medians of the parts, in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "launch.py"), *options, "tracking.offline=true", f"runs_dir={folder}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (path,) = Path(folder).glob(f"*/{run_folder.JOURNAL}")
        events = journal.events(path)
    saved = [event for event in events if event.key == "checkpoint_saved"]
    behind = {event.values["step"] + 1 for event in saved}
    times = dict(steps(throughput.steady(throughput.read_windows(events))))
    usual = statistics.median(ms for step, ms in times.items() if step not in behind)
    after = statistics.median(ms for step, ms in times.items() if step in behind)
    # Not those after an epoch, for whose file the training waits.
    within = [event for event in events if event.key == "checkpoint_stop" and "step" in event.values]
    starts = {event.values.get("step"): event.clock_sec for event in events if event.key == "checkpoint_start"}
    held_up = [1e3 * (event.clock_sec - starts[event.values["step"]]) for event in within]
    for event, held_up_ms in zip(within, held_up, strict=True):
        print(json.dumps({**event.values, "held_up_ms": held_up_ms, "behind_ms": times.get(event.values["step"] + 1)}))
    of_file = statistics.median(event.values["sec"] for event in saved)
    row = usual, after, after - usual, statistics.median(held_up), of_file
    return row, medians(within) | medians(saved)


def medians(events: Sequence[Record]) -> dict[str, float]:
    """Medians of the parts that all of the events have."""
    names = [name for name in events[0].values if name.endswith("_ms")]
    return {name: statistics.median(event.values[name] for event in events) for name in names}


def steps(windows: Sequence[throughput.Window]) -> Iterator[tuple[int, float]]:
    """Global step and milliseconds of each step, by its slowest process."""
    for window in windows:
        first = window.step - len(window.step_sec) + 1
        for number, sec in enumerate(window.step_sec, first):
            yield number, 1e3 * sec


def mean(values: Sequence[float]) -> str:
    error = f" ± {statistics.stdev(values) / len(values) ** 0.5:.2g}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4g}{error}"


if __name__ == "__main__":
    main()
