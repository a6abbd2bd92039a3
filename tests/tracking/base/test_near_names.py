"""Names that somebody may have meant."""

from __future__ import annotations

from tracking.base.near_names import near_or_all


def test_a_near_name_stands_alone_and_else_all_do() -> None:
    known = ["eval/top2", "test/loss"]
    assert near_or_all("eval/best_top2", known) == "Did you mean eval/top2?"
    assert near_or_all("zzz", known) == "Allowed: eval/top2, test/loss"
    assert near_or_all("zzz", []) == "Allowed: (none)"
