"""A process is left its own GPU, however its node's GPUs were shown to the agent."""

from __future__ import annotations

import pytest

from trainers.loop.worker.own_gpu import show_own_gpu


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
    show_own_gpu(environ)
    assert environ == {"LOCAL_RANK": "0", "RANK": "7", "CUDA_VISIBLE_DEVICES": own}
