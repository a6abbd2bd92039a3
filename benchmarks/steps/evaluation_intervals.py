"""Cost and gain of evaluating more often: the same training at several evaluation intervals, in turns.

    python benchmarks/steps/evaluation_intervals.py --epoch-samples 1150 --parts 1 0.5 0.25 --seeds 3 \
        model=vgg dataset=digits gpus=0 stop_at_target=false log_every_n_steps=6

On GPUs to their targets:

    python benchmarks/steps/evaluation_intervals.py --epoch-samples 1281167 --parts 1 0.5 0.25 --seeds 3 \
        model=resnet50 dataset=imagenet dataset.path=/data/imagenet gpus=8 precision=bf16
    python benchmarks/steps/evaluation_intervals.py --epoch-samples 117266 --parts 1 0.5 0.25 --seeds 3 \
        model=maskrcnn dataset=coco dataset.path=/data/coco gpus=8 precision=bf16

`--epoch-samples` is the number of training samples; `--parts` are fractions of an epoch. Each seed runs all intervals
in turns. Printed are means over seeds with standard errors: both clocks, the resolution of the time to accuracy, the
share of evaluation, the rate, the median step, and the step after an evaluation within an epoch. Each run also prints a
line of JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tracking.base import quantities

COLUMNS = {
    "MLPerf's clock (s)": quantities.TIME_TO_ACCURACY_SEC,
    "DAWNBench's (s)": quantities.TIME_TO_ACCURACY_TRAIN_SEC,
    "resolution (s)": quantities.TIME_EVALUATION_INTERVAL_SEC,
    "epochs": quantities.EPOCHS_TO_ACCURACY,
    "samples/s": quantities.THROUGHPUT_SAMPLES_PER_SEC,
    "median step (ms)": quantities.THROUGHPUT_STEP_MS_P50,
    "step behind an evaluation (ms)": quantities.THROUGHPUT_STEP_MS_AFTER_EVALUATION,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epoch-samples", type=int, required=True)
    parser.add_argument("--parts", type=float, nargs="+", default=[1.0, 0.5, 0.25])
    parser.add_argument("--seeds", type=int, default=3)
    arguments, options = parser.parse_known_args()
    figures: dict[float, list[Mapping[str, float]]] = {part: [] for part in arguments.parts}
    for seed in range(1, arguments.seeds + 1):
        for part in arguments.parts:
            interval = [] if part == 1 else [f"eval_every_samples={round(part * arguments.epoch_samples)}"]
            figures[part].append(trained([*options, *interval, f"seed={seed}"]))
            shown = {heading: figures[part][-1].get(key) for heading, key in COLUMNS.items()}
            print(json.dumps({"part": part, "seed": seed, **shown}), flush=True)
    heading = ["part of an epoch", "n", *COLUMNS, "share of evaluation"]
    print(f"| {' | '.join(heading)} |\n|{'---|' * len(heading)}")
    for part, runs in figures.items():
        cells = [mean([run[key] for run in runs if key in run]) for key in COLUMNS.values()]
        shares = [100 * run[quantities.TIME_EVAL_SEC] / (run[quantities.TIME_EVAL_SEC] + run[quantities.TIME_TRAIN_SEC])
                  for run in runs]  # fmt: skip
        print(f"| {part:g} | {len(runs)} | {' | '.join([*cells, f'{mean(shares)} %'])} |")


def trained(options: Sequence[str]) -> Mapping[str, float]:
    """Metrics of a run."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, str(ROOT / "launch.py"), *options, "tracking.offline=true", f"runs_dir={folder}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        (result,) = Path(folder).glob("*/result.json")
        metrics: dict[str, float] = json.loads(result.read_text(encoding="utf-8"))["metrics"]
        return metrics


def mean(values: Sequence[float]) -> str:
    if not values:
        return ""
    error = f" ± {statistics.stdev(values) / len(values) ** 0.5:.2g}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):.4g}{error}"


if __name__ == "__main__":
    main()
