"""Published figures, to be put beside one's own: tables with their arithmetic, and rows in timetrial's units.

The figures are in tracking/references, with their sources; what is derived from them is computed here.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from conf.schema import ConfigError
from tracking.table import Cell, Table, make_console

FOLDER = Path(__file__).resolve().parent / "references"
DGX1 = "Multi-GPU Scaling of MLPerf Benchmarks on NVIDIA DGX-1"
C4140 = "Deep Learning Performance on V100 GPUs with ResNet-50 Model"
FASHION_MNIST = "Benchmarking NVIDIA CUDA 9 and Amazon EC2 P3 Instances Using Fashion MNIST"
STACKS = "Optimal NVIDIA Stack for training Mask R-CNN"
TARGETS = "MLPerf Training v0.5"
RECORDS = {  # name: how the source begins, in records.csv
    "mlperf": "MLPerf",
    "lambda": "Lambda",
    "nvidia": "NVIDIA DeepLearningExamples",
    "airbench": "cifar10-airbench",
}
NAMES = ("dgx1", "c4140", "fashion_mnist", "stacks", *RECORDS)
HELP = f"published figures beside yours: {', '.join(NAMES)}"
MODELS = {  # the report's word: timetrial's
    "image_classification_resnet50": "resnet50",
    "object_detection_heavy_maskrcnn": "maskrcnn",
    "object_detection_light_ssd": "ssd",
    "ssd300": "ssd",
    "translation_gnmt": "gnmt",
    "translation_transformer": "transformer",
    "recommendation_ncf": "ncf",
}
UNITS = {  # of records.csv: metric, and the factor to its unit
    "minutes": ("time/to_accuracy_sec", 60.0),
    "s": ("time/to_accuracy_sec", 1.0),
    "images/s": ("throughput/samples_per_sec", 1.0),
    "samples/s": ("throughput/samples_per_sec", 1.0),
    "images/s/GPU": ("throughput/samples_per_sec_per_device", 1.0),
    "tokens/s": ("throughput/tokens_per_sec", 1.0),
}


@dataclass(frozen=True)
class Reference:
    """A published setting: what it ran on, and its figures by timetrial's metric keys, in their units."""

    name: str  # of NAMES
    model: str
    hardware: str
    gpus: int | None
    precision: str | None
    global_batch_size: int | None
    metrics: dict[str, float]
    source: str
    what: str = ""  # of the figure, where the report says more of it


def check(names: Iterable[str]) -> list[str]:
    """The names, once each. Raises ConfigError for one that there is not."""
    asked = list(dict.fromkeys(names))
    unknown = [name for name in asked if name not in NAMES]
    if unknown or not asked:
        given = ", ".join(unknown) or "(none)"
        raise ConfigError(f"reference {given}: there is no such published study; allowed: {', '.join(NAMES)}")
    return asked


def read(file: str) -> list[dict[str, str]]:
    with (FOLDER / file).open(encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened))


def number(text: str) -> float | None:
    return float(text) if text else None


def integer(text: str) -> int | None:
    return int(text) if text else None


# ------------------------------------------------------------------------------------------------------------ rows


def reference_rows(names: Sequence[str], model: str | None = None) -> list[Reference]:
    """The published settings of the studies, all or those of one model. Raises ConfigError for an unknown study."""
    asked = check(names)
    rows = [*dgx1_rows(), *fashion_mnist_rows(), *record_rows()]
    return [row for row in rows if row.name in asked and model in (None, row.model)]


def dgx1_rows() -> list[Reference]:
    return [
        Reference(
            "dgx1", MODELS[row["workload"]], "DGX-1 (V100 32 GB)", int(row["gpus"]), row["precision"],
            int(row["global_batch_size"]),
            {
                "time/to_accuracy_sec": 60 * minutes_to_accuracy(row),
                "time/epoch_sec": 60 * float(row["minutes_per_epoch"]),
                "epochs/to_accuracy": float(row["epochs"]),
            },
            DGX1,
        )
        for row in read("dgx1_scaling.csv")
    ]  # fmt: skip


