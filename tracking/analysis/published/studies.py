"""Published figures as rows in timetrial's units, to be put beside measured ones.

The folder `references` holds the figures with their sources. Derived figures are computed here.
"""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from conf.schema import ConfigError
from tracking.base import quantities

FOLDER = Path(__file__).resolve().parent / "references"
DGX1 = "Multi-GPU Scaling of MLPerf Benchmarks on NVIDIA DGX-1"
C4140 = "Deep Learning Performance on V100 GPUs with ResNet-50 Model"
FASHION_MNIST = "Benchmarking NVIDIA CUDA 9 and Amazon EC2 P3 Instances Using Fashion MNIST"
STACKS = "Optimal NVIDIA Stack for training Mask R-CNN"
DELL = "Demystifying Hardware Infrastructure Choices for Deep Learning Using MLPerf"
TARGETS = "MLPerf Training v0.5"
# For each study, how the source of its rows in records.csv begins.
RECORDS = {
    "mlperf": "MLPerf",
    "lambda": "Lambda",
    "nvidia": "NVIDIA DeepLearningExamples",
    "airbench": "cifar10-airbench",
    "nanogpt": "modded-nanogpt",
    "torchtitan": "torchtitan",
}
NAMES = ("dgx1", "c4140", "fashion_mnist", "stacks", "frameworks", "dell", *RECORDS)
SOURCES = {"c4140": C4140, "fashion_mnist": FASHION_MNIST, "stacks": STACKS, "dell": DELL}
ALL = "all"  # in place of a workload: all workloads of the study
HELP = f"published figures beside yours: {', '.join(NAMES)}"
# timetrial's model for each workload of the studies.
MODELS = {
    "image_classification_resnet50": "resnet50",
    "object_detection_heavy_maskrcnn": "maskrcnn",
    "object_detection_light_ssd": "ssd",
    "ssd300": "ssd",
    "translation_gnmt": "gnmt",
    "translation_transformer": "transformer",
    "recommendation_ncf": "ncf",
}
# For each unit in records.csv, its metric and the factor to the metric's unit. A time without the target has no metric.
WITHOUT_TARGET = "hours without reaching it"
UNITS = {
    "minutes": (quantities.TIME_TO_ACCURACY_SEC, 60.0),
    "s": (quantities.TIME_TO_ACCURACY_SEC, 1.0),
    "images/s": (quantities.THROUGHPUT_SAMPLES_PER_SEC, 1.0),
    "samples/s": (quantities.THROUGHPUT_SAMPLES_PER_SEC, 1.0),
    "images/s/GPU": (quantities.THROUGHPUT_SAMPLES_PER_SEC_PER_DEVICE, 1.0),
    "tokens/s": (quantities.THROUGHPUT_TOKENS_PER_SEC, 1.0),
    "tokens/s/GPU": (quantities.THROUGHPUT_TOKENS_PER_SEC_PER_DEVICE, 1.0),
    "target tokens/s": (quantities.THROUGHPUT_TARGET_TOKENS_PER_SEC, 1.0),
}


@dataclass(frozen=True)
class Reference:
    """A published setting: its hardware, and its figures by timetrial's metric keys, in their units.

    `name` is the study's, one of NAMES. `what` holds the study's remark on the figure.
    """

    name: str
    model: str
    hardware: str
    gpus: int | None
    precision: str | None
    batch_size: int | None  # as the source calls it; not always the global batch size
    metrics: dict[str, float]
    source: str
    what: str = ""


def known_studies(names: Iterable[str]) -> list[str]:
    """The names without duplicates. Raises ConfigError for an unknown name, and without any name."""
    studies = list(dict.fromkeys(names))
    unknown = [name for name in studies if name not in NAMES]
    if unknown or not studies:
        shown = ", ".join(unknown) or "(none)"
        raise ConfigError(f"reference {shown}: no such published study. Allowed: {', '.join(NAMES)}")
    return studies


