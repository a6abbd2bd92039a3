"""Time to make generated data and to read them from the cache, for this checkout and another one in turns.

    python -m benchmarks.data.generated_data OTHER_CHECKOUT --sets ratings --rounds 3

Each round makes a set in an empty cache and then reads it, each time in a new process. `wall` is the time of the
dataset's function, and `cpu` the CPU seconds of that process and its children, imports included. The data must have the
same digest in both checkouts.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
SETS = {
    "ratings": "from trainers.data.ratings import ratings as make; size = 19_861_770",
    "pairs": "from trainers.data.text.synthetic import synthetic as make; size = 4_500_000",
    "numbers": "from trainers.data.text.numbers import numbers as make; size = 20_000",
    "classification": "from trainers.data.image_folder import shapes as make; size = 16_000",
    "detection": "from trainers.data.detection import shapes as make; size = 4_000",
}
CODE = """
import json, resource, time
{imports}
begun = time.monotonic()
data = make(size)
wall = time.monotonic() - begun
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
cpu = sum(usage.ru_utime + usage.ru_stime for usage in used)
version = getattr(data, "version", None) or (lambda: "")
print(json.dumps({{"wall": wall, "cpu": cpu, "version": version()}}))
"""


def once(checkout: Path, name: str, cache: str) -> dict[str, Any]:
    env = {**os.environ, "TIMETRIAL_CACHE": cache, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-W", "ignore", "-c", CODE.format(imports=SETS[name])]
    done = subprocess.run(command, cwd=checkout, env=env, check=True, capture_output=True, text=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("other", type=Path, nargs="*")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--reads", type=int, default=2, help="reads of each round")
    arguments = parser.parse_args()
    checkouts = {"this": ROOT, **dict(zip(["other"], arguments.other, strict=False))}
    for name in arguments.sets:
        taken: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for _ in range(arguments.rounds):
            for which, checkout in checkouts.items():
                with tempfile.TemporaryDirectory() as cache:
                    for what in ["made", *["read"] * arguments.reads]:
                        taken.setdefault((which, what), []).append(once(checkout, name, cache))
        for (which, what), runs in taken.items():
            for figure in ("wall", "cpu"):
                values = [run[figure] for run in runs]
                spread = f"{min(values):.2f} to {max(values):.2f}, n = {len(values)}"
                print(f"{name}, {which}, {what}, {figure}: median {statistics.median(values):.2f} s ({spread})")
        versions = {run["version"] for runs in taken.values() for run in runs}
        print(f"{name}: digests {versions}; load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
