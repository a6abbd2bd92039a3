"""The table of a run on the terminal: what it measured, or why it failed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from rich.table import Table

from conf.target import text
from tracking.base import quantities
from tracking.base.number_text import epoch_text, significant
from tracking.base.safe_text import path_to_type
from tracking.base.time_parts import COMPILE_PARTS, INIT_PARTS
from tracking.measure import kernels
from tracking.measure.bottleneck import goodput, possible
from tracking.record import Result, checkpoints, evaluations, files, run_folder

LAST_LINES = 10  # lines of a failed program's traceback
LONG_START_SEC = 30.0  # a start of this length is explained


def run_table(name: str, folder: Path, result: Result) -> Table:
    """What a run measured, or why it failed."""
    table = Table(title=name, show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column()
    for row in run_rows(result):
        table.add_row(*row)
    # Our workers' errors have a message; a program's traceback helps its author.
    words = result.failure.traceback.rstrip().splitlines() if result.failure and is_program(folder) else []
    if words:
        table.add_row("its last words", "\n".join(words[-LAST_LINES:]))
    if result.failure is not None and (folder / run_folder.WORKER_LOG).exists():
        table.add_row("its output", path_to_type(folder / run_folder.WORKER_LOG))
    with suppress(OSError, ValueError, LookupError, TypeError, ArithmeticError):  # absent or damaged
        table.add_row("kernels", kernels.read(files.read_text(folder / kernels.PROFILE)).words())
    for label, file in (("weights", run_folder.MODEL), ("", kernels.KERNELS)):
        if (folder / file).exists():
            table.add_row(label, path_to_type(folder / file))
    table.add_row("run folder", path_to_type(folder))
    return table


def is_program(folder: Path) -> bool:
    with suppress(OSError, ValueError):
        return run_folder.read_config(folder).is_program()
    return False


def run_rows(result: Result) -> list[tuple[str, str]]:
    if result.failure is not None:
        return [("status", f"{result.status}: {result.failure.kind}"), ("cause", result.failure.message)]
    metrics = result.metrics
    rows = [("target", ", ".join(f"{name} {text(value)}" for name, value in result.targets.items()) or "none")]
    rows.append(("best", best(result)))
    rows += time_rows(result)
    if quantities.THROUGHPUT_SAMPLES_PER_SEC in metrics:
        rate, number = metrics[quantities.THROUGHPUT_SAMPLES_PER_SEC], result.windows["num_windows"]
        rows.append(("throughput", f"{rate:,.0f} {result.unit}/s in the steady state (windows: {number})"))
    if quantities.TIME_EVAL_SEC in metrics and quantities.TIME_TRAIN_SEC in metrics:
        evaluating, training = metrics[quantities.TIME_EVAL_SEC], metrics[quantities.TIME_TRAIN_SEC]
        share = evaluating / (evaluating + training)
        share = result.bottleneck.get("shares", {}).get("evaluation", share)  # The table gives one number for it.
        rows.append(("evaluation", f"{100 * share:.0f} % of the time"))
    rows += resumed_rows(result)
    if result.nodes:
        took = ", ".join(f"{row['node']} {significant(row['step_ms'])} ms" for row in result.nodes)
        rows.append(("a step, by node", took))
    rows += limit_rows(result)
    if result.neighbours:
        rows.append(("neighbours", result.neighbours))
    rows.append(
        ("world size", f"{metrics[quantities.WORLD_SIZE]:g}" if quantities.WORLD_SIZE in metrics else "not known")
    )
    before = shown(metrics, quantities.TIME_INIT_SEC)
    rows.append(("before the clock", f"{before} from the command to the first data"))
    if words := start_words(metrics):
        rows.append(("", words))
    if quantities.COST_TO_ACCURACY_USD in metrics:
        rows.append(("cost to accuracy", shown(metrics, quantities.COST_TO_ACCURACY_USD)))
    tests = {key: value for key, value in metrics.items() if key.startswith(quantities.TEST)}
    if tests:
        rows.append(
            ("test set", ", ".join(f"{quantities.metric_name(key)} {significant(tests[key], 4)}" for key in tests))
        )
    return rows


def limit_rows(result: Result) -> list[tuple[str, str]]:
    """Rows on the run's bottleneck, its evidence, what to try first, and goodput."""
    limits, rows = result.bottleneck, []
    if limits:
        rows.append(("limited by", limits["words"]))
        advice = (("why", limits.get("why")), ("try first", limits.get("next")))
        rows += [(heading, words) for heading, words in advice if words]  # absent in runs of older versions
        slow = limits.get("slow_rank", {}).get("words", "")
        if slow and slow not in str(limits.get("why")):
            rows.append(("slow rank", slow))
        # On a shared machine such a bound means little.
        known = () if limits.get("shared_cores") else limits.get("possible", ())
        same_cause = [row for row in known if row["cause"] == limits.get("cause")]
        rows += [("limit lifted", possible.words(row, limits["total_sec"])) for row in same_cause]
        rows += [("not measured", words) for words in limits.get("missing", ())]
    if words := goodput.words(result.goodput.get("seconds", {})):
        rows.append(("goodput", words))
    return rows


