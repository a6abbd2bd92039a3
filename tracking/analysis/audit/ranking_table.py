"""Recompute the table of ranked settings, and the table of what is possible."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from statistics import fmean
from typing import Any

from conf.metric import LOWER
from tracking.analysis.audit.arithmetic import moments_of, tolerance
from tracking.analysis.audit.evidence import CAUSES, OF_TARGETS, Content, Labels, Rows, That, largest, mean_of
from tracking.analysis.audit.journals import PREFIX, JournalFigures
from tracking.base import quantities
from tracking.base.number_text import significant

RATE, COST = quantities.THROUGHPUT_SAMPLES_PER_SEC, quantities.COST_TO_ACCURACY_USD
PREFIXES = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1.0, ""))


def ranked(content: Content, workload: str, shown: Rows) -> Rows:
    """The expected rows by their labels; empty if the rows of `shown` are in the wrong order."""
    evidence, metric = content.evidence, content.evidence.metric
    records = [each for each in content.report["best"] if each["workload"] == workload and each["among"] is None]
    settings = evidence.settings(workload)
    if not records or len(settings) < 2:
        return {}
    leader = records[0]["leader"]
    short = any(evidence.short(workload, each) or evidence.stopped(workload, each) for each in settings)
    facts = quantities.quantity(metric)
    beside = [key for key in (RATE, COST) if key != metric and any(map(_has(content, workload, key), settings))]
    rows: Rows = {}
    for setting in settings:
        counting, every = evidence.counting(workload, setting), evidence.all_of(workload, setting)
        full = sum(run.failure == "oom" for run in every.values())
        row: dict[str, Any] = {
            **setting,
            "n": f"{len(counting)} of {len(every)}{f'; {full} out of memory' if full else ''}",
        }
        row[facts.heading or metric] = mean_of(evidence.sample(workload, setting, metric), facts.scale, metric)
        if records[0]["next"] is not None:
            row["times the best"] = _times(content, workload, setting, leader)
            row["verdict"] = _place(content, workload, setting, records[0])
        row |= {"reached": evidence.ends(workload, setting)} if short and metric in OF_TARGETS else {}
        for key in beside:
            column = quantities.quantity(key)
            row[column.heading] = mean_of(evidence.sample(workload, setting, key), column.scale, key)
        rows[" ".join(setting.values())] = row
    limits = {" ".join(each.values()): _limit(content, workload, each) for each in settings}
    if any(limits.values()):
        rows = {name: row | {"limited by": limits[name]} for name, row in rows.items()}
    return rows if _in_order(content, workload, [*shown], leader) else {}


def _has(content: Content, workload: str, key: str) -> Any:
    return lambda setting: moments_of(content.evidence.sample(workload, setting, key)) is not None


def _in_order(content: Content, workload: str, names: list[str], leader: Labels) -> bool:
    """Whether the leader's row comes first, and the others in order of their means."""
    direction = content.evidence.better(workload, content.evidence.metric)
    places = []
    for setting in content.evidence.settings(workload):
        moments = moments_of(content.evidence.sample(workload, setting, content.evidence.metric))
        mean = math.inf if moments is None else moments[1] if direction == LOWER else -moments[1]
        places.append((setting != leader, mean, " ".join(setting.values())))
    means = {name: place for *place, name in places}
    shown = [means[name] for name in names if name in means]
    near = tolerance(content.evidence.metric)
    return all(
        first[0] < second[0] or first[1] <= second[1] + near * abs(first[1]) for first, second in pairwise(shown)
    )


def _times(content: Content, workload: str, setting: Labels, leader: Labels) -> That:
    metric = content.evidence.metric
    sample, best = (content.evidence.sample(workload, each, metric) for each in (setting, leader))
    moments, best_moments = moments_of(sample), moments_of(best)
    if not (moments and best_moments) or min(moments[1], best_moments[1]) <= 0 or sample.num_short or best.num_short:
        return That(lambda text: text == "", "nothing")
    ratio = moments[1] / best_moments[1]
    off = 0.51 * 10 ** (math.floor(math.log10(ratio)) - 2) + 2 * tolerance(metric) * ratio

    def holds(text: str) -> bool:
        value = float(text.replace(",", ""))
        return abs(value - ratio) <= off and text == significant(value)

    return That(holds, significant(ratio))


def _place(content: Content, workload: str, setting: Labels, record: Mapping[str, Any]) -> str:
    leader, candidates = record["leader"], record["candidates"]
    if setting in candidates and content.evidence.searched(workload, setting):
        return "see its search"
    if setting == leader:
        return "best so far" if len(candidates) > 1 else "best"
    return "may be as good" if setting in candidates else ""


def _limit(content: Content, workload: str, setting: Labels) -> str:
    means = {}
    for words, cause in CAUSES.items():
        if moments := moments_of(content.evidence.sample(workload, setting, f"{PREFIX}{cause}_fraction")):
            means[words] = moments[1]
    return largest(means) if means else ""


def possible(content: Content, workload: str) -> Rows:
    """A row per setting and limit, from the runs' result.json."""
    rows: Rows = {}
    for setting in content.evidence.settings(workload):
        limits: dict[str, list[Mapping[str, Any]]] = {}
        for run in content.evidence.ended(workload, setting).values():
            for row in _rows(run):
                limits.setdefault(row["cause"], []).append(row)
        for cause, of_runs in limits.items():
            words = next((words for words, key in CAUSES.items() if key == cause), cause)
            share, now, least = (fmean(row[key] for row in of_runs) for key in ("share", "now", "at_least_sec"))
            known = [row for row in of_runs if "reached" in row]
            rows[" ".join([*setting.values(), words])] = {
                **setting, "limit": words, "share of the time (%)": f"{100 * share:.0f}", "now (s)": significant(now),
                "without it at least (s)": significant(least),
                "ceiling": _ceiling(known[0]) if known else "",
                "reached (%)": f"{100 * fmean(row['reached'] for row in known):.0f}" if known else "",
            }  # fmt: skip
    return rows


def _rows(run: JournalFigures) -> list[dict[str, Any]]:
    limits = run.result.get("bottleneck") or {}
    noted = any(row["kind"] == "metrics" and any(key.startswith(PREFIX) for key in row["values"]) for row in run.rows)
    if not noted or "total_sec" not in limits:
        return []
    return [{**row, "now": limits["total_sec"]} for row in limits.get("possible", ())]


def _ceiling(row: Mapping[str, Any]) -> str:
    if row["unit"].startswith("%"):
        return str(row["unit"]).removeprefix("% of ")
    size, letter = next(((size, letter) for size, letter in PREFIXES if row["ceiling"] >= size), PREFIXES[-1])
    return f"{significant(row['ceiling'] / size)} {letter}{row['unit']}"
