"""The view of a sweep in MLflow's UI: its jobs by time to accuracy, with the columns and charts that differ.

The UI's Share button stores the state of the runs table in a tag of the experiment, `mlflow.sharedViewState.<key>`. A
link with `viewStateShareKey=<key>` opens that state. This module writes the same state as plain JSON, which MLflow
reads from 3.5 on. MLflow ignores fields that its version does not know.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from conf.schema import RunConfig
from tracking.base import quantities
from tracking.jobs.plan import run_setup
from tracking.record import documents, evaluations, run_folder

SORTED_BY = f"metrics.`{quantities.TIME_TO_ACCURACY_SEC}`"
METRICS = (
    quantities.TIME_TO_ACCURACY_SEC, quantities.TIME_TO_ACCURACY_TRAIN_SEC, quantities.EPOCHS_TO_ACCURACY,
    quantities.EPOCHS_TRAINED, quantities.THROUGHPUT_SAMPLES_PER_SEC, quantities.TARGET_REACHED, quantities.WORLD_SIZE,
)  # fmt: skip
COST, UTILIZATION = quantities.COST_TO_ACCURACY_USD, quantities.THROUGHPUT_MODEL_FLOPS_UTILIZATION
NAME = "attributes.`Run Name`"
CHARACTER_PIXELS = 6.4  # the width of a character of the UI's font, on average
NAME_BORDER_PIXELS, HEADING_BORDER_PIXELS = 60, 30
MAX_PARAMS = 12  # shown as columns; MLflow 3.5 takes tags of 5,000 characters
MAX_CURVES = 2  # charts of accuracies: a workload has one or two
# Defaults of MLflow's UI (createExperimentPageUIState): MLflow 3.5 replaces its whole state by the view.
UNCHANGED: Mapping[str, Any] = {
    "runsExpanded": {},
    "runsPinned": [],
    "runsHidden": [],
    "runsVisibilityMap": {},
    "viewMaximized": False,
    "runListHidden": False,
    "groupBy": None,
    "groupsExpanded": {},
    "useGroupedValuesInCharts": True,
    "hideEmptyCharts": True,
    "autoRefreshEnabled": True,
}


def write(folder: Path, configs: Sequence[RunConfig], names: Sequence[str], axes: Sequence[str]) -> None:
    """Write the view of the sweep in `folder`, whose jobs differ in the config's keys `axes`. Raises OSError."""
    documents.write_json(folder / run_folder.VIEW, state(folder.name, configs, names, axes))


def state(sweep: str, configs: Sequence[RunConfig], names: Sequence[str], axes: Sequence[str]) -> dict[str, Any]:
    """The view's state in the form of MLflow's UI."""
    known = {key for config in configs for key in run_setup.params(config)}
    named = (axis.removeprefix("model.").replace(".", "/") for axis in axes)
    params = [key for key in named if key in known][:MAX_PARAMS]
    accuracies = list(dict.fromkeys(metric for config in configs for metric in config.targets()))
    metrics = [*METRICS, *(evaluations.BEST + metric for metric in accuracies)]
    metrics += [UTILIZATION] if any(config.on_gpu() for config in configs) else []
    metrics += [COST] if any(config.instance.price_per_hour for config in configs) else []
    columns = [f"metrics.`{key}`" for key in metrics] + [f"params.`{key}`" for key in params] + ["tags.`failure`"]
    name_pixels = NAME_BORDER_PIXELS + CHARACTER_PIXELS * max(map(len, names))
    widths = {column: HEADING_BORDER_PIXELS + CHARACTER_PIXELS * len(column.split("`")[1]) for column in columns}
    return {
        "searchFilter": jobs_of(sweep),
        "orderByKey": SORTED_BY if accuracies else f"metrics.`{quantities.THROUGHPUT_SAMPLES_PER_SEC}`",
        "orderByAsc": bool(accuracies),  # without a target: the highest throughput first
        "selectedColumns": columns,
        "columnOrder": [NAME, *columns],
        "columnWidths": {key: round(pixels) for key, pixels in {NAME: name_pixels, **widths}.items()},
        "runsHiddenMode": "FIRST_20_RUNS",  # Charts show the 20 fastest runs.
        **charts(params, accuracies[:MAX_CURVES]),
        **UNCHANGED,
    }


def jobs_of(sweep: str) -> str:
    """The search filter for a sweep's jobs, without its parent run."""
    return f"tags.sweep = '{sweep}' and attributes.run_name LIKE '%-seed%'"


def charts(params: Sequence[str], accuracies: Sequence[str]) -> dict[str, Any]:
    """The first charts of the UI's chart view; MLflow adds one chart of each metric after them."""
    time, settings = quantities.TIME_TO_ACCURACY_SEC, [key for key in params if key != "seed"]
    over_time = {"xAxisKey": "time-relative", "useGlobalXaxisKey": False, "selectedXAxisMetricKey": ""}
    curve = {"type": "LINE", "lineSmoothness": 0, "scaleType": "linear", **over_time}
    cards: list[dict[str, Any]] = [
        {"type": "BAR", "metricKey": time, "runsCountToCompare": 20},
        {"type": "BAR", "metricKey": quantities.THROUGHPUT_SAMPLES_PER_SEC, "runsCountToCompare": 20},
        *(
            {**curve, "metricKey": quantities.EVAL + key, "selectedMetricKeys": [quantities.EVAL + key]}
            for key in accuracies
        ),
        {"type": "PARALLEL", "selectedParams": settings, "selectedMetrics": [time]},
    ]
    fixed = {"metricSectionId": "timetrial", "deleted": False, "isGenerated": False}
    section = {"uuid": "timetrial", "name": "Time to accuracy", "display": True, "isReordered": True}
    return {
        "compareRunCharts": [{"uuid": f"timetrial-{place}", **fixed, **card} for place, card in enumerate(cards)],
        "compareRunSections": [section],
        "isAccordionReordered": True,
    }