def read(file: str) -> list[dict[str, str]]:
    with (FOLDER / file).open(encoding="utf-8", newline="") as opened:
        return list(csv.DictReader(opened))


def number(text: str) -> float | None:
    return float(text) if text else None


def integer(text: str) -> int | None:
    return int(text) if text else None


def reference_rows(names: Sequence[str], model: str | None = None) -> list[Reference]:
    """The published settings of the studies, all or those of one model. Raises ConfigError for an unknown study."""
    studies = known_studies(names)
    rows = [*dgx1_rows(), *fashion_mnist_rows(), *framework_rows(), *dell_rows(), *record_rows()]
    return [row for row in rows if row.name in studies and model in (None, row.model)]


def dgx1_rows() -> list[Reference]:
    return [
        Reference(
            "dgx1", MODELS[row["workload"]], "DGX-1 (V100 32 GB)", int(row["gpus"]), row["precision"],
            int(row["batch_size"]),
            {
                quantities.TIME_TO_ACCURACY_SEC: 60 * minutes_to_accuracy(row),
                quantities.TIME_EPOCH_SEC: 60 * float(row["minutes_per_epoch"]),
                quantities.EPOCHS_TO_ACCURACY: float(row["epochs"]),
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
                quantities.TIME_TO_ACCURACY_SEC: 60 * minutes,
                quantities.COST_TO_ACCURACY_USD: usd(minutes, float(row["usd_per_hour"])),
            },
            FASHION_MNIST,
            f"CUDA {row['cuda']}, all of a training",
        )
        for row in read("fashion_mnist_p2_p3.csv")
        if (minutes := number(row["minutes"])) is not None
    ]  # fmt: skip


def framework_rows() -> list[Reference]:
    return [
        Reference(
            "frameworks", "resnet50", "V100-SXM2 with NVLink", int(row["gpus"]), None, None,
            {
                quantities.TIME_TO_ACCURACY_SEC: 60 * minutes_to_accuracy(row),
                quantities.TIME_EPOCH_SEC: 60 * float(row["minutes_per_epoch"]),
                quantities.EPOCHS_TO_ACCURACY: float(row["epochs"]),
            },
            DELL,
            f"{row['framework']} {row['version']} of {row['published_by']}, cuDNN {row['cudnn']}",
        )
        for row in read("resnet50_frameworks.csv")
    ]  # fmt: skip


def dell_rows() -> list[Reference]:
    return [
        Reference(
            "dell", row["workload"], row["system"], int(row["gpus"]), None, integer(row["batch_size"]),
            {quantities.TIME_TO_ACCURACY_SEC: float(row["seconds"])}, DELL, row["framework"],
        )
        for row in read("dell_mlperf.csv")
    ]  # fmt: skip


def printed(name: str, models: Collection[str] | None = None) -> list[dict[str, str]]:
    """The figures printed in a study's text outside of its tables, of all models or of these."""
    rows = [row for row in read("printed.csv") if row["study"] == name]
    return [row for row in rows if models is None or row["workload"] in (*models, ALL)]


def record_rows() -> list[Reference]:
    rows = []
    for row in read("records.csv"):
        name = next(name for name, start in RECORDS.items() if row["source"].startswith(start))
        metrics, what = {}, row["what"]
        if row["unit"] == WITHOUT_TARGET:
            what = f"{what} after {row['value']} hours"
        else:
            metric, factor = UNITS[row["unit"]]
            metrics = {metric: factor * float(row["value"])}
        model = MODELS.get(row["workload"], row["workload"])
        rows.append(
            Reference(
                name, model, row["hardware"], int(row["gpus"]), row["precision"], integer(row["batch"]),
                metrics, row["source"], what,
            )
        )  # fmt: skip
    return rows


def minutes_to_accuracy(row: dict[str, str]) -> float:
    return float(row["minutes_per_epoch"]) * float(row["epochs"])


def usd(minutes: float, usd_per_hour: float) -> float:
    return minutes / 60 * usd_per_hour
