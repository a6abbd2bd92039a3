"""A process is left its own GPU, however its node's GPUs were shown to the agent."""

from __future__ import annotations

import pytest

from trainers.loop.worker.rank import be_alone


@pytest.mark.parametrize(
    ("visible", "place", "own"),
    [
        (None, 3, "3"),
        ("2,5", 1, "5"),
        ("2, 5", 1, "5"),
        ("GPU-8932f937-d72c,GPU-46dc3ae8-8f4a", 0, "GPU-8932f937-d72c"),
        ("MIG-3eb87630-93d5", 0, "MIG-3eb87630-93d5"),
    ],
)
def test_it_is_the_one_of_its_place(visible: str | None, place: int, own: str) -> None:
    environ = {"LOCAL_RANK": str(place), "RANK": "7"}
    if visible is not None:
        environ["CUDA_VISIBLE_DEVICES"] = visible
    be_alone(True, environ)
    assert environ == {"LOCAL_RANK": "0", "RANK": "7", "CUDA_VISIBLE_DEVICES": own}


def test_a_process_on_a_cpu_may_see_fewer_gpus_than_there_are_processes() -> None:
    environ = {"LOCAL_RANK": "3", "CUDA_VISIBLE_DEVICES": "0"}
    be_alone(False, environ)
    assert environ == {"LOCAL_RANK": "0", "CUDA_VISIBLE_DEVICES": "0"}
