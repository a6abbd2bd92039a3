"""Seconds of a search's runs to their first training step, and whether each was forked from an imported worker.

    python launch.py -m +search=quickest model=resnet50 gpus=1,2 precision=bf16 search.budget=6min
    python -m benchmarks.starts.search_starts runs/<id>

Reads the journals of a search's folder. Prints a row for each run in the order of their starts: seconds from its
worker's start to its last import, to the clock's start (its first step follows), and to the end of its first window.
The first run of each kind of worker (GPUs, cores) starts the process that forks the others.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tracking.record import Record, journal, run_folder

HEAD = "| run | forked from | imported, s | clock, s | first window, s |\n|---|---|---|---|---|"


def row(folder: Path, events: list[Record]) -> str:
    """Row of a run. Events that it did not reach are empty."""
    at = {event.key: event for event in reversed(events)}  # the first of each key
    started = at["init_start"].clock_sec
    imported = [event.clock_sec for event in events if event.key == "import_stop"]
    clocks = [at[key].clock_sec if key in at else None for key in ("run_start", "throughput_window")]
    times = [imported[-1] if imported else None, *clocks]
    shown = ["" if time is None else f"{time - started:.2f}" for time in times]
    server = at["forked"].value if "forked" in at else "no"
    return f"| {folder.name} | {server} | {' | '.join(shown)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder of a search, in runs_dir")
    folders = [path.parent for path in parser.parse_args().folder.glob(f"*/{run_folder.CONFIG}")]
    runs = [(journal.events(folder / run_folder.JOURNAL), folder) for folder in folders]
    begun = [(events, folder) for events, folder in runs if any(event.key == "init_start" for event in events)]
    begun.sort(key=lambda run: next(event.time_ms for event in run[0] if event.key == "init_start"))
    print(HEAD)
    for events, folder in begun:
        print(row(folder, events))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
