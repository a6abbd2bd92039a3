"""The words of a report's answer, made independently: settings, figures, time spans and counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracking.analysis.audit.arithmetic import text_of
from tracking.analysis.audit.evidence import Labels, name_of
from tracking.base import quantities
from tracking.base.number_text import significant

MOST_NAMED = 3
UNIT_SAYS = (
    quantities.THROUGHPUT_SAMPLES_PER_SEC, quantities.THROUGHPUT_TOKENS_PER_SEC, quantities.COST_USD,
    quantities.COST_TO_ACCURACY_USD, quantities.TIME_TO_ACCURACY_SEC, quantities.EPOCHS_TO_ACCURACY,
    quantities.EVALUATIONS_TO_ACCURACY,
)  # fmt: skip
ADJECTIVES = {  # by how a metric begins and ends
    (quantities.TIME, ""): ("quickest", "as fast"), (quantities.THROUGHPUT, "_per_sec"): ("fastest", "as fast"),
    (quantities.COST, ""): ("cheapest", "as cheap"),
}  # fmt: skip


def called(setting: Labels) -> str:
    """`4 GPUs`, `the CPU` or `bf16` if that is the only axis; else all its labels."""
    (axis, value), *others = [*setting.items()] or [("", "")]
    if {**setting} == {"gpus": "0"}:
        return "the CPU"
    noun = {"gpus": "GPU", "nodes": "node"}.get(axis)
    if not others and noun and value.isdecimal() and value.strip("0"):
        return f"{int(value)} {noun}" + ("" if int(value) == 1 else "s")
    return value if axis == "precision" and not others else name_of(setting)


def begun(name: str) -> str:
    """A setting's name at the start of a sentence."""
    return "The CPU" if name == "the CPU" else name


def listed(names: Sequence[str], last: str) -> str:
    """`a, b and c`; if there are many, the first three and the number of others."""
    shown = [*names[:MOST_NAMED], *([f"{len(names) - MOST_NAMED} more"] if len(names) > MOST_NAMED else [])]
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} {last} {shown[-1]}"


def agreeing(name: str, singular: str, plural: str) -> str:
    """A verb that agrees with a setting's name."""
    return plural if name[:1].isdecimal() and name.endswith("s") else singular


def adjective(metric: str) -> tuple[str, str]:
    said = (words for (start, end), words in ADJECTIVES.items() if metric.startswith(start) and metric.endswith(end))
    return next(said, ("best", "as good"))


def figure(claimed: Mapping[str, Any], bound: str, metric: str, to: str) -> str:
    """A mean as the answer prints it, from the report's own numbers."""
    text = text_of(claimed["mean"], claimed["standard_error"], None, bound) + quantities.unit(metric)
    text += f" to {to}" if to else ""
    beside = [] if metric in UNIT_SAYS else [metric]
    n = claimed["n"]
    return f"{text} ({', '.join([*beside, 'one run' if n == 1 else f'n = {n}'])})"


def between(low: float | None, high: float | None) -> str:
    if not low and high is None:
        return ""
    least, most = (None if bound is None else significant(bound) for bound in (low, high))
    words = f"up to {most}" if not low else f"{least} or more" if high is None else f"{least} to {most}"
    return f" ({words} with 95 % confidence)"


def span(seconds: float) -> str:
    for size, unit in ((86400, "day"), (3600, "hour"), (60, "minute")):
        if seconds >= 1.5 * size:
            return f"about {round(seconds / size)} {unit}{'s' if round(seconds / size) != 1 else ''}"
    number = max(1, round(seconds))
    return f"about {number} second{'s' if number != 1 else ''}"


def number_of(number: int, noun: str) -> str:
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


def further(more: Mapping[str, int], totals: Sequence[int]) -> str:
    """The further runs that each setting needs; `totals` are the runs that each needs in all."""
    if len(more) == len(totals) > 1 and len({*more.values()}) == 1:
        return f"{number_of(next(iter(more.values())), 'more seed')} of each"
    if len(more) > 1 and len({*totals}) == 1:
        return f"{number_of(totals[0], 'run')} of each"
    return " and ".join(f"{number_of(number, 'more seed')} of {name}" for name, number in more.items())
