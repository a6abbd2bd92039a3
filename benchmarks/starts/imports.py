"""Import times of a worker and its launcher by package, largest first: `python -X importtime` of a real run.

    python -m benchmarks.starts.imports --models vgg ncf maskrcnn --rounds 3

A launch of each model trains one step on a CPU. `launcher` is the launcher's first process; `worker` sums up all worker
processes. Milliseconds are a package's own modules, without what they import: the median of the rounds. Tracing adds
time. An uncounted round writes the bytecode.
"""

from __future__ import annotations

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LINE = re.compile(r"import time: +(\d+) \| +\d+ \| +([\w.]+)$", re.MULTILINE)
OPTIONS = {
    "vgg": ["dataset=digits"],
    "ncf": ["dataset.size=1000", "batch_size=100"],
    "resnet50": ["dataset=synthetic", "dataset.size=8", "batch_size=2"],
    "maskrcnn": ["dataset=synthetic", "dataset.size=4", "batch_size=1"],
    "transformer": ["dataset=numbers", "dataset.size=300", "batch_size=1024"],
}
RUN = ["gpus=0", "max_epochs=1", "limit_train_batches=1", "tracking.offline=true"]


def package_ms(text: str) -> Counter[str]:
    """Milliseconds by package; the empty name has the total."""
    spent: Counter[str] = Counter()
    for microseconds, module in LINE.findall(text):
        for name in ("", module.partition(".")[0]):
            spent[name] += int(microseconds)
    return Counter({name: round(total / 1e3) for name, total in spent.items()})


def once(model: str, bytecode: Path) -> dict[str, Counter[str]]:
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "PYTHONPYCACHEPREFIX": str(bytecode), "TIMETRIAL_CACHE": f"{folder}/cache"}
        env.pop("PYTHONDONTWRITEBYTECODE", None)
        command = [sys.executable, "-X", "importtime", str(ROOT / "launch.py"), f"model={model}", *OPTIONS[model], *RUN]
        command.append("+stack.env={PYTHONPROFILEIMPORTTIME:'1'}")  # traces the worker only
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
        logs = list(Path(folder).glob("runs/*/worker.log"))
        if done.returncode or len(logs) != 1:
            errors = [line for line in done.stderr.splitlines() if not line.startswith("import time")]
            raise SystemExit("\n".join([f"{model}: the run failed:", done.stdout, *errors]))
        return {"launcher": package_ms(done.stderr), "worker": package_ms(logs[0].read_text())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=OPTIONS, default=list(OPTIONS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=25)
    arguments = parser.parse_args()
    columns: dict[str, list[Counter[str]]] = {}
    with tempfile.TemporaryDirectory() as bytecode:
        for number in range(arguments.rounds + 1):
            for model in arguments.models:
                for process, spent in once(model, Path(bytecode)).items():
                    name = process if process == "launcher" else f"{process} {model}"
                    columns.setdefault(name, []).extend([spent] if number else [])
    medians = {
        column: Counter(
            {name: round(statistics.median(spent[name] for spent in rounds)) for name in set().union(*rounds)}
        )
        for column, rounds in columns.items()
    }
    names = sorted(set().union(*medians.values()), key=lambda name: -max(spent[name] for spent in medians.values()))
    print("| package, ms | " + " | ".join(medians) + " |")
    print("|---|" + "---|" * len(medians))
    for name in names[: arguments.rows + 1]:
        print(f"| {name or 'all'} | " + " | ".join(f"{spent[name]:,}" for spent in medians.values()) + " |")
    num_launches = arguments.rounds * len(arguments.models)
    print(f"n = {arguments.rounds} for each worker, {num_launches} for the launcher; milliseconds")


if __name__ == "__main__":
    main()
