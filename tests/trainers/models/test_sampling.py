"""Samples of fixed size: so many positive ones, the rest negative, each with equal chance."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from trainers.models.maskrcnn.sampling import IGNORED, NEGATIVE, POSITIVE, sample

ROWS = st.lists(st.sampled_from([IGNORED, NEGATIVE, POSITIVE]), min_size=12, max_size=12)


@settings(max_examples=50)
@given(st.lists(ROWS, min_size=1, max_size=4), st.integers(1, 20), st.sampled_from([0.0, 0.25, 0.5, 1.0]))
def test_as_many_as_there_are_up_to_the_shares(rows: list[list[int]], num: int, positive_share: float) -> None:
    labels = torch.tensor(rows, dtype=torch.int8)
    drawn = sample(labels, num, positive_share)
    room = min(num, 12)
    assert drawn.chosen.shape == drawn.positive.shape == drawn.valid.shape == (len(rows), room)
    for row, *slots in zip(rows, drawn.chosen.tolist(), drawn.positive.tolist(), drawn.valid.tolist(), strict=True):
        num_positive = min(row.count(POSITIVE), int(room * positive_share))
        num_negative = min(row.count(NEGATIVE), room - num_positive)
        sampled = [(row[index], positive) for index, positive, valid in zip(*slots, strict=True) if valid]
        assert sampled == [(POSITIVE, True)] * num_positive + [(NEGATIVE, False)] * num_negative
        chosen, positive, valid = slots
        assert valid == [slot < len(sampled) for slot in range(room)]
        assert not any(positive[len(sampled) :])
        assert len(set(chosen[: len(sampled)])) == len(sampled)  # none twice
        assert all(0 <= index < 12 for index in chosen)  # An empty slot can be looked up, too.


def test_each_candidate_has_an_equal_chance() -> None:
    torch.manual_seed(0)
    row = torch.tensor([POSITIVE] * 6 + [IGNORED] * 4 + [NEGATIVE] * 10).roll(3)
    num_rows = 6000
    drawn = sample(row.expand(num_rows, -1), 8, 0.25)
    assert drawn.valid.all()
    share = torch.bincount(drawn.chosen.flatten(), minlength=20) / num_rows
    # Standard deviations are below 0.0065.
    assert share[row == POSITIVE].tolist() == pytest.approx([2 / 6] * 6, abs=0.025)
    assert share[row == NEGATIVE].tolist() == pytest.approx([6 / 10] * 10, abs=0.025)
    assert not share[row == IGNORED].any()
    assert len(set(map(tuple, drawn.chosen.sort(dim=1).values.tolist()))) > 1000  # rows are drawn apart
