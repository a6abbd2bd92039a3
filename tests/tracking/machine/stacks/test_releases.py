"""What a CUDA and a GPU need of each other."""

from __future__ import annotations

import pytest

from tracking.machine.stacks import releases


@pytest.mark.parametrize(
    ("cuda", "capability", "least"),
    [
        ("13.2", None, 580),
        ("12.4", 9.0, 525),
        ("12.8", 10.0, 570),
        ("11.8", 8.0, 450),
        ("13.0", 12.0, 580),
        ("9.0", None, None),
    ],
)
def test_the_oldest_driver_of_a_cuda(cuda: str, capability: float | None, least: int | None) -> None:
    assert releases.min_driver(cuda, capability) == least


def test_a_release_is_that_of_a_versions_first_two_parts() -> None:
    assert releases.release("2.11.0+cu130") is releases.TORCH["2.11"]
    assert releases.release("2.1") is None
    assert releases.release("nightly") is None


@pytest.mark.parametrize(
    ("torch", "capability", "runs"),
    [("2.6", 3.7, False), ("2.6", 8.9, True), ("2.6", 10.0, False), ("2.11", 7.0, False), ("2.11", 12.1, True)],
)
def test_code_runs_on_gpus_of_its_major_capability(torch: str, capability: float, runs: bool) -> None:
    held = releases.TORCH[torch].capabilities
    assert held is not None
    assert releases.holds(held, capability) is runs
