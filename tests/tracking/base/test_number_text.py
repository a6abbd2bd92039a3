"""How numbers are written for people."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracking.analysis.results.table import Table
from tracking.base import number_text, quantities


@pytest.mark.parametrize(
    ("value", "digits", "words"),
    [
        (0.012345, 3, "0.0123"), (12.345, 3, "12.3"), (999.4, 3, "999"), (999.6, 3, "1,000"), (1576.4, 3, "1,576"),
        (1576.4, 4, "1,576"), (1_081_193.2, 4, "1,081,193"),
        (36_000.2, 4, "36,000"), (-2500.0, 3, "-2,500"), (1e20, 3, "1e+20"),
    ],
)  # fmt: skip
def test_large_numbers_keep_their_whole_part(value: float, digits: int, words: str) -> None:
    assert number_text.significant(value, digits) == words


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_what_is_no_number_is_written_as_such(value: float) -> None:
    assert number_text.significant(value) == str(value)


@given(st.floats(-1e14, 1e14))
def test_a_number_reads_back_within_its_digits(value: float) -> None:
    text = number_text.significant(value, 4)
    assert "e+" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=6e-4)


@pytest.mark.parametrize(
    ("number", "words"), [(12.0, "12"), (1 / 26, "0.038"), (8 / 26, "0.308"), (123.5, "123.5"), (12_345.0, "12345")]
)
def test_a_number_of_epochs_has_three_decimals_at_most(number: float, words: str) -> None:
    assert number_text.epoch_text(number) == words


def test_metrics_of_a_long_training_are_written_out() -> None:
    assert quantities.text("eval/perplexity", 23_456.7) == "23,457"
    assert quantities.text(quantities.EPOCHS_TO_ACCURACY, 1500) == "1,500 epochs"
    assert quantities.text(quantities.TIME_TO_ACCURACY_SEC, 0.0512) == "0.0512 s"


def test_numbers_of_a_table_are_written_out_whatever_their_format() -> None:
    cells = [[None, "a", 1_081_193.0, 1e30], [0.5, "b", 2.0, 3.0]]
    table = Table("rates", {"x": "", "name": "", "rate": "{:.4g}", "loss": ""}, cells)
    assert table.text() == [["", "a", "1,081,193", "1e+30"], ["0.5", "b", "2", "3"]]
