"""The gate: whether a candidate's runs are slower than a baseline's, checks on both, and files for CI."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tracking.analysis.compare import confounding
from tracking.analysis.compare.axis_values import LIKELY, Values
from tracking.analysis.compare.censoring import UNTIL_CENSORED
from tracking.analysis.compare.eval_intervals import uneven
from tracking.analysis.compare.gate_side import side_of
from tracking.analysis.compare.grouping import agreed, is_censored, is_interrupted
from tracking.analysis.compare.non_inferiority import CANNOT_TELL, NOT_SLOWER, SLOWER, GateVerdict, check_metric, decide
from tracking.analysis.results import NONE, REPEATS, TASK, Run, Runs, differing, newest_attempts
from tracking.base import quantities
from tracking.base.near_names import near_or_all
from tracking.base.number_text import counted, verb
from tracking.base.safe_text import in_markdown

__all__ = ["CANNOT_TELL", "GateVerdict", "Question", "judge", "junit", "markdown"]


@dataclass(frozen=True)
class Question:
    """Is the candidate slower in `metric` than the baseline by more than `max_slowdown` (0.03: 3 %)?

    `selectors` name the runs of the baseline and of the candidate, in this order. `where` keeps runs with these params.
    `with_neighbours` also takes runs that shared their machine. `paired` compares runs with the same seed.
    """

    selectors: Mapping[str, Sequence[str]]
    metric: str
    max_slowdown: float
    confidence: float = 0.95
    where: Sequence[tuple[str, str]] = ()
    with_neighbours: bool = False
    paired: bool = False

    def check(self) -> None:
        """Raise ValueError for a question that no runs can answer."""
        if not 0.5 < self.confidence < 1:
            raise ValueError(f"--confidence {self.confidence:g}: must be above 0.5 and below 1, such as 0.95")
        if self.metric in quantities.CATALOGUE:
            check_metric(self.metric, quantities.better(self.metric))


def judge(store: Runs, question: Question) -> GateVerdict:
    """The verdict on the runs of both sides, read from `store`. Raises ValueError for runs that do not compare."""
    sides, left_out = {}, []
    for name, selectors in question.selectors.items():
        sides[name], resumed = _side_runs(store, name, selectors, question.where)
        left_out += [resumed] if resumed else []
    check_sides(sides, question.metric)
    if not question.with_neighbours:
        confounding.check_shared(*sides.values())
    if question.paired:
        sides = in_pairs(sides, question.metric)
    baseline, candidate = (side_of(runs, question.metric) for runs in sides.values())
    limits = (question.metric, question.max_slowdown, question.confidence, question.paired)
    verdict = decide(baseline, candidate, *limits, declared=agreed(run for runs in sides.values() for run in runs))
    notes = [*left_out, *verdict.notes, *confounds(store, sides)]
    if question.paired and baseline.times.num_short + candidate.times.num_short:
        notes.insert(0, "--paired: a run without a value has no pair, so the sides are compared unpaired")
    return replace(verdict, notes=notes)


def _side_runs(
    store: Runs, name: str, selectors: Sequence[str], where: Sequence[tuple[str, str]]
) -> tuple[list[Run], str]:
    """The runs of one side, and a note on resumed ones, left out as in reports. Raises ValueError for none."""
    selected = newest_attempts(store.find(selectors))
    counted_runs = [run for run in selected if not run.uncounted]
    runs = [run for run in counted_runs if set(where) <= run.params.items()]
    whole = [run for run in runs if not is_interrupted(run)]
    num_resumed, all_runs = len(runs) - len(whole), counted(len(runs), "run")
    if whole:
        words = f"{num_resumed} of {all_runs} {verb('were', num_resumed)} interrupted and resumed, and not counted"
        return whole, f"{name}: {words}" if num_resumed else ""
    why = f"no run of {len(selected)} has {' '.join(f'{key}={value}' for key, value in where)}. Next: change --where"
    if runs:
        why = (
            f"all of {all_runs} {verb('were', num_resumed)} interrupted and resumed, and a resumed run is in no mean."
            " Next: name runs without an interruption"
        )
    elif not counted_runs:
        reasons = ", ".join(dict.fromkeys(run.uncounted or "" for run in selected))
        why = f"no run of {len(selected)} counts ({reasons}). Next: name others"
    raise ValueError(f"--{name} {' '.join(selectors)}: {why}")


def check_sides(sides: Mapping[str, Sequence[Run]], metric: str) -> None:
    """Raise ValueError if a run is on both sides, a side mixes settings, workloads differ, or no run has the metric."""
    baseline, candidate = sides.values()
    both = {run.id for run in baseline} & {run.id for run in candidate}
    if both:
        name = next(run.name for run in baseline if run.id in both)
        more = f" and {len(both) - 1} more are" if len(both) > 1 else " is"
        raise ValueError(f"{name}{more} on both sides. Next: give each side runs of its own")
    for name, runs in sides.items():
        params = [{key: value for key, value in run.params.items() if key not in REPEATS} for run in runs]
        mixed = {key: list(dict.fromkeys(values)) for key, values in sorted(differing(params), key=by_likelihood)}
        if mixed:
            shown = "; ".join(f"{key}: {', '.join(values)}" for key, values in mixed.items())
            key, values = next(iter(mixed.items()))
            raise ValueError(
                f"--{name}: holds runs of several settings ({shown}), and a mean needs one. Next: name the runs of one"
                " setting,"
                f" or give --where {key}={values[0]}"
            )
    for key in TASK:
        ours, theirs = (runs[0].params.get(key, NONE) for runs in (baseline, candidate))
        if ours != theirs:
            raise ValueError(
                f"the sides train different workloads ({key}: {ours} and {theirs}). Next: give runs of the same model,"
                " dataset and target"
            )
    check_figure(sides, metric)
    everything = [*baseline, *candidate]
    reachable = metric in UNTIL_CENSORED and any(is_censored(run) for run in everything)
    if (
        not reachable
        and any(run.finished for run in everything)
        and not any(metric in run.metrics for run in everything)
    ):
        declared = agreed(everything)
        known = sorted({key for run in everything for key in run.metrics if quantities.better(key, declared)})
        raise ValueError(f"--metric {metric}: no run has it. {near_or_all(metric, known)}")


def check_figure(sides: Mapping[str, Sequence[Run]], metric: str) -> None:
    """Raise ValueError if the figures of the runs do not compare, since they were measured in different ways."""
    if metric in UNTIL_CENSORED and (words := uneven(sides)):
        raise ValueError(
            f"--metric {metric}: {words[0]}. Next: give runs with one interval, or a metric that is not to accuracy"
        )
    if metric in confounding.KWH and (words := confounding.other_energy(sides)):
        raise ValueError(f"--metric {metric}: {words[0]}. Next: give that metric, or runs of one kind")


def in_pairs(sides: Mapping[str, Sequence[Run]], metric: str) -> dict[str, list[Run]]:
    """Both sides in order of their seeds. Raises ValueError unless both have the same seeds, each once."""
    ordered = {name: sorted(runs, key=lambda run: run.params.get("seed", "")) for name, runs in sides.items()}
    seeds = {
        name: [run.params.get("seed", NONE) for run in runs if run.finished and _is_known(run, metric)]
        for name, runs in ordered.items()
    }
    baseline, candidate = seeds.values()
    if baseline != candidate or len(set(baseline)) < len(baseline):
        words = "; ".join(f"{name}: {', '.join(of_side) or '(none)'}" for name, of_side in seeds.items())
        raise ValueError(
            f"--paired: both sides need runs with {metric} of the same seeds, each once ({words}). Next: name such"
            " runs, or leave --paired out"
        )
    return ordered


def _is_known(run: Run, metric: str) -> bool:
    return math.isfinite(run.metrics.get(metric, math.nan))


def by_likelihood(row: tuple[str, Any]) -> int:
    """A sort key: params that were likely varied on purpose come before those that follow from them."""
    return LIKELY.index(row[0]) if row[0] in LIKELY else len(LIKELY)


def confounds(store: Runs, sides: Mapping[str, Sequence[Run]]) -> list[str]:
    """Sentences on what differs between the sides and within each, besides the metric."""
    finished = {name: [run for run in runs if run.finished] for name, runs in sides.items()}
    everything = [run for runs in sides.values() for run in runs]
    return confounding.differences(finished, (), store, Values(store, everything))


def markdown(verdict: GateVerdict) -> str:
    mark = {NOT_SLOWER: "✅", SLOWER: "❌", CANNOT_TELL: "❔"}[verdict.code]
    notes = "".join(f"- {in_markdown(note)}\n" for note in verdict.notes)
    table = verdict.table().markdown() if verdict.sides else ""
    parts = [f"{mark} {in_markdown(verdict.sentence)}\n", table, notes]
    return "\n".join(part for part in parts if part)


def junit(verdict: GateVerdict) -> bytes:
    """A JUnit suite with one test case: a failure if the candidate is slower, an error if the runs cannot tell."""
    counts = {
        "tests": "1",
        "failures": str(int(verdict.code == SLOWER)),
        "errors": str(int(verdict.code == CANNOT_TELL)),
    }
    from xml.etree import ElementTree  # imported here, since launchers import this module too

    suite = ElementTree.Element("testsuite", {"name": "timetrial gate"} | counts)
    case = ElementTree.SubElement(suite, "testcase", {"classname": "timetrial.gate", "name": verdict.metric})
    if verdict.code != NOT_SLOWER:
        kind = "failure" if verdict.code == SLOWER else "error"
        ElementTree.SubElement(case, kind, {"message": verdict.sentence}).text = "\n".join(verdict.notes)
    ElementTree.SubElement(case, "system-out").text = markdown(verdict)
    written: bytes = ElementTree.tostring(suite, encoding="utf-8", xml_declaration=True)
    return written