def fashion_mnist_rows() -> list[Reference]:
    return [
        Reference(
            "fashion_mnist", "vgg", f"{row['instance']} ({row['gpu']})", 1, None, None,
            {
                "time/to_accuracy_sec": 60 * minutes,
                "cost/to_accuracy_usd": usd(minutes, float(row["usd_per_hour"])),
            },
            FASHION_MNIST,
            f"CUDA {row['cuda']}, all of a training with {row['augmented_epochs']} augmented epochs",
        )
        for row in read("fashion_mnist_p2_p3.csv")
        if (minutes := number(row["minutes"])) is not None
    ]  # fmt: skip


def record_rows() -> list[Reference]:
    rows = []
    for row in read("records.csv"):
        name = next(name for name, start in RECORDS.items() if row["source"].startswith(start))
        metric, factor = UNITS[row["unit"]]
        model = MODELS.get(row["workload"], row["workload"])
        rows.append(
            Reference(
                name, model, row["hardware"], int(row["gpus"]), row["precision"], integer(row["batch"]),
                {metric: factor * float(row["value"])}, row["source"], row["what"],
            )
        )  # fmt: skip
    return rows


# ---------------------------------------------------------------------------------------------------------- tables


def reference_tables(names: Sequence[str]) -> list[Table]:
    """The studies' tables, with what follows from their figures. Raises ConfigError for an unknown study."""
    makers = {"dgx1": dgx1_tables, "c4140": c4140_tables, "fashion_mnist": cost_tables, "stacks": stack_tables}
    tables = []
    for name in check(names):
        tables += makers[name]() if name in makers else record_tables(name)
    return tables


def minutes_to_accuracy(row: dict[str, str]) -> float:
    return float(row["minutes_per_epoch"]) * float(row["epochs"])


def dgx1_tables() -> list[Table]:
    """Time to accuracy = minutes an epoch x epochs; speed-up and efficiency over the smallest count of GPUs."""
    rows, base = read("dgx1_scaling.csv"), dict[str, dict[str, str]]()
    scaling: list[list[Cell]] = []
    speedups: dict[str, dict[str, float]] = {}
    for row in rows:
        first = base.setdefault(row["workload"], row)
        minutes = minutes_to_accuracy(row)
        speedup = minutes_to_accuracy(first) / minutes
        speedups.setdefault(row["workload"], {})[row["gpus"]] = speedup
        gpus, batch, epochs = float(row["gpus"]), float(row["global_batch_size"]), float(row["epochs"])
        per_epoch, efficiency = float(row["minutes_per_epoch"]), speedup * float(first["gpus"]) / gpus
        labels: list[Cell] = [row["workload"], gpus, batch, row["precision"]]
        scaling.append([*labels, per_epoch, epochs, minutes, speedup, efficiency])
    columns = {
        "workload": "", "GPUs": "{:.0f}", "global batch": "{:,.0f}", "precision": "", "minutes an epoch": "{:.4g}",
        "epochs": "{:.0f}", "time to accuracy (min)": "{:,.2f}", "speed-up": "{:.2f}", "efficiency": "{:.2f}",
    }  # fmt: skip
    counts = list(dict.fromkeys(row["gpus"] for row in rows))
    over_all = {"workload": ""} | {f"{count} GPU{'s' * (count != '1')}": "{:.2f}" for count in counts}
    note = f'Published: "{DGX1}"; V100 32 GB, MLPerf v0.5 closed division. Times and speed-ups are computed from it.'
    return [
        Table("DGX-1: time to accuracy", columns, scaling, note),
        Table(
            "DGX-1: speed-up of the time to accuracy",
            over_all,
            [[workload, *(found.get(count) for count in counts)] for workload, found in speedups.items()],
            note,
        ),
    ]


