"""Compare a report's tables, cell by cell, with its figures (checked separately) and the journals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tracking.analysis.audit import factors, missing, published_comparisons, questions, ranking_table, setting_tables
from tracking.analysis.audit.evidence import (
    BESIDE,
    OF_TARGETS,
    OWN_FACTS,
    UNCHECKED,
    AuditResult,
    Content,
    Evidence,
    Rows,
    That,
    facts_of,
    mean_of,
    name_of,
    trees,
)
from tracking.base.number_text import significant

MOST_PAIRS = 15  # in the table; if there are more, only those of one setting
OWN = "yours"  # prefix of the rows of measured settings beside published ones
WITH_PUBLISHED = ("beside", "batch-pairs")  # the kinds of tables that also have published rows
PUBLISHED = "published"  # the kind of a table without runs
OPTIONAL = {PUBLISHED, *WITH_PUBLISHED, "nodes"}
OF_ALL = {
    "excluded",
    "speed-ups",
    "within",
    "over",
    "shapes",
    "systems",
    "gains",
    "gaps",
    "jobs",
    "traffic",
}  # one table for all workloads
KEYS: dict[str, Sequence[str]] = {
    "pairs": ("better mean", "worse mean"),
    "speed-ups": ("workload", "setting"),
    "systems": ("system",),
    "gains": ("workload", "setting"),
    "gaps": ("workload", "on"),
    "jobs": ("workload", "setting", "devices"),
    "traffic": ("workload", "setting", "nodes"),
    "within": ("workload", "within"),
    "over": ("workload", "setting"),
    "shapes": ("workload", "setting", "devices"),
    "excluded": ("id",),
    "beside": ("",),
    "nodes": ("", "nodes"),
    "batch-pairs": ("", "batch", "larger batch"),
    "stacks": ("",),
}


@dataclass(frozen=True)
class Claimed:
    """A table of the report."""

    columns: Sequence[str]
    rows: Rows


def compare(report: Mapping[str, Any], evidence: Evidence, tally: AuditResult) -> None:
    """Note each table, row and cell that is missing, surplus or different."""
    content = Content(report, evidence)
    claimed = trees.by_identity(tally, "tables", report["tables"], _identity)
    expected: dict[str, Mapping[str, Any]] = {
        _identity({"kind": kind, "about": workload}): {"kind": kind, "about": workload}
        for kind in MADE.keys() - OPTIONAL - {"stacks"}
        for workload in ([""] if kind in OF_ALL else evidence.workloads())
    }
    about_stacks = [
        {"kind": "stacks", "title": title, "about": record.get("workload")}
        for title, record in of_stacks(report).items()
    ]
    expected |= {_identity(table): table for table in about_stacks}
    for name, table in (expected | claimed).items():
        kind = table.get("kind")
        about = expected.get(name, table).get("about")
        tally.note(table.get("about") == about, f"tables: {name}: is about {table.get('about')!r}, not {about!r}")
        if kind == PUBLISHED:
            continue
        if kind not in MADE:
            tally.note(False, f"tables: {name}: a table of this kind cannot be recomputed")
            continue
        keys = (*evidence.axes, "limit") if kind == "possible" else KEYS.get(kind, evidence.axes)
        shown = _claimed(claimed.get(name), keys, tally, name)
        try:
            rows = MADE[kind](content, table["title" if kind == "stacks" else "about"], shown)
        except (LookupError, TypeError, AttributeError, ValueError):  # The report was altered, as noted before.
            tally.note(False, f"tables: {name}: does not follow from the report's figures")
            continue
        there = shown.rows if shown else {}
        if rows or there or kind == "excluded":
            tally.note(shown is not None, f"tables: {name}: it is missing")
            trees.compare(tally, f"tables: {name}", there, rows)


def _identity(table: Mapping[str, Any]) -> str:
    kind = table.get("kind")
    return f"{kind}, {table.get('title') if kind in (PUBLISHED, 'stacks') else table.get('about')}"


def _claimed(table: Mapping[str, Any] | None, keys: Sequence[str], tally: AuditResult, name: str) -> Claimed | None:
    """The claimed rows of a table, by identity."""
    if table is None:
        return None
    columns = table.get("columns", [])
    cells = [dict(zip(columns, row, strict=False)) for row in table.get("rows", [])]
    even = all(len(row) == len(columns) for row in table.get("rows", []))
    tally.note(even and len({*columns}) == len(columns), f"tables: {name}: its rows do not fit its columns")
    if table["kind"] in WITH_PUBLISHED:  # The published rows come from no journal.
        cells = [row for row in cells if str(row.get("")).startswith(OWN)]
    rows = trees.by_identity(tally, f"tables: {name}", cells, lambda row: " ".join(str(row.get(key)) for key in keys))
    return Claimed(columns, rows)


def pairs(content: Content, workload: str, shown: Claimed | None) -> Rows:
    """All pairs; if there are more than MOST_PAIRS, those of one setting."""
    rows: dict[str, Any] = {}
    for pair in content.report["comparisons"]:
        if pair["workload"] != workload:
            continue
        names = [name_of(pair[role]) for role in ("better", "worse")]
        factor = significant(pair["factor"]) if pair["factor"] is not None else ""
        factor = f"{pair['factor_bound']} {factor}".lstrip()
        p, corrected = ("" if pair[key] is None else f"{pair[key]:.2g}" for key in ("p", "p_corrected"))
        row = {"better mean": names[0], "worse mean": names[1], "factor": factor, "p": p, "p, corrected": corrected}
        if content.evidence.metric in OF_TARGETS:
            shares = [content.evidence.ends(workload, pair[role]) for role in ("better", "worse")]
            row["reached"] = " against ".join(shares)
        rows[" ".join(names)] = {**row, "so": _so(pair, factors.said_in(pair["parts"], names[0]))}
    if len(rows) <= MOST_PAIRS or shown is None or not shown.rows:
        return rows
    sides = [{row["better mean"], row["worse mean"]} for row in shown.rows.values()]
    leaders = set.intersection(*sides)
    return {key: row for key, row in rows.items() if leaders & {row["better mean"], row["worse mean"]}}


def _so(pair: Mapping[str, Any], parts: That) -> That:
    """Accepts the pair's verdict, followed by words with these parts."""
    return That(lambda text: text.startswith(pair["so"]) and parts.holds(text), str(parts))


