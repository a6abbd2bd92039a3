"""Which GPU a training loop of one's own is said to train on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tracking.api import loop
from tracking.api.machines import Nodes


@pytest.mark.parametrize(("given", "expected"), [(None, 2), ("cuda", 2), ("cuda:1", 1)])
def test_a_device_without_a_number_is_the_current_gpu(
    given: str | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    assert loop.device_of(given) == torch.device("cuda", expected)
    assert loop.device_of("cpu") == torch.device("cpu")


@pytest.mark.parametrize(
    ("device", "nodes", "expected"),
    [
        ("cuda:2", ("a",), [2]),
        ("cuda:0", ("a", "a"), [0, 1]),
        ("cuda:0", ("a", "b"), [0]),
        ("cpu", ("a", "a"), []),
    ],
)
def test_the_gpus_of_a_machine_are_those_of_its_processes(
    device: str, nodes: tuple[str, ...], expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Sequence[Any]] = []

    class Collector:
        def __init__(self, **_: Any) -> None: ...

        def finish(self, module: Any, indices: Sequence[Any]) -> None:
            asked.append(indices)

    monkeypatch.setattr(loop, "Collector", Collector)
    loop.take_fingerprint(torch.device(device), Nodes(nodes))
    assert list(asked[0]) == expected
