"""The tables of published studies, with figures computed from them: `report --reference-only dgx1`."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tracking.analysis.published.studies import (
    C4140,
    DELL,
    DGX1,
    FASHION_MNIST,
    RECORDS,
    SOURCES,
    STACKS,
    TARGETS,
    known_studies,
    minutes_to_accuracy,
    number,
    printed,
    read,
    usd,
)
from tracking.analysis.results import Cell, Table


def reference_tables(names: Sequence[str]) -> list[Table]:
    """The studies' tables, with computed figures. Raises ConfigError for an unknown study."""
    makers = {
        "dgx1": dgx1_tables, "c4140": c4140_tables, "fashion_mnist": cost_tables, "stacks": stack_tables,
        "frameworks": framework_tables, "dell": dell_tables,
    }  # fmt: skip
    tables = []
    for name in known_studies(names):
        tables += makers[name]() if name in makers else record_tables(name)
        tables += printed_tables(name)
    return tables


def printed_tables(name: str, models: Collection[str] | None = None) -> list[Table]:
    """A table of the figures in a study's text (of these models, if given); [] without any."""
    cells: list[list[Cell]] = [
        [row["workload"], row["system"] or None, row["what"], span(row["low"], row["high"]), row["unit"]]
        for row in printed(name, models)
    ]
    if not cells:
        return []
    columns = {"workload": "", "system": "", "what": "", "value": "", "unit": ""}
    note = f'Published: "{SOURCES[name]}", in its text.'
    return [Table(f"Printed in the text: {name}", columns, cells, note)]


def span(low: str, high: str) -> str:
    if low and high:
        return f"{low} to {high}"
    return low or f"up to {high}"


def dgx1_tables() -> list[Table]:
    """Time to accuracy = minutes an epoch x epochs; speed-up and efficiency relative to the fewest GPUs."""
    rows, base = read("dgx1_scaling.csv"), dict[str, dict[str, str]]()
    scaling: list[list[Cell]] = []
    speedups: dict[str, dict[str, float]] = {}
    for row in rows:
        first = base.setdefault(row["workload"], row)
        minutes = minutes_to_accuracy(row)
        speedup = minutes_to_accuracy(first) / minutes
        speedups.setdefault(row["workload"], {})[row["gpus"]] = speedup
        gpus, batch, epochs = float(row["gpus"]), float(row["batch_size"]), float(row["epochs"])
        per_epoch, efficiency = float(row["minutes_per_epoch"]), speedup * float(first["gpus"]) / gpus
        labels: list[Cell] = [row["workload"], gpus, batch, row["precision"]]
        printed = number(row["printed_speedup"])
        scaling.append([*labels, per_epoch, epochs, minutes, speedup, efficiency, printed])
    columns = {
        "workload": "", "GPUs": "{:.0f}", "batch size": "{:,.0f}", "precision": "", "minutes an epoch": "{:.4g}",
        "epochs": "{:.0f}", "time to accuracy (min)": "{:,.2f}", "speed-up": "{:.2f}", "efficiency": "{:.2f}",
        "printed speed-up": "{:.10g}",
    }  # fmt: skip
    counts = list(dict.fromkeys(row["gpus"] for row in rows))
    over_all = {"workload": ""} | {f"{count} GPU{'s' * (count != '1')}": "{:.2f}" for count in counts}
    note = f'Published: "{DGX1}"; V100 32 GB, MLPerf v0.5 closed division. Times and speed-ups are computed from it.'
    doubts = (
        " The printed speed-up is from the study's text, where it names one. Its batch sizes cannot all be global: Mask"
        " R-CNN's is 4 on 8 GPUs."
    )
    return [
        Table("DGX-1: time to accuracy", columns, scaling, note + doubts),
        Table(
            "DGX-1: speed-up of the time to accuracy",
            over_all,
            [[workload, *(by_count.get(count) for count in counts)] for workload, by_count in speedups.items()],
            note,
        ),
    ]