def start_words(metrics: Mapping[str, float]) -> str:
    """Parts of a start of LONG_START_SEC or more, longest first; empty for a shorter start or unknown parts."""
    if metrics.get(quantities.TIME_INIT_SEC, 0.0) < LONG_START_SEC:
        return ""
    keys = {quantities.init_part(part): words for part, words in INIT_PARTS.items()}
    keys |= {quantities.compile_part(part): words for part, words in COMPILE_PARTS.items()}
    if quantities.compile_part("warmup") not in metrics and keys.keys() & metrics.keys():
        keys[quantities.TIME_COMPILE_SEC] = "compiling and warming up"
    parts = sorted(((metrics[key], words) for key, words in keys.items() if metrics.get(key, 0.0) >= 1), reverse=True)
    return ", ".join(f"{words} {sec:.1f} s" for sec, words in parts)


def time_rows(result: Result) -> list[tuple[str, str]]:
    """Rows of the times to accuracy, or the reason why they are missing."""
    metrics, key = result.metrics, quantities.TIME_TO_ACCURACY_SEC
    if key in metrics:
        rows = [("time to accuracy", f"{shown(metrics, key)} (MLPerf's clock)")]
        if quantities.TIME_TO_ACCURACY_TRAIN_SEC in metrics:
            trained = shown(metrics, quantities.TIME_TO_ACCURACY_TRAIN_SEC)
            rows.append(("", f"{trained} (DAWNBench's: without evaluation)"))
        if quantities.EPOCHS_TO_ACCURACY in metrics:
            rows.append(("epochs", epoch_text(metrics[quantities.EPOCHS_TO_ACCURACY])))
        if number := metrics.get(quantities.EVALUATIONS_TO_ACCURACY):
            between = quantities.TIME_EVALUATION_INTERVAL_SEC
            known = number > 1 and between in metrics
            last = f", {shown(metrics, between)} between the last two" if known else ""
            rows.append(("evaluations", f"{number:g}{last}"))
        return rows
    if quantities.TIME_RESUMED_TO_ACCURACY_TRAIN_SEC in metrics:
        return [("time to accuracy", "none: the run was interrupted")]
    if absent := [name for name in result.targets if evaluations.BEST + name not in metrics]:
        how = f"metrics() has to return it by this name; a program's is declared in program.metrics as eval/{absent[0]}"
        return [("time to accuracy", f"none: no evaluation had the target's {', '.join(absent)}; {how}")]
    if result.targets:
        return [("time to accuracy", "target not reached")]
    return [] if result.evaluations else [("time to accuracy", "none: nothing was evaluated; only speed was measured")]


def resumed_rows(result: Result) -> list[tuple[str, str]]:
    """Rows on a run's interruptions; empty for a run that was not resumed."""
    if not result.resumes:
        return []
    metrics = result.metrics
    places = ((checkpoints.after(resume["epoch_num"], resume.get("step", 0)), resume) for resume in result.resumes)
    after = "; ".join(f"{place} ({resume['after']})" for place, resume in places)
    rows = [("resumed after", after)]
    if quantities.TIME_RESUMED_TO_ACCURACY_TRAIN_SEC in metrics:
        in_all = shown(metrics, quantities.TIME_RESUMED_TO_ACCURACY_SEC)
        trained = shown(metrics, quantities.TIME_RESUMED_TO_ACCURACY_TRAIN_SEC)
        rows.append(("to the target", f"{in_all} with all interruptions, {trained} of training that counted"))
    rows.append(("interruptions", f"{shown(metrics, quantities.RESUME_LOST_SEC)} of training were lost"))
    rows.append(("", f"{shown(metrics, quantities.RESUME_DOWN_SEC)} without training"))
    if result.changed:
        rows.append(("changed between", ", ".join(result.changed)))
    return rows


def best(result: Result) -> str:
    """The best value of each metric that has one (see tracking.record.evaluations), with the last if it differs."""
    values = {key: value for key, value in result.metrics.items() if key.startswith(evaluations.BEST)}
    named = ", ".join(best_and_last(result.metrics, quantities.metric_name(key)) for key in values)
    if named or not result.evaluations:
        return named or "no evaluation"
    return "not known: declare which way a metric is better"


def best_and_last(metrics: Mapping[str, float], name: str) -> str:
    """`loss 0.09 (last 0.11)`; without the last value if it is the best one."""
    value, last = (significant(metrics.get(key + name, math.nan), 4) for key in (quantities.BEST, quantities.EVAL))
    return f"{name} {value}" + (f" (last {last})" if last not in (value, "nan") else "")


def shown(metrics: Mapping[str, float], key: str) -> str:
    """A metric with its unit."""
    return quantities.text(key, metrics[key]) if key in metrics else "-"