def c4140_tables() -> list[Table]:
    """Speed-up as published; that of an epoch is speed-up x epochs / epochs on one node."""
    rows = read("resnet50_c4140.csv")
    cells: list[list[Cell]] = []
    for row in rows:
        nodes, epochs, speedup = float(row["nodes"]), float(row["epochs_to_accuracy"]), float(row["speedup"])
        of_an_epoch = speedup * epochs / float(rows[0]["epochs_to_accuracy"])
        cells.append([nodes, float(row["gpus"]), epochs, speedup, speedup / nodes, of_an_epoch])
    columns = {
        "nodes": "{:.0f}", "GPUs": "{:.0f}", "epochs": "{:.0f}", "speed-up": "{:.1f}", "efficiency": "{:.2f}",
        "speed-up of an epoch": "{:.2f}",
    }  # fmt: skip
    note = f'Published: "{C4140}"; 4 x V100-SXM2 32 GB a node, MXNet, target top-1 0.749.'
    return [Table("C4140: ResNet-50 over nodes", columns, cells, note)]


def usd(minutes: float, usd_per_hour: float) -> float:
    return minutes / 60 * usd_per_hour


def cost_tables() -> list[Table]:
    """Cost = minutes / 60 x price an hour."""
    cells: list[list[Cell]] = []
    for row in read("fashion_mnist_p2_p3.csv"):
        minutes, price = number(row["minutes"]), float(row["usd_per_hour"])
        cost = None if minutes is None else usd(minutes, price)
        figures = [minutes, price, cost, float(row["speedup_over_p2_cuda8"])]
        cells.append([row["instance"], row["gpu"], row["cuda"], float(row["augmented_epochs"]), *figures])
    columns = {
        "instance": "", "GPU": "", "CUDA": "", "augmented epochs": "{:.0f}", "minutes": "{:.1f}",
        "USD an hour": "{:.2f}", "cost (USD)": "{:.2f}", "speed-up over p2.xlarge, CUDA 8": "{:.1f}",
    }  # fmt: skip
    note = f'Published: "{FASHION_MNIST}". The cost is computed; minutes that were not published are left blank.'
    return [Table("Fashion-MNIST on EC2's P2 and P3: cost", columns, cells, note)]


def stack_tables() -> list[Table]:
    cells: list[list[Cell]] = [
        [
            row["gpu"], float(row["spread_percent"]), stack(row["best_driver"], row["best_cuda"]),
            stack(row["worst_driver"], row["worst_cuda"]), row["conclusion"],
        ]
        for row in read("maskrcnn_stacks.csv")
    ]  # fmt: skip
    columns = {"GPU": "", "spread of run time (%)": "{:.0f}", "best stack": "", "worst stack": "", "conclusion": ""}
    return [Table("Mask R-CNN over stacks", columns, cells, f'Published: "{STACKS}".')]


def stack(driver: str, cuda: str) -> str | None:
    return ", ".join(filter(None, [driver and f"driver {driver}", cuda and f"CUDA {cuda}"])) or None


def record_tables(name: str) -> list[Table]:
    tables = []
    if name == "mlperf":
        targets: list[list[Cell]] = [
            [row["workload"], row["dataset"], row["metric"], float(row["target"]), float(row["repeats"])]
            for row in read("mlperf_v05_targets.csv")
        ]
        columns = {"workload": "", "dataset": "", "metric": "", "target": "{:g}", "repeats": "{:.0f}"}
        tables.append(Table("MLPerf's targets", columns, targets, f"Published: {TARGETS}."))
    cells: list[list[Cell]] = [
        [
            row["workload"], row["hardware"], float(row["gpus"]), row["precision"], number(row["batch"]),
            float(row["value"]), row["unit"], row["what"], row["source"],
        ]
        for row in read("records.csv")
        if row["source"].startswith(RECORDS[name])
    ]  # fmt: skip
    columns = {
        "workload": "", "hardware": "", "GPUs": "{:.0f}", "precision": "", "batch": "{:,.0f}", "value": "{:,.10g}",
        "unit": "", "what": "", "source": "",
    }  # fmt: skip
    return [*tables, Table(f"Published figures: {name}", columns, cells)]


def show(names: Sequence[str]) -> int:
    """Print the studies' tables. Raises ConfigError for an unknown study."""
    console = make_console()
    for table in reference_tables(names):
        console.print(table.rich())
    return 0
