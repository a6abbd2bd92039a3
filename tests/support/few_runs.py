"""A report on a few runs, which a test writes down in a line or two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support import studied
from tests.support.studied import CLOCKS, SWEEP
from tracking.analysis.report import report
from tracking.analysis.report.report import Report
from tracking.analysis.results.folder_runs import FolderRuns


def written(root: Path, runs: list[dict[str, Any]], **options: Any) -> Report:
    """A report on runs given as (options of make_run) each, in folders of their own below `root`."""
    sweep = studied.make_sweep(root, SWEEP, "sqlite:///none.db", len(runs))
    for run in runs:
        config = studied.config(**run.pop("config"))
        studied.make_run(sweep, config, "sqlite:///none.db", **({"fingerprint": CLOCKS} | run))
    store = FolderRuns([root])
    return report.make(store, [SWEEP], store.find([SWEEP]), **options)


def repeated(**options: Any) -> list[dict[str, Any]]:
    """A setting's runs, a seed for each of `steps`."""
    steps = options.pop("steps")
    config = options.pop("config", {})
    return [{"config": config | {"seed": seed}, "step_sec": step, **options} for seed, step in enumerate(steps, 1)]
