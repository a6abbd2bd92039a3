"""The tables of a report as they are printed, cell by cell, against the journals."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from tracking.audit import limit_tables, missing, stacks
from tracking.audit.arithmetic import (
    Observations,
    PairTest,
    marked,
    moments_of,
    printed,
    ratio,
    says,
    says_mean,
    significant,
    tolerance,
)
from tracking.audit.evidence import OF_TARGETS, AuditResult, Evidence, Labels, computable, name_of, without_devices
from tracking.audit.run_figures import BEST, JournalFigures
from tracking.audit.sentences import of_pair
from tracking.audit.stack_choice import choice_of

# The param under each heading of a fact.
FACTS = {"global batch": "global_batch_size", "precision": "precision"}
# The same, where one's own row stands beside published ones.
OWN_FACTS = {"GPUs": "gpus", "batch": "global_batch_size", "precision": "precision"}
# The metric under each heading, and the factor to the unit in the heading.
QUANTITIES = {
    "minutes an epoch": ("time/epoch_sec", 1 / 60),
    "epochs": ("epochs/to_accuracy", 1.0),
    "time to accuracy (s)": ("time/to_accuracy_sec", 1.0),
    "time to accuracy (min)": ("time/to_accuracy_sec", 1 / 60),
    "without evaluation (s)": ("time/to_accuracy_train_sec", 1.0),
    "epochs trained": ("epochs/trained", 1.0),
    "evaluations": ("evaluations/to_accuracy", 1.0),
    "s an evaluation": ("time/evaluation_interval_sec", 1.0),
    "FLOPs utilisation (%)": ("throughput/model_flops_utilization", 100.0),
    "samples/s": ("throughput/samples_per_sec", 1.0),
    "samples/s a device": ("throughput/samples_per_sec_per_device", 1.0),
    "tokens/s": ("throughput/tokens_per_sec", 1.0),
    "target tokens/s": ("throughput/target_tokens_per_sec", 1.0),
    "cost to accuracy (USD)": ("cost/to_accuracy_usd", 1.0),
    "cost of a run (USD)": ("cost/usd", 1.0),
}
# The metric under each heading, and whether its ratio is divided by the growth of the devices.
RATIOS = {
    "speed-up": ("time/to_accuracy_sec", False),
    "efficiency": ("time/to_accuracy_sec", True),
    "speed-up of the rate": ("throughput/samples_per_sec", False),
    "efficiency of the rate": ("throughput/samples_per_sec", True),
}
MOST_PAIRS = 15  # shown of a workload; of more, those of the best setting
Row = Mapping[str, str]
# Which cell it is, what is printed in it, and whether the journals say so.
Claims = Iterator[tuple[str, str, bool]]


def compare(evidence: Evidence, tally: AuditResult) -> None:
    """Compare every cell that holds a figure; a table of a kind that is not known here is a difference."""
    for table in evidence.report["tables"]:
        if table["kind"] == "published":
            continue
        if table["kind"] not in CHECKS:
            tally.note(False, f"{table['title']}: a table of this kind cannot be recomputed")
            continue
        rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
        for what, claimed, good in CHECKS[table["kind"]](evidence, table, rows):
            tally.note(good, f"{table['title']}: {what}: printed as {claimed!r}, and the journals do not say so")


def settings(evidence: Evidence, table: Mapping[str, Any], rows: Sequence[Row]) -> Claims:
    workload, axes = table["about"], evidence.report["by"]
    shown = [{axis: row[axis] for axis in axes} for row in rows]
    there = evidence.settings(workload)
    yield "its rows", f"{len(rows)} settings", len(rows) == len(there) and all(setting in there for setting in shown)
    for setting, row in zip(shown, rows, strict=True):
        counting, every = list(evidence.counting(workload, setting).values()), evidence.all_of(workload, setting)
        ended = list(evidence.ended(workload, setting).values())
        for heading, text in row.items():
            if heading in axes:
                continue
            if heading == "n":
                good = text == f"{len(counting)} of {len(every)}"
            elif heading == "devices":
                good = set(filter(None, text.split(", "))) == {f"{run.devices():g}" for run in ended}
            elif heading in FACTS:
                good = _says_param(text, ended, FACTS[heading])
            elif heading == "reached":
                good = text == evidence.share(workload, setting)
            elif heading in RATIOS:
                good = _says_ratio(evidence, workload, setting, shown, RATIOS[heading], text)
            else:
                key, scale = QUANTITIES.get(heading) or (BEST + heading.removeprefix("best "), 1.0)
                good = says_mean(evidence.shown(workload, setting, key), scale, text, tolerance(key))
            yield f"{name_of(setting)}, {heading}", text, good


def _says_param(text: str, runs: Sequence[JournalFigures], key: str) -> bool:
    return set(filter(None, text.split(", "))) == {str(run.params[key]) for run in runs if key in run.params}


def _says_ratio(
    evidence: Evidence, workload: str, setting: Labels, shown: Sequence[Labels], which: tuple[str, bool], text: str
) -> bool:
    key, of_growth = which
    base = evidence.base(workload, setting, shown)
    if base is None:
        return not text
    own, other = (evidence.devices(workload, side) for side in (setting, base))
    assert own
    assert other
    samples = [evidence.sample(workload, side, key) for side in (setting, base)]
    quotient = ratio(key, samples[0], samples[1], own / other if of_growth else 1.0, setting == base)
    if quotient is None:
        return not text
    expected, sign = quotient
    signed = text.startswith(f"{sign} ") if sign else not text.startswith(("≥", "≤"))
    return signed and says(text, expected[0], expected[1:], tolerance(key))


def pairs(evidence: Evidence, table: Mapping[str, Any], rows: Sequence[Row]) -> Claims:
    """All pairs; or, of many, each with the best mean."""
    metric = evidence.report["metric"]
    settings = evidence.settings(table["about"])
    expected = evidence.pairs(table["about"])
    names = {name for pair in expected for name in pair}
    by_name = {name_of(setting): setting for setting in settings}
    yield (
        "its rows",
        f"{len(rows)} pairs",
        len(rows) == (len(expected) if len(expected) <= MOST_PAIRS else len(names) - 1),
    )
    for row in rows:
        better, worse = row["better mean"], row["worse mean"]
        pair = expected.get(frozenset((better, worse)))
        if pair is None or not computable(metric):
            yield f"{better} against {worse}", metric, False
            continue
        near = max(tolerance(metric), 1e-6)
        for heading, number, digits in (
            ("factor", pair.factor, 3), ("p", pair.p, 2), ("p, corrected", pair.corrected, 2)
        ):  # fmt: skip
            good = significant(row[heading], number, digits, near)
            yield f"{better} against {worse}, {heading}", row[heading], good
        if metric in OF_TARGETS:
            shares = [evidence.share(table["about"], by_name[name]) for name in (better, worse)]
            yield f"{better} against {worse}, reached", row["reached"], row["reached"] == " against ".join(shares)
        said = "".join(of_pair(evidence, table["about"], better, worse))
        yield f"{better} against {worse}", row["so"], row["so"] == said != ""


def best_and_worst(evidence: Evidence, table: Mapping[str, Any], rows: Sequence[Row]) -> Claims:
    workload, key = table["about"], evidence.report["metric"]
    by_name = {name_of(setting): setting for setting in evidence.settings(workload)}
    best, worst, gap = rows
    for row in (best, worst):
        name = row["stack"]
        sample = evidence.sample(workload, by_name[name], key) if name in by_name else Observations(())
        numbers = moments_of(sample)
        good = row["n"] == str(len(sample)) and (marked(row[key], sample) if numbers else not row[key])
        good = good and row.get("reached", "") == (evidence.share(workload, by_name[name]) if key in OF_TARGETS else "")
        yield f"{row['']} stack", row[key], good and printed(row[key], (numbers or ())[1:], tolerance(key))
    choice = choice_of(evidence, workload, best["stack"])
    pair = choice.pairs.get(frozenset((best["stack"], worst["stack"])))
    if pair is None:
        yield "gap", f"{best['stack']} and {worst['stack']}", False
        return
    near = max(tolerance(key), 1e-6)
    leads = choice.leads(pair, best["stack"], evidence.pairs(workload), near)
    yield "best stack", best["stack"], _is_better(pair, best["stack"]) and leads
    # The tolerance is relative to the factor, and the gap is only what that exceeds one by.
    off = near * pair.factor / (pair.factor - 1) if pair.factor > 1 else near
    yield "gap", gap["stack"], printed(gap["stack"], [100 * (pair.factor - 1)], off)
    texts = [
        record["text"]
        for record in evidence.report["sentences"]
        if record["kind"].startswith("gap")
        and record["workload"] == workload
        and {record["values"]["better"], record["values"]["worse"]} == {best["stack"], worst["stack"]}
    ]
    yield "gap", gap[key], [gap[key]] == texts
    said = stacks.note_of(evidence, workload, {best["stack"], worst["stack"]})
    yield "what it says of them", table["note"], table["note"] == said


def _is_better(pair: PairTest, name: str) -> bool:
    """Whether a setting is the better one of a pair, or as good as the other."""
    return pair.better == name or pair.factor - 1 <= 1e-12


def speed_ups(evidence: Evidence, table: Mapping[str, Any], rows: Sequence[Row]) -> Claims:
    to_accuracy = evidence.report["metric"].startswith("time/to_accuracy")
    which = ("time/to_accuracy_sec" if to_accuracy else "throughput/samples_per_sec", False)
    for row in rows:
        workload, name = row["workload"], row["setting"]
        there = [setting for setting in evidence.settings(workload) if name_of(without_devices(setting)) == name]
        for heading, text in row.items():
            if not heading.endswith(" devices"):
                continue
            count = float(heading.removesuffix(" devices"))
            of = [setting for setting in there if evidence.devices(workload, setting) == count]
            good = (
                any(_says_ratio(evidence, workload, setting, there, which, text) for setting in of) if of else not text
            )
            yield f"{workload} {name}, {heading}", text, good


def excluded(evidence: Evidence, table: Mapping[str, Any], rows: Sequence[Row]) -> Claims:
    listed = {row["id"] for row in rows}
    texts = [record["text"] for record in evidence.report["sentences"] if record["kind"] == "excluded"]
    yield "how many", table["title"], [table["title"]] == texts
    for run_id, run in evidence.runs.items():
        yield (
            run.folder.name,
            "in no mean" if run_id in listed else "in a mean",
            evidence.counts(run) != (run_id in listed),
        )


def own_beside_published(evidence: Evidence, table: Mapping[str, Any], rows: Sequence[Row]) -> Claims:
    """The rows of one's own; the published ones come from no journal."""
    workload = table["about"]
    for setting in evidence.settings(workload):
        counting = list(evidence.counting(workload, setting).values())
        name = f"yours: {name_of(setting)} (n={len(counting)})"
        own = [row for row in rows if row[""] == name]
        yield "its rows", name, len(own) == bool(counting)
        for heading, text in own[0].items() if own else ():
            if heading in QUANTITIES:
                key, scale = QUANTITIES[heading]
                good = says_mean(evidence.sample(workload, setting, key), scale, text, tolerance(key))
                yield f"{name}, {heading}", text, good
            elif heading == "reached":
                yield f"{name}, {heading}", text, text == evidence.share(workload, setting)
            elif heading in OWN_FACTS:
                yield f"{name}, {heading}", text, _says_param(text, counting, OWN_FACTS[heading])


CHECKS: dict[str, Callable[[Evidence, Mapping[str, Any], Sequence[Row]], Claims]] = {
    "settings": settings,
    "limits": limit_tables.limited,
    "utilization": limit_tables.busy,
    "pairs": pairs,
    "stacks": best_and_worst,
    "missing": missing.rows_of,
    "speed-ups": speed_ups,
    "excluded": excluded,
    "beside": own_beside_published,
}
