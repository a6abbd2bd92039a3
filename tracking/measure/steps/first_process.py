"""Finds the values of a run on several processes that describe only the first process.

A module may count on each process and never add up, or log without `sync_dist`. Its value then describes one process,
not the training, and nothing else would show that.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from tracking.base import quantities
from tracking.measure.steps import rank_parts
from tracking.record import Journal

TAG = "of_first_process"  # a tag: the keys, separated by commas


class Call(Protocol):
    """How a value is logged: under which keys, and whether it is reduced over all processes."""

    @property
    def step_key(self) -> str | None: ...
    @property
    def epoch_key(self) -> str | None: ...
    @property
    def synced(self) -> bool: ...


class Ranks(Protocol):
    """The processes of a run; `gather_texts` returns the texts of all, by rank."""

    @property
    def size(self) -> int: ...
    def gather_texts(self, local: str) -> list[str]: ...


def exchange(
    journal: Journal | None, ranks: Ranks, place: Mapping[str, Any], first_metrics: Mapping[str, float],
    calls: Sequence[Call],
) -> None:  # fmt: skip
    """Journal where the ranks ran, and the keys whose values describe only the first one. A collective call.

    `first_metrics` are the first evaluation's metrics on this rank, `calls` the options of its logged values.
    """
    texts = ranks.gather_texts(json.dumps([place, first_metrics], default=float))
    places_and_metrics = [json.loads(text) for text in texts]
    if journal is None:
        return
    journal.event(rank_parts.PLACES, ranks=[rank_place for rank_place, _ in places_and_metrics])
    names = [quantities.EVAL + name for name in differing_metrics([metrics for _, metrics in places_and_metrics])]
    names += [key for call in calls if not call.synced for key in (call.step_key, call.epoch_key) if key is not None]
    if names:
        keys = ", ".join(dict.fromkeys(names))
        journal.tags({TAG: keys})
        logging.getLogger(__name__).warning("values of the first process alone, not of all %d: %s", ranks.size, keys)


def differing_metrics(metrics_by_rank: Sequence[Mapping[str, float]]) -> list[str]:
    """The metrics whose values differ between the first rank and another one."""
    first, *others = metrics_by_rank
    return [
        name for name, value in first.items() if any(repr(other.get(name, value)) != repr(value) for other in others)
    ]
