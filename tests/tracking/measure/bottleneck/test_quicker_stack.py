"""Another stack is named only where all of its runs of the same training were quicker."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from conf.schema import RunConfig, StackConfig
from tests.support.studied import config
from tracking.base import quantities
from tracking.measure.bottleneck import quicker_stack
from tracking.measure.bottleneck.quicker_stack import QuickerStack
from tracking.record import Failure, Result, documents, run_folder


def run(root: Path, stack: str, rate: float, gpu: str = "NVIDIA H200", failed: bool = False, **changes: object) -> Path:
    """The folder of a run with this rate; its seed is its number."""
    number = len(list(root.iterdir()))
    request: RunConfig = replace(config(**changes), seed=number, stack=StackConfig(name=stack))
    folder = run_folder.create(root, f"run{number}")
    run_folder.write_config(folder, request)
    documents.write_json(
        folder / run_folder.FINGERPRINT,
        {"software": {}, "host": {"cpu": "EPYC"}, "topology": {"class": "1"}, "used": [{"name": gpu}]},
    )
    failure = Failure("nan", "it diverged") if failed else None
    metrics = {quantities.THROUGHPUT_SAMPLES_PER_SEC: rate}
    run_folder.write_result(folder, Result("failed" if failed else "finished", metrics=metrics, failure=failure))
    return folder


def test_the_factor_is_that_of_its_slowest_run_over_the_quickest_of_this_stack(tmp_path: Path) -> None:
    own = run(tmp_path, "old", 100.0)
    for stack, rate in (("old", 110.0), ("new", 150.0), ("new", 132.0), ("lucky", 900.0)):
        run(tmp_path, stack, rate)
    (tmp_path / "no-run").mkdir()
    assert quicker_stack.of_run(own) == QuickerStack("new", 2, pytest.approx(1.2))


@pytest.mark.parametrize(
    ("rates", "changes"),
    [
        ((150.0, 104.0), {}), ((150.0, 150.0), {"batch_size": 512}), ((150.0, 150.0), {"gpu": "NVIDIA H100"}),
        ((150.0, 150.0), {"failed": True}), ((150.0,), {}),
    ],
)  # fmt: skip
def test_no_stack_is_named_without_two_runs_of_the_same_that_are_clearly_quicker(
    tmp_path: Path, rates: tuple[float, ...], changes: dict[str, object]
) -> None:
    own = run(tmp_path, "old", 100.0)
    for rate in rates:
        run(tmp_path, "new", rate, **changes)
    assert quicker_stack.of_run(own) is None
