"""Which GPU a training loop of one's own is said to train on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tracking.api import machines


@pytest.mark.parametrize(("given", "expected"), [(None, 2), ("cuda", 2), ("cuda:1", 1)])
def test_a_device_without_a_number_is_the_current_gpu(
    given: str | None, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 2)
    assert machines.device_of(given) == torch.device("cuda", expected)
    assert machines.device_of("cpu") == torch.device("cpu")


@pytest.mark.parametrize(
    ("device", "names", "expected"),
    [
        ("cuda:2", ("a",), [2]),
        ("cuda:0", ("a", "a"), ["GPU-6", "GPU-7"]),  # a launcher may hide the other GPUs from each
        ("cuda:0", ("a", "b", "a"), ["GPU-6", "GPU-8"]),
        ("cuda:0", ("a", "b"), [0]),
        ("cpu", ("a", "a"), []),
    ],
)
def test_the_gpus_of_a_machine_are_those_of_its_processes(
    device: str, names: tuple[str, ...], expected: list[int | str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Sequence[Any]] = []

    class Collector:
        def __init__(self, **_: Any) -> None: ...

        def finish(self, module: Any, indices: Sequence[Any]) -> None:
            asked.append(indices)

    monkeypatch.setattr(machines, "Collector", Collector)
    ranks: Any = SimpleNamespace(size=1, gather_texts=lambda own: [own] * len(names))
    monkeypatch.setattr(machines, "unique_names", lambda _: names)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(uuid="6"))
    nodes = machines.nodes_of(ranks, torch.device(device))
    assert nodes.gpu_by_rank == ("" if device == "cpu" else "GPU-6",) * len(names)
    if device != "cpu":
        nodes = replace(nodes, gpu_by_rank=tuple(f"GPU-{6 + rank}" for rank in range(len(names))))
    machines.take_fingerprint(torch.device(device), nodes)
    assert list(asked[0]) == expected
