"""The settings next to a setting: one step along one axis or two.

A learning rate that suits a batch size suits twice that size less, so the way to the best setting often needs two axes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, product

from tracking.analysis.search.trials import Axis, Scalar

STEPS = 10  # in an interval
Point = Mapping[str, Scalar]


def all_settings(axes: Sequence[Axis]) -> Iterator[dict[str, Scalar]]:
    """All settings of discrete axes."""
    for values in product(*(axis.choices for axis in axes)):
        yield dict(zip((axis.key for axis in axes), values, strict=True))


def neighbours(axes: Sequence[Axis], middle: Point) -> Iterator[dict[str, Scalar]]:
    """The settings one step away, along one axis first, then along two."""
    values = {axis.key: middle[axis.key] for axis in axes}
    for axis in axes:
        yield from ({**values, axis.key: value} for value in _next_to(axis, middle[axis.key]))
    for first, second in combinations(axes, 2):
        for value, other in product(_next_to(first, middle[first.key]), _next_to(second, middle[second.key])):
            yield {**values, first.key: value, second.key: other}


def distance(axes: Sequence[Axis], first: Point, second: Point) -> float:
    """The largest number of steps between two settings along any axis."""
    return max((abs(_place(axis, first[axis.key]) - _place(axis, second[axis.key])) for axis in axes), default=0.0)


def _place(axis: Axis, value: Scalar) -> float:
    """The number of steps from the start of the axis to the value."""
    if axis.choices:
        return axis.ordered.index(value)
    return STEPS * axis.share(float(value))


def _next_to(axis: Axis, value: Scalar) -> list[Scalar]:
    if not axis.choices:
        return _next_on_interval(axis, float(value))
    choices = axis.ordered
    if not axis.numeric:
        return [choice for choice in choices if choice != value]
    place = choices.index(value)
    return [*choices[max(place - 1, 0) : place], *choices[place + 1 : place + 2]]


def _next_on_interval(axis: Axis, value: float) -> list[Scalar]:
    """The values one step down and one up that lie on the interval; for integers, at least 1 apart."""
    share, around = axis.share(value), list[Scalar]()
    for step in (-1, 1):
        moved = axis.at(share + step / STEPS)
        if axis.integer and moved == round(value):
            moved = round(value) + step
        if 0 <= axis.share(float(moved)) <= 1 and moved != value:
            around.append(moved)
    return around
