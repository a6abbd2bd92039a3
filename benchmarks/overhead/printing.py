"""How long a program that prints takes beside `cat`, and as `model=program`, in turn.

    python benchmarks/overhead/printing.py              # five rounds of three programs, some ten minutes on two cores
    python benchmarks/overhead/printing.py --rounds 9

The program times itself: its loop alone, without its start. `our clock` is from `run_start` to `run_stop` of its run,
which begins with the program's start.
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

# Each: the lines, how long one is, and whether each is flushed.
PROGRAMS = {"20,000 lines, each flushed": (20_000, 0, True), "1,000,000 lines": (1_000_000, 0, False),
            "100 MB in lines of 1,000": (100_000, 980, False)}  # fmt: skip
SOURCE = """
import sys, time

lines, length, flush, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "True", sys.argv[4]
fill = "x" * length
began = time.perf_counter()
for step in range(lines):
    print(f"step {step} loss {1 / (step + 1):.4f} {fill}", flush=flush)
with open(path, "a") as file:
    print(time.perf_counter() - began, file=file)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    print("| program | beside `cat`, s | as `model=program`, s | ratio of the rounds | our clock, s |")
    print("|---|---|---|---|---|")
    for name, program in PROGRAMS.items():
        with tempfile.TemporaryDirectory() as folder:
            rows = [measured(Path(folder) / str(number), *program) for number in range(rounds)]
        cats, ours, clocks = zip(*rows, strict=True)
        ratios = [own / cat for cat, own in zip(cats, ours, strict=True)]
        print("|", " | ".join([name, *map(spread, (cats, ours, ratios, clocks))]), "|", flush=True)


def measured(folder: Path, lines: int, length: int, flush: bool) -> tuple[float, float, float]:
    """Seconds of the program beside `cat` and as a run, and of the run's clock."""
    folder.mkdir()
    (folder / "prints.py").write_text(SOURCE)
    words = [sys.executable, "prints.py", str(lines), str(length), str(flush)]
    printing = subprocess.Popen([*words, "beside_cat"], cwd=folder, stdout=subprocess.PIPE)
    subprocess.run(["cat"], stdin=printing.stdout, stdout=subprocess.DEVNULL, check=True)
    printing.wait()
    options = [r'+program.metrics={train/loss: "loss (\S+)"}', r"program.step=step (\d+)", "gpus=0"]
    options += ["tracking.offline=true", "tracking.system_metrics_interval_sec=0"]
    command = f"program.command={' '.join([*words, 'as_run'])}"
    started = [sys.executable, str(ROOT / "launch.py"), "model=program", command, *options]
    done = subprocess.run(started, cwd=folder, env=environment(), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    run = launched(0, done.stdout, folder).folder
    (start,), (stop,) = events(run, "run_start"), events(run, "run_stop")
    cat, own = (float((folder / name).read_text()) for name in ("beside_cat", "as_run"))
    return cat, own, stop.clock_sec - start.clock_sec


def spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
