"""Draws the pictures of these pages from the rows beside them: python docs/results/draw.py."""

from __future__ import annotations

import csv
import sys
from collections import defaultdict
from pathlib import Path

from matplotlib.figure import Figure

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from tracking.analysis.report import COLOURS, LINES, MARKERS, png  # noqa: E402

MODELS = {
    "resnet50": ("ResNet-50", "accuracy", 0.8),
    "ssd": ("SSD300", "box_map", 0.4),
    "maskrcnn": ("Mask R-CNN", "mask_map", 0.6),
}


def rows(name: str) -> list[dict[str, str]]:
    with (HERE / name).open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def accuracy_over_time() -> Figure:
    """A panel a model: every run's evaluations over seconds since the clock started, and the target."""
    finished = {
        f"{row['model']}-{row['dataset']}-{row['precision']}-{row['gpus']}gpu-seed{row['seed']}"
        for row in rows("2026-11-23_h200_runs.csv")
        if row["status"] == "finished"
    }
    curves: dict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for row in rows("2026-11-23_h200_evaluations.csv"):
        if row["run"] in finished:
            curves[row["run"], row["metric"]].append((float(row["clock_sec"]), float(row["value"])))
    figure = Figure(figsize=(10, 3.5), layout="constrained")
    for axes, (model, (title, metric, target)) in zip(figure.subplots(1, 3), MODELS.items(), strict=True):
        for place, gpus in enumerate(("1", "2")):
            runs = [
                run for run, key in curves if key == metric and run.startswith(f"{model}-") and f"-{gpus}gpu" in run
            ]
            for run in runs:
                seconds, values = zip(*curves[run, metric], strict=True)
                label = f"{gpus} GPU{'s' if gpus != '1' else ''} (n = {len(runs)})" if run == runs[0] else None
                look = {"color": COLOURS[place], "marker": MARKERS[place], "linestyle": LINES[place]}
                axes.plot(seconds, values, markersize=3.5, linewidth=1.3, label=label, **look)
        axes.axhline(target, color="#555555", linewidth=1)
        axes.annotate(f"target {target:g}", (0.02, target), xytext=(0, 3), size=8, textcoords="offset points",
                      xycoords=("axes fraction", "data"))  # fmt: skip
        axes.set_title(title, fontsize=10)
        axes.set_xlabel("seconds since the clock started")
        axes.set_ylabel({"accuracy": "accuracy", "box_map": "AP of boxes", "mask_map": "AP of masks"}[metric])
        axes.set_xlim(left=0)
        axes.set_ylim(0, 1)
        axes.grid(True, color="#dddddd", linewidth=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(loc="lower right", fontsize=8, frameon=False)
    return figure


def scaling() -> Figure:
    """Rate over GPUs of VGG, each run a mark, beside what ideal scaling would be."""
    measured: dict[int, list[float]] = defaultdict(list)
    for row in rows("h200_vgg_scaling.csv"):
        measured[int(row["gpus"])].append(float(row["samples_per_sec"]))
    means = {gpus: sum(rates) / len(rates) for gpus, rates in sorted(measured.items())}
    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.subplots()
    counts = list(means)
    axes.plot(counts, [means[1] * gpus for gpus in means], ":", color="#888888", label="ideal")
    axes.plot(
        counts,
        list(means.values()),
        linestyle=LINES[0],
        marker=MARKERS[0],
        color=COLOURS[0],
        label="measured (mean, n = 3 each)",
    )
    axes.set_xticks(counts)
    axes.set_xlabel("GPUs")
    axes.set_ylabel("images/s")
    axes.yaxis.set_major_formatter("{x:,.0f}")
    axes.set_ylim(bottom=0)
    axes.grid(True, color="#dddddd", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)
    return figure


PRECISIONS = ("fp32", "tf32", "bf16")


def quickest() -> Figure:
    """A panel a model: seconds to its target in each precision, mean and single seeds, and the winner's speed-up.

    A panel has the runs of the winner's commit alone.
    """
    times: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows("h100_vision_precisions.csv"):
        times[row["model"], row["precision"]][row["commit"]].append(float(row["time_to_accuracy_sec"]))
    figure = Figure(figsize=(10, 2.3), layout="constrained")
    for axes, (model, (title, _, _)) in zip(figure.subplots(1, 3), MODELS.items(), strict=True):
        [commit] = times[model, "bf16"]
        means = {}
        for place, precision in enumerate(PRECISIONS):
            runs = times[model, precision][commit]
            means[precision] = sum(runs) / len(runs)
            wins = precision == "bf16"
            axes.barh(place, means[precision], height=0.62, color=COLOURS[0] if wins else "#c8c8c8")
            axes.plot(runs, [place] * len(runs), "|", color="#333333", markersize=9)
            words = f"{means[precision]:.1f} s (n = {len(runs)})"
            if wins:
                words += f"\n{means['fp32'] / means[precision]:.1f} times as fast"
            axes.annotate(words, (max(runs), place), xytext=(6, 0), textcoords="offset points", va="center", size=9,
                          weight="bold" if wins else "normal")  # fmt: skip
        axes.set_yticks(range(3), ["fp32, the default", "tf32", "bf16"] if model == "resnet50" else [""] * 3)
        axes.invert_yaxis()
        axes.set_title(title, fontsize=10)
        axes.set_xlim(0, 1.45 * means["fp32"])
        axes.set_xlabel("seconds to the target")
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def main() -> None:
    (HERE.parent / "images" / "quickest.png").write_bytes(png(quickest()))
    (HERE.parent / "images" / "accuracy_over_time.png").write_bytes(png(accuracy_over_time()))
    (HERE.parent / "images" / "vgg_scaling.png").write_bytes(png(scaling()))


if __name__ == "__main__":
    main()
