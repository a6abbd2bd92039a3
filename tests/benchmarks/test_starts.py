"""The starts that benchmarks measure compose and pass the checks, for every model."""

from __future__ import annotations

import pytest

from benchmarks.starts import kept_traces, starts
from tests.support.composing import EIGHT_GPUS, ROOT, composed
from tracking.request import checks

MODELS = sorted({path.stem for path in (ROOT / "conf/model").glob("*.yaml")} - {"program"})  # which needs a command


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("short", [starts.SHORT, kept_traces.SHORT], ids=["starts", "kept_traces"])
def test_every_model_has_a_short_start(model: str, short: list[str]) -> None:
    run = checks.check_run(composed([*short, f"model={model}", "gpus=2"]), EIGHT_GPUS)
    steps = run.evaluated().every_steps
    assert steps is None or steps <= (run.limit_train_batches or 0)