def excluded(content: Content, _: str, shown: Claimed | None) -> Rows:
    return {
        str(run["id"]): {key: run[key] for key in ("workload", "setting", "id", "why")} | {"run": run["name"]}
        for run in content.report["excluded"]
    }


def beside(content: Content, workload: str, shown: Claimed | None) -> Rows:
    """The rows of measured settings beside published ones."""
    evidence, rows = content.evidence, {}
    for setting in evidence.settings(workload):
        counting = list(evidence.counting(workload, setting).values())
        if not counting:
            continue
        name = f"{OWN}: {name_of(setting)} (n={len(counting)})"
        rows[name] = {"": name, "hardware": UNCHECKED, "reached": evidence.share(workload, setting)}
        for heading in shown.columns if shown else ():
            if heading in BESIDE:
                key, scale = BESIDE[heading]
                sample = evidence.sample(workload, setting, key)
                rows[name][heading] = mean_of(sample, scale, key)
            elif heading in OWN_FACTS:
                rows[name][heading] = facts_of(counting, OWN_FACTS[heading], "?")
    return rows


def of_stacks(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The record that each table of stacks shows, by the table's title."""
    records = (record for record in report["best"] if isinstance(record, Mapping))
    of_stacks = [record for record in records if isinstance(record.get("among"), Mapping)]
    return {f"{', '.join([str(record.get('workload')), *_others(record)])}: best stack": record for record in of_stacks}


def _others(record: Mapping[str, Any]) -> list[str]:
    return [f"{axis}={value}" for axis, value in record["among"].items()]


def stacks(content: Content, title: str) -> Rows:
    evidence, key, record = content.evidence, content.evidence.metric, of_stacks(content.report)[title]
    reached = key in OF_TARGETS
    shown: Rows = {}
    for role, setting in (("best mean", record["leader"]), ("next", record["next"])):
        sample = evidence.sample(record["workload"], setting, key)
        shown[role] = {"": role, "stack": name_of(setting), "n": str(len(sample)), key: mean_of(sample, 1.0, key)}
        shown[role] |= {"reached": evidence.ends(record["workload"], setting)} if reached else {}
    lead = "" if record["factor"] is None else f"{100 * (record['factor'] - 1):.1f} %"
    lead = f"{record['factor_bound']} {lead}".lstrip()
    shown["lead"] = {"": "lead", "stack": lead, "n": "", key: UNCHECKED, **({"reached": ""} if reached else {})}
    return shown


MADE: dict[str, Callable[[Content, str, Claimed | None], Rows]] = {
    "settings": lambda content, workload, _: setting_tables.settings(content, workload),
    "ranking": lambda content, workload, shown: ranking_table.ranked(content, workload, shown.rows if shown else {}),
    "possible": lambda content, workload, _: ranking_table.possible(content, workload),
    "metrics": lambda content, workload, _: setting_tables.metrics(content, workload),
    "limits": lambda content, workload, _: setting_tables.limits(content, workload),
    "utilization": lambda content, workload, _: setting_tables.utilization(content, workload),
    "speed-ups": lambda content, _, __: setting_tables.speed_ups(content),
    "within": lambda content, _, __: questions.within(content),
    "over": lambda content, _, __: questions.over(content),
    "shapes": lambda content, _, __: questions.shapes(content),
    "systems": lambda content, _, __: questions.systems(content),
    "gains": lambda content, _, __: questions.gains(content),
    "gaps": lambda content, _, __: questions.gaps(content),
    "jobs": lambda content, _, __: questions.jobs(content),
    "traffic": lambda content, _, __: questions.traffic(content),
    "missing": lambda content, workload, _: missing.rows(content.evidence, workload),
    "pairs": pairs,
    "excluded": excluded,
    "beside": beside,
    "batch-pairs": lambda content, workload, _: published_comparisons.batch_pairs(content, workload),
    "nodes": lambda content, workload, shown: published_comparisons.nodes_table(
        content, workload, shown.columns if shown else ()
    ),
    "stacks": lambda content, title, _: stacks(content, title),
}
