"""Settings, figures and time spans in the words of a report's answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tracking.analysis.compare import UNTIL_CENSORED, Setting, Task, estimate
from tracking.analysis.report.sentences.templates import MOST_NAMED
from tracking.base import quantities
from tracking.base.number_text import counted, significant

CPU = "the CPU"  # the name of gpus=0
COUNTED = {"gpus": "GPU", "nodes": "node"}  # axes whose values count these
BY_VALUE = ("precision",)  # axes whose values need no name
DEFAULT = ("best", "as good")
# Rates of a whole job. The rate of a device, utilisation, steps and waits say nothing of how fast a job is.
RATES = (
    quantities.THROUGHPUT_SAMPLES_PER_SEC, quantities.THROUGHPUT_TOKENS_PER_SEC,
    quantities.THROUGHPUT_SOURCE_TOKENS_PER_SEC, quantities.THROUGHPUT_TARGET_TOKENS_PER_SEC,
)  # fmt: skip
WORDS = {  # by metric or family: the adjective of the best, and of a comparison
    quantities.TIME: ("quickest", "as fast"), quantities.COST: ("cheapest", "as cheap"),
    **dict.fromkeys(RATES, ("fastest", "as fast")),
}  # fmt: skip
# Keys whose figures need no name: their unit, or the target after it, says what they are.
SELF_EVIDENT = (
    quantities.TIME_TO_ACCURACY_SEC, quantities.EPOCHS_TO_ACCURACY, quantities.EVALUATIONS_TO_ACCURACY,
    quantities.THROUGHPUT_SAMPLES_PER_SEC, quantities.THROUGHPUT_TOKENS_PER_SEC,
    quantities.COST_TO_ACCURACY_USD, quantities.COST_USD,
)  # fmt: skip
VERBS = {"are": "is", "have": "has", "reach": "reaches"}
SPANS = ((86_400.0, "day"), (3600.0, "hour"), (60.0, "minute"), (1.0, "second"))


def name(setting: Setting) -> str:
    """`4 GPUs`, `the CPU` and `bf16` if that is the only axis; else `gpus=4 precision=bf16`."""
    if len(setting.labels) == 1:
        [(axis, value)] = setting.labels.items()
        if (axis, value) == ("gpus", "0"):
            return CPU
        if axis in COUNTED and value.isdecimal() and int(value):
            return counted(int(value), COUNTED[axis])
        if axis in BY_VALUE:
            return value
    return setting.name


def names(settings: Sequence[Setting], end: str = "and") -> str:
    """`1 GPU, 2 GPUs and 4 GPUs`; if there are many, the first ones and the number of others."""
    listed = [name(setting) for setting in settings[:MOST_NAMED]]
    if len(settings) > MOST_NAMED:
        listed.append(f"{len(settings) - MOST_NAMED} more")
    return f" {end} ".join(filter(None, [", ".join(listed[:-1]), listed[-1]]))


def subject(setting: Setting, verb: str, lead: str = "") -> dict[str, str]:
    """The setting's name behind `lead`, with a verb of VERBS that agrees with it."""
    words = name(setting)
    several = words.endswith("s") and words[0].isdecimal()
    return {"setting": opening(words, lead), verb: verb if several else VERBS[verb]}


def opening(words: str, lead: str = "") -> str:
    """A setting's name at the start of a sentence, or after a `lead`."""
    return words.capitalize().replace("cpu", "CPU") if words == CPU and not lead else words


def of_metric(metric: str) -> tuple[str, str]:
    """The adjectives of the best by this metric, and of a comparison: `quickest` and `as fast`."""
    return WORDS.get(metric) or WORDS.get(f"{metric.partition('/')[0]}/", DEFAULT)


def target(task: Task) -> str:
    """`accuracy 0.9`; "" without a target."""
    return task.title.rpartition(" to ")[2] if " to " in task.title else ""


def figure(setting: Setting, metric: str, to: str) -> dict[str, Any]:
    """The numbers of a setting's mean, and `figure`: `15.6 ± 0.2 s to accuracy 0.9 (n = 3)`."""
    mean = estimate(setting.measured(metric))
    assert mean is not None
    shown = replace(mean, olympic=None, invalid=False).text(unit=quantities.unit(metric))
    own_name = metric in SELF_EVIDENT
    shown += f" to {to}" if to and metric in UNTIL_CENSORED else ""
    about = [*([] if own_name else [metric]), "one run" if mean.n == 1 else f"n = {mean.n}"]
    return {"n": mean.n, "mean": mean.mean, "standard_error": mean.error, "figure": f"{shown} ({', '.join(about)})"}


def about_sec(seconds: float) -> str:
    """`about 6 minutes`: in the largest unit that rounds to two or more, else in seconds."""
    size, unit = next(((size, unit) for size, unit in SPANS if seconds >= 1.5 * size), SPANS[-1])
    return f"about {counted(max(1, round(seconds / size)), unit)}"


def seeds(more: Sequence[tuple[str, int]], totals: Sequence[int]) -> str:
    """`2 more seeds of each` of the settings, `9 runs of each`, or a number of seeds for each setting.

    `more` holds the settings that need runs, with their numbers; `totals` the runs that each setting needs in all.
    """
    numbers = {number for _, number in more}
    if len(more) == len(totals) > 1 and len(numbers) == 1:
        return f"{_counted(more[0][1], 'more seed')} of each"
    if len(more) > 1 and len({*totals}) == 1:
        return f"{_counted(totals[0], 'run')} of each"
    return " and ".join(f"{_counted(number, 'more seed')} of {setting}" for setting, number in more)


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'s' * (number != 1)}"


def ahead(factor: float, at_least: bool, compared: str, other: str) -> str:
    """`, 1.52 times as fast as 1 GPU`, `, at least as fast as 1 GPU`."""
    about = "at least" if at_least else "about"
    times = f"{'at least ' * at_least}{significant(factor)} times" if factor >= 1.005 else about
    return f", {times} {compared} as {other}"


def between(low: float | None, high: float | None, confidence: str) -> str:
    """` (1.41 to 1.63 with 95 % confidence)`; "" if any factor is possible. A bound of None is not known."""
    if low and high is not None:
        words = f"{significant(low)} to {significant(high)}"
    elif low or high is not None:
        words = f"{significant(low)} or more" if low else f"up to {significant(high or 0.0)}"
    else:
        return ""
    return f" ({words} with {confidence} % confidence)"