def c4140_tables() -> list[Table]:
    """Speed-up as published; the speed-up of an epoch is speed-up x epochs / epochs on one node."""
    rows = read("resnet50_c4140.csv")
    cells: list[list[Cell]] = []
    for row in rows:
        nodes, epochs, speedup = float(row["nodes"]), float(row["epochs_to_accuracy"]), float(row["speedup"])
        epoch_speedup = speedup * epochs / float(rows[0]["epochs_to_accuracy"])
        cells.append([nodes, float(row["gpus"]), epochs, speedup, speedup / nodes, epoch_speedup])
    columns = {
        "nodes": "{:.0f}", "GPUs": "{:.0f}", "epochs": "{:.0f}", "speed-up": "{:.1f}", "efficiency": "{:.2f}",
        "speed-up of an epoch": "{:.2f}",
    }  # fmt: skip
    note = f'Published: "{C4140}"; C4140 servers (systems K and M) of 4 x V100-SXM2 32 GB, MXNet, target top-1 0.749.'
    return [Table("C4140: ResNet-50 over nodes", columns, cells, note)]


def cost_tables() -> list[Table]:
    """Cost = minutes / 60 x price an hour."""
    cells: list[list[Cell]] = []
    for row in read("fashion_mnist_p2_p3.csv"):
        minutes, price = number(row["minutes"]), float(row["usd_per_hour"])
        cost = None if minutes is None else usd(minutes, price)
        figures = [minutes, price, cost, float(row["speedup_over_p2_cuda8"])]
        cells.append([row["instance"], row["gpu"], row["cuda"], *figures])
    columns = {
        "instance": "", "GPU": "", "CUDA": "", "minutes": "{:.1f}",
        "USD an hour": "{:.2f}", "cost (USD)": "{:.2f}", "speed-up over p2.xlarge, CUDA 8": "{:.1f}",
    }  # fmt: skip
    note = f'Published: "{FASHION_MNIST}". The cost is computed; unpublished minutes are left blank.'
    note += " The study does not say how many augmented epochs each time covers."
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
    return [
        Table(
            "Mask R-CNN over stacks",
            columns,
            cells,
            f'Published: "{STACKS}". The spread is between averages; between single points it is up to 20 %.',
        )
    ]


def framework_tables() -> list[Table]:
    """Time to accuracy = minutes an epoch x epochs."""
    cells: list[list[Cell]] = [
        [
            row["framework"], row["version"], row["published_by"], row["cudnn"], float(row["gpus"]),
            float(row["minutes_per_epoch"]), float(row["epochs"]), minutes_to_accuracy(row),
            float(row["num_common_kernels"]), float(row["common_kernels_percent"]),
        ]
        for row in read("resnet50_frameworks.csv")
    ]  # fmt: skip
    columns = {
        "framework": "", "version": "", "of": "", "cuDNN": "", "GPUs": "{:.0f}", "minutes an epoch": "{:.2f}",
        "epochs": "{:.0f}", "time to accuracy (min)": "{:,.2f}", "kernels that both run": "{:.0f}",
        "their share of the time (%)": "{:.0f}",
    }  # fmt: skip
    note = (
        f'Published: "{DELL}"; V100-SXM2 with NVLink, MLPerf v0.5, target top-1 0.749. Times to accuracy are computed.'
    )
    return [Table("ResNet-50 by framework", columns, cells, note)]


def dell_tables() -> list[Table]:
    """Seconds to accuracy by batch size."""
    cells: list[list[Cell]] = [
        [
            row["workload"], row["system"], row["framework"] or None, number(row["batch_size"]), float(row["seconds"]),
        ]
        for row in read("dell_mlperf.csv")
    ]  # fmt: skip
    columns = {"workload": "", "system": "", "framework": "", "batch size": "{:,.0f}", "seconds": "{:,.0f}"}
    note = f'Published: "{DELL}"; MLPerf v0.5. For two of its times it names no batch size.'
    return [Table("Dell: time to accuracy by batch", columns, cells, note)]


def stack(driver: str, cuda: str) -> str | None:
    return ", ".join(filter(None, [driver and f"driver {driver}", cuda and f"CUDA {cuda}"])) or None


def record_tables(name: str) -> list[Table]:
    tables = []
    if name == "mlperf":
        targets: list[list[Cell]] = [
            [
                row["workload"],
                row["dataset"],
                row["metric"],
                float(row["target"]),
                float(row["repeats"]),
                row["rule"] or None,
            ]
            for row in read("mlperf_v05_targets.csv")
        ]
        columns = {"workload": "", "dataset": "", "metric": "", "target": "{:g}", "repeats": "{:.0f}", "rule": ""}
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
