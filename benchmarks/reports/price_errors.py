"""How far off the price of a model's second sweep is.

    python -m benchmarks.reports.price_errors FOLDER --settings limit_train_batches=5 max_epochs=3

Runs pairs of sweeps of one model, the second one of several kinds. The second follows at once, so that the machine is
equally busy. Prints a row for each pair (time and estimate, as the launch prints them), and the median of the errors.
Pairs whose folder exists are not run again, so a later version prices the same runs.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tracking.jobs.follow import price_words
from tracking.record import run_folder

Words = tuple[str, ...]
PROGRAM = """
import random, sys, time
lr, batch, seed = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
for epoch in range(1, 5 + random.Random(seed).randrange(3)):
    time.sleep(20 / batch)
    print(f"epoch {epoch} accuracy {epoch / 10:.3f}", flush=True)
print("epoch 9 accuracy 0.9")
"""
FIRST: dict[str, Words] = {
    "vgg": ("model=vgg", "batch_size=32,64"),
    "ncf": ("model=ncf", "recipe=ncf_cpu", "dataset.size=100000", "batch_size=10000,20000"),
    "program": (
        "model=program", "program.command={python} {folder}/program.py {{lr}} {{batch_size}} {{seed}}", "target=0.9",
        '+program.metrics={{eval/accuracy: "accuracy ([0-9.]+)"}}', 'program.epoch="epoch ([0-9]+)"',
        "batch_size=16,32", "model.optimizer.lr=0.01",
    ),
}  # fmt: skip
SECOND: dict[str, dict[str, Words]] = {
    "vgg": {
        "other seeds": ("batch_size=32,64", "seed=2"),
        "three seeds of one setting": ("batch_size=32", "seed=2,3,4"),
        "other learning rates": ("batch_size=64", "model.optimizer.lr=0.002,0.004,0.008"),
        "other batch sizes": ("batch_size=16,128",),
        "a single run": ("batch_size=64", "seed=2"),
        "a search": ("+search=quickest", "batch_size=32,64", "search.budget=6runs"),
    },
    "ncf": {
        "other seeds": ("batch_size=10000,20000", "seed=2"),
        "other learning rates": ("batch_size=10000", "model.optimizer.lr=0.002,0.003,0.006"),
        "other batch sizes": ("batch_size=5000,40000",),
    },
    "program": {"other seeds": ("batch_size=16,32", "seed=2,3"), "other batch sizes": ("batch_size=8,64",)},
}


def launched(model: str, words: Words, settings: Words, runs_dir: Path) -> None:
    """Run one sweep into `runs_dir`."""
    of_model = [word.format(python=sys.executable, folder=runs_dir.parent) for word in FIRST[model]]
    keys = {word.partition("=")[0] for word in words}
    words = (*(word for word in of_model if word.partition("=")[0] not in keys), *words)
    if model != "program":
        words = (*words, *settings)
    sweep = ("-m",) if any("," in word.partition("=")[2] for word in words if "{" not in word) else ()
    common = ("gpus=0", "tracking.offline=true", f"runs_dir={runs_dir}")
    command = [sys.executable, str(ROOT / "launch.py"), *sweep, *common, *words]
    done = subprocess.run(command, cwd=runs_dir.parent, capture_output=True, text=True, check=False)
    print(f"# {' '.join(words)}: exit code {done.returncode}", *done.stdout.splitlines()[-2:], sep="\n# ", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the runs are kept")
    parser.add_argument("--models", nargs="+", default=[*FIRST], choices=[*FIRST])
    parser.add_argument("--settings", nargs="*", default=[], help="more words for models that are not programs")
    options = parser.parse_args()
    root = options.folder.resolve()
    root.mkdir(parents=True, exist_ok=True)
    (root / "program.py").write_text(PROGRAM)
    rows, errors = list[str](), list[float]()
    for model in options.models:
        for kind, words in SECOND[model].items():
            runs_dir = root / f"{model} {kind}".replace(" ", "-")
            if not runs_dir.exists():
                launched(model, (), tuple(options.settings), runs_dir)
                launched(model, words, tuple(options.settings), runs_dir)
            said, error = priced(max(path.parent for path in runs_dir.glob(f"*/{run_folder.RUN}")))
            rows.append(f"| {model} | {kind} | {said} |")
            errors += [] if error is None else [abs(error)]
    print("| model | second sweep | time and estimate |\n|---|---|---|", *rows, sep="\n")
    print(f"\nMedian error: {statistics.median(errors):.0f} % (n = {len(errors)}).")
    return 0


def priced(folder: Path) -> tuple[str, float | None]:
    """What a launch prints on its price, and the error in percent; None without an estimate."""
    said = price_words.how_far_off(folder, 1)
    if not said:
        return said, None
    words = said.rpartition(", ")[2]
    if words.endswith(" times as long"):
        return said, 100 * (float(words.split()[0]) - 1)
    share, _, sign = words.partition(" % ")
    return said, 0.0 if share == "the same" else float(share) * (-1 if sign == "less" else 1)


if __name__ == "__main__":
    sys.exit(main())
