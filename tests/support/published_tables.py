"""MLPerf's logs that say what published tables say, imported as runs: a training of each row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tracking.analysis.published import studies
from tracking.jobs.importing import LogOptions, import_log

START_MS = 1_700_000_000_000
BENCHMARKS = {
    "image_classification_resnet50": ("resnet", {"accuracy": 0.76}),
    "object_detection_heavy_maskrcnn": ("maskrcnn", {"BBOX": 0.378, "SEGM": 0.34}),
    "object_detection_light_ssd": ("ssd", {"accuracy": 0.24}),
    "translation_gnmt": ("gnmt", {"accuracy": 24.5}),
    "translation_transformer": ("transformer", {"accuracy": 25.5}),
    "recommendation_ncf": ("ncf", {"accuracy": 0.7}),
}


def log(name: str, reached: Mapping[str, float], epochs: int, epoch_sec: float, said: Mapping[str, Any]) -> str:
    """A log whose last evaluation reaches the target, and the others are of half as much."""
    lines: list[str] = []

    def add(seconds: float, key: str, value: Any = None, **metadata: Any) -> None:
        entry = {"namespace": "", "time_ms": START_MS + round(1000 * seconds), "event_type": "POINT_IN_TIME"}
        lines.append(":::MLLOG " + json.dumps(entry | {"key": key, "value": value, "metadata": metadata}))

    for key, value in {"submission_benchmark": name, "submission_org": "published", **said}.items():
        add(0.0, key, value)
    add(0.0, "run_start")
    for epoch in range(1, epochs + 1):
        add((epoch - 1) * epoch_sec, "epoch_start", epoch_num=epoch)
        add(epoch * epoch_sec, "epoch_stop", epoch_num=epoch)
        share = 1.0 if epoch == epochs else 0.5
        values = {key: share * value for key, value in reached.items()}
        add(epoch * epoch_sec, "eval_accuracy", values if len(values) > 1 else share * next(iter(reached.values())),
            epoch_num=epoch)  # fmt: skip
    add(epochs * epoch_sec, "run_stop", status="success")
    return "\n".join(lines) + "\n"


def imported(root: Path, name: str, text: str, **options: Any) -> Path:
    """The run folder below `root` of this log."""
    path = root / f"{name}.log"
    path.write_text(text)
    return import_log(path, LogOptions(root / "runs", "sqlite:///none.db", name=name, **options)).folder


def import_dgx1(root: Path) -> None:
    """A run of each row of the DGX-1 report."""
    for row in studies.read("dgx1_scaling.csv"):
        name, reached = BENCHMARKS[row["workload"]]
        said = {"global_batch_size": int(row["batch_size"])}
        text = log(name, reached, int(row["epochs"]), 60 * float(row["minutes_per_epoch"]), said)
        imported(root, f"{name}-{row['gpus']}", text, gpus=int(row["gpus"]), precision=row["precision"])
