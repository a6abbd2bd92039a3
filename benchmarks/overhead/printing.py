"""Time of a program that prints, piped into `cat` and as `model=program`, in turns.

    python benchmarks/overhead/printing.py              # five rounds of three programs, about ten minutes on two cores
    python benchmarks/overhead/printing.py --rounds 9

The program times its own loop, without its start: wall-clock and CPU time. Each round has both sides, in the reverse
order of the round before, and ratios are taken within a round. `our clock` runs from `run_start` to `run_stop`; it
includes the program's start.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.commands import environment, events, launched

# Each: number of lines, their length, whether each is flushed.
PROGRAMS = {"20,000 lines, each flushed": (20_000, 0, True), "1,000,000 lines": (1_000_000, 0, False),
            "100 MB in lines of 1,000": (100_000, 980, False)}  # fmt: skip
SOURCE = """
import sys, time

lines, length, flush, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True", sys.argv[4]
fill = "x" * length
began, cpu = time.perf_counter(), time.process_time()
for step in range(lines):
    print(f"step {step} loss {1 / (step + 1):.4f} {fill}", flush=flush)
with open(path, "a") as file:
    print(time.perf_counter() - began, time.process_time() - cpu, file=file)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print("| program | | beside `cat`, s | as `model=program`, s | ratio of the rounds | our clock, s |")
    print("|---|---|---|---|---|---|")
    for name, program in PROGRAMS.items():
        with tempfile.TemporaryDirectory() as folder:
            rows = [measured(Path(folder) / str(number), number % 2 == 1, *program) for number in range(rounds)]
        clocks = [clock for _, _, clock in rows]
        for kind, what in enumerate(("wall clock", "CPU time")):
            cats, ours = [cat[kind] for cat, _, _ in rows], [run[kind] for _, run, _ in rows]
            ratios = [run / cat for cat, run in zip(cats, ours, strict=True)]
            cells = [name, what, *map(spread, (cats, ours, ratios)), "" if kind else spread(clocks)]
            print("|", " | ".join(cells), "|", flush=True)


Times = tuple[float, float]  # wall-clock and CPU seconds


def measured(folder: Path, reverse: bool, lines: int, length: int, flush: bool) -> tuple[Times, Times, float]:
    """The program's times piped into `cat`, its times as a run, and the seconds of the run's clock."""
    folder.mkdir()
    (folder / "prints.py").write_text(SOURCE)
    program = [sys.executable, "prints.py", str(lines), str(length), str(flush)]
    if not reverse:
        beside_cat(folder, program)
    clock = as_run(folder, program)
    if reverse:
        beside_cat(folder, program)
    cat, run = (tuple(map(float, (folder / name).read_text().split())) for name in ("beside_cat", "as_run"))
    return (cat[0], cat[1]), (run[0], run[1]), clock


def beside_cat(folder: Path, program: list[str]) -> None:
    printing = subprocess.Popen([*program, "beside_cat"], cwd=folder, stdout=subprocess.PIPE)
    subprocess.run(["cat"], stdin=printing.stdout, stdout=subprocess.DEVNULL, check=True)
    printing.wait()


def as_run(folder: Path, program: list[str]) -> float:
    options = [r'+program.metrics={train/loss: "loss (\S+)"}', r"program.step=step (\d+)", "gpus=0"]
    options += ["tracking.offline=true", "tracking.system_metrics_interval_sec=0"]
    command = f"program.command={' '.join([*program, 'as_run'])}"
    started = [sys.executable, str(ROOT / "launch.py"), "model=program", command, *options]
    done = subprocess.run(started, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    run = launched(0, done.stdout, folder).folder
    (start,), (stop,) = events(run, "run_start"), events(run, "run_stop")
    return stop.clock_sec - start.clock_sec


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
