"""Numbers as programs write them are read whole or not at all."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracking.measure.programs import DeclaredPatterns

NBSP = "\u00a0"


def read(pattern: str, line: str, role: str = "metric") -> tuple[list[float], str]:
    """The values read from the line, and the reasons for those that were not."""
    words = DeclaredPatterns({"loss": pattern}) if role == "metric" else DeclaredPatterns({}, **{role: pattern})
    return [each.value for each in words.matches(line)], words.skipped.first


@pytest.mark.parametrize(("written", "value"), [
    ("0.715", 0.715), ("71.5%", 71.5), ("-3", -3.0), (".5", 0.5), ("1.", 1.0), ("2e-3,", 0.002), ("0.31)", 0.31),
    ("71,5%", 71.5), ("0,715", 0.715), ("0,5;", 0.5), ("1234,567", 1234.567),
    ("1,234.5", 1234.5), ("1.234,5", 1234.5), ("1,234,567", 1_234_567.0), ("60_000", 60_000.0),
    ("1'234'567", 1_234_567.0), (f"60{NBSP}000,5", 60_000.5),
    ("12k", 12_000.0), ("1.2M", 1_200_000.0), ("1,5k", 1500.0), ("2G,", 2e9),
    ("3.2s", 3.2), ("45ms", 45.0), ("12MB", 12.0), ("3/10", 3.0), ("97it/s", 97.0), ("5:", 5.0), ("0.93±0.01", 0.93),
])  # fmt: skip
def test_a_number_is_read_whole(written: str, value: float) -> None:
    assert read(r"loss (\S+)", f"loss {written} of") == ([value], "")


@pytest.mark.parametrize("written", [
    "1,234", "1.2.3", "1,2,3", "12,34.5", "1.5B", "3T", "0x1F", "1:23", "5-10", "2026-11-26", "1.2x10^3", "1.2*10**3",
    "3h20m", "tensor(0.93)", "info", "n/a",
])  # fmt: skip
def test_what_may_be_another_number_is_not_read_and_is_told(written: str) -> None:
    values, why = read(r"loss (\S+)", f"loss {written} of")
    assert values == []
    assert why.startswith(f"loss '{written}' ")
    assert why.endswith(f"loss {written} of")


@pytest.mark.parametrize(("pattern", "line"), [
    (r"acc (\d+)", "acc 95.5"), (r"acc (\d+)", "acc 71,5"), (r"acc (\d+\.\d)", "acc 71.55"), (r"(\d+)%", "71,5%"),
    (r"seen (\d+)", "seen 60 000 images"), (r"(\d+) images", f"60{NBSP}000 images"),
    (r"(\d+) images", "60 000 images"), (r"acc.*(\d+)%", "acc: 97%"),
    (r"(\d+\.\d+)$", "loss=-0.5"), (r"step (\d+)", "step 12e3"),
    (r"loss\D+([\d.]+)", "loss -0.5"), (r"loss\D+([\d.]+)", "loss: −0.5"), (r"-([\d.]+)", "-0.5"),
])  # fmt: skip
def test_a_part_of_a_number_is_not_read(pattern: str, line: str) -> None:
    values, why = read(pattern, line)
    assert values == []
    assert "before the matched part" in why or "may continue" in why


@pytest.mark.parametrize(("pattern", "line", "value"), [
    (r"acc (\d+)\.\d+", "acc 95.5", 95), (r"(\d+)k images", "12k images", 12), (r"seen (\d+) ", "seen 1 100 times", 1),
    (r"seen ([\d ]+) images", "seen 60 000 images", 60_000), (r"step (\d+)", "step 12k", 12_000),
    (r"Epoch (\d+)", "Epoch 3.", 3), (r"Epoch (\d+)", "Epoch 3, loss", 3), (r"Epoch (\d+)", "Epoch 1 100%|###", 1),
    (r"epoch\D+(\d+)", "epoch-3", 3), (r"loss: ([-\d.]+)", "loss: -0.5", -0.5),
    (r"\[(\d+)/", "[640/60000 (1%)]", 640), (r"\((\d+)%", "(99%)", 99), (r"iter (\d+)", "iter 10: loss 2.3", 10),
])  # fmt: skip
def test_what_the_expression_itself_matches_is_no_part_of_the_number(pattern: str, line: str, value: float) -> None:
    assert read(pattern, line) == ([value], "")


def test_a_comma_of_thousands_is_one_in_a_count() -> None:
    assert read(r"seen ([\d,.]+)", "seen 60,000", "samples") == ([60_000], "")
    values, why = read(r"seen ([\d,.]+)", "seen 60.000", "samples")
    assert values == []
    assert why.startswith("samples '60.000' may be 60000 or 60.000")


@pytest.mark.parametrize("role", ["samples", "step"])
def test_a_count_is_a_whole_number(role: str) -> None:
    for written in ("5,7", "5.7", "57e-1", "1.2345k"):
        values, why = read(r"seen (\S+)", f"seen {written} of", role)
        assert values == []
        assert why.startswith(f"{role} '{written}' is not a whole number")
    for written, value in (("5.0", 5), ("1.5k", 1500), ("2.01k", 2010), ("6e4", 60_000)):
        assert read(r"seen (\S+)", f"seen {written} of", role) == ([value], "")
    assert read(r"epoch (\S+)", "epoch 5.7 of", "epoch") == ([5.7], "")


def test_a_number_out_of_range_is_told() -> None:
    assert "is not from 0" in read(r"step (\S+)", "step -1", "step")[1]
    assert "is not from 0" in read(r"step (\S+)", "step nan", "step")[1]


@given(st.floats(allow_nan=False), st.sampled_from(["{!r}", "{:.3e}", "{:.6f}", "{:+.2f}%"]))
def test_any_number_that_python_prints_is_read_as_it_is(number: float, form: str) -> None:
    text = form.format(number)
    (value,), _ = read(r"loss (\S+)", f"loss {text} end")
    assert value == float(text.rstrip("%")) or math.isnan(value)


@given(st.text(alphabet="0123456789.,_'-+kMe% \u00a0x:", max_size=12), st.sampled_from([r"(\d+)", r"(\S+)", r"a (.+)"]))
def test_no_text_ends_the_reading(text: str, pattern: str) -> None:
    values, why = read(pattern, f"a {text}")
    assert len(values) <= 1
    assert not (values and why)
    assert re.search(pattern, f"a {text}") is None or values or why
