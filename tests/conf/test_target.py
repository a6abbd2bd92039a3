"""Targets: at least a number, or at most one."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conf import target
from conf.schema import ConfigError
from tests.support.composing import composed
from tracking.record import attempts, evaluations


@pytest.mark.parametrize(
    ("written", "parsed"),
    [(0.9, 0.9), (1, 1.0), ("0.9", 0.9), (">=0.9", 0.9), (" <= 3.28", "<=3.28"), ("<=-1e-3", "<=-0.001")],
)
def test_a_target_has_one_form(written: object, parsed: object) -> None:
    assert target.parse(written) == parsed
    assert target.parse(json.loads(json.dumps(target.parse(written)))) == parsed


@pytest.mark.parametrize("written", ["", "low", "<3", "=3", "<=", "<=nan", "inf", True, None, [0.9], "0.9 0.8"])
def test_what_is_no_target_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"not a target\. Allowed: a number, >=NUMBER, or <=NUMBER"):
        target.parse(written)


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_at_most_is_at_least_turned_round(value: float, number: float) -> None:
    at_most = target.parse(f"<={number!r}")
    assert target.meets_target(value, at_most) == (value <= target.limit(at_most))
    assert target.meets_target(-value, -target.limit(at_most)) == target.meets_target(value, at_most)
    assert not any(target.meets_target(none, at_most) for none in (math.nan, math.inf, -math.inf))
    assert not any(target.meets_target(none, 0.9) for none in (math.nan, math.inf, -math.inf))


def test_all_targets_are_to_be_met_each_in_its_direction() -> None:
    targets = {"accuracy": 0.9, "loss": "<=3.28"}
    assert attempts.reached({"accuracy": 0.9, "loss": 3.28}, targets)
    assert not attempts.reached({"accuracy": 0.95, "loss": 3.29}, targets)
    assert not attempts.reached({"accuracy": 0.95}, targets)
    assert evaluations.score({"accuracy": 1.0, "loss": 3.0}, targets, "") == pytest.approx(0.1)
    assert evaluations.score({"accuracy": math.inf}, {"accuracy": 0.9}, "") == -math.inf
    assert evaluations.score({"loss": -math.inf}, {}, "loss", {"loss": "lower"}) == -math.inf
    rows = [{"distance": 4.0}, {"distance": 2.0}, {"distance": 3.0}]
    assert evaluations.best(rows, ["distance"], target.directions_of({"distance": "<=1"})) == {
        "eval/best_distance": 2.0
    }
    assert evaluations.best(rows, ["distance"], target.directions_of({"distance": 1.0})) == {"eval/best_distance": 4.0}
    assert evaluations.best(rows, ["distance"], {}) == {}


def test_the_command_line_takes_either_form() -> None:
    assert composed(["target='>=0.5'"]).targets() == {"accuracy": 0.5}
    assert composed(["target='<=0.5'"]).targets() == {"accuracy": "<=0.5"}
    for wrong in ("high", "loss:1"):
        with pytest.raises(
            ConfigError, match=rf"target={wrong}: not a target\..* give \+model\.targets\.DATASET\.METRIC="
        ):
            composed([f"target={wrong}"]).targets()
    assert composed(["+model.targets.digits.loss='<=1'"]).targets() == {"accuracy": 0.97, "loss": "<=1"}
