"""Compare the answer of a search in a report with the folders of its runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tracking.analysis.audit.evidence import UNCHECKED, AuditResult, Evidence, Near, That, by_identity, compare
from tracking.analysis.audit.journals import JournalFigures
from tracking.analysis.audit.searches import deciding_figures
from tracking.analysis.audit.searches.standing import ERROR, LOOKS, Look, Standing, refused_of, standing_of
from tracking.analysis.audit.searches.trials import Trial, asked_of, named, spent, trials_of, unit_of

ENDS = ("reached", "stopped", "missed", "failed")  # of a run, best first
NOT_AGAIN = ("leading", "num_left_out", "grid_cost", "words")  # not recomputed: exploring's own choices, and sentences
Record = Mapping[str, Any]


def check(report: Record, evidence: Evidence, tally: AuditResult) -> None:
    """Note every number of the searches' answers that differs from what the runs say."""
    for claimed in report["searched"]:
        sweep = claimed.get("sweep")
        of_sweep = [run for run in evidence.folders.values() if run.tags.get("sweep") == sweep]
        runs = [run for run in of_sweep if asked_of(run).get("phase")]
        tally.note(bool(runs), f"searched: no run folder is of a search {sweep}")
        if "budget" not in claimed and not any(run.searched for run in runs):
            continue  # Searches of earlier versions gave fewer figures, and did not tag their runs.
        try:
            if runs:
                _check(f"searched: {sweep}", claimed, runs, tally)
        except (LookupError, TypeError, AttributeError, ValueError, AssertionError) as error:
            tally.note(False, f"searched: {sweep}: its answer cannot be made of its runs ({error!r})")


def _check(name: str, claimed: Record, runs: Sequence[JournalFigures], tally: AuditResult) -> None:
    objectives = [each.strip() for each in str(asked_of(runs[0])["objective"]).split(",")]
    parts = [claimed, claimed["second"]] if len(objectives) > 1 else [claimed]
    of_trials = [trials_of(runs, objective) for objective in objectives]
    going_on = any(trial.state == "lost" for trial in of_trials[0])
    if claimed["why"] == "running" and going_on:  # No answer yet; its runs went on after its last state.
        return
    of_trials = [[trial for trial in trials if trial.state != "lost"] for trials in of_trials]
    used = spent(runs, claimed["budget"]["unit"])
    for part, objective, trials in zip(parts, objectives, of_trials, strict=True):
        alone = {key: value for key, value in part.items() if key not in ("second", "front", "budget", "sweep")}
        due = _due(alone, objective, trials, asked_of(runs[0]), ERROR / len(objectives))
        due |= {f"{phase}_cost": Near(cost, 1e-6, 1.0) for phase, cost in used.items()}
        compare(tally, f"{name}: {objective}", _by_setting(alone, name, tally), due)
    tally.note((claimed["second"] is None) == (len(objectives) == 1), f"{name}: it has {len(objectives)} objectives")
    units = {unit_of(run) for run in runs}
    budget = {"unit": That(lambda said: said in units, str(units)), "asked": UNCHECKED}
    budget["spent"] = Near(sum(used.values()), 1e-6, 1.0)
    compare(tally, f"{name}: budget", claimed["budget"], budget)
    drawn = objectives if len(objectives) > 1 else ["time", "cost"]
    front = deciding_figures.front(trials_of(runs, objectives[0]), drawn)
    compare(tally, f"{name}: front", by_identity(tally, name, claimed["front"], _setting), front)
    tally.note(*deciding_figures.said(claimed, name))


def _setting(record: Record) -> str:
    return named(record["setting"])


def _by_setting(claimed: Record, name: str, tally: AuditResult) -> dict[str, Any]:
    """The claimed answer with its figures and groups by name."""
    figures = by_identity(tally, f"{name}: figures", claimed["figures"], _setting)
    groups = by_identity(tally, f"{name}: groups", claimed["groups"], lambda group: str(group["group"]))
    return {**claimed, "figures": figures, "groups": groups}


def _due(
    claimed: Record, objective: str, trials: Sequence[Trial], asked: Record, error: float
) -> dict[str, Any]:  # fmt: skip
    deciding = [trial for trial in trials if not trial.explores]
    runs: dict[str, dict[int, Trial]] = {_setting(figure): {} for figure in claimed["figures"]}
    settings = {_setting(figure): figure["setting"] for figure in claimed["figures"]}
    for trial in deciding:
        runs.setdefault(trial.name, {})[int(trial.asked["block"])] = trial
        settings.setdefault(trial.name, trial.asked["setting"])
    groups = deciding_figures.groups_of(settings, asked["axes"])
    rivals = [named(setting) for setting in claimed["compared"]]
    both = "," in str(asked["objective"])  # A finalist of one objective runs for both.
    finalists = [named(claimed["named"]), *rivals] if both and claimed["named"] else [*runs]
    standing, whole = standing_of(runs, finalists, groups, error), Look.of(runs, [*runs], LOOKS[-1])
    if claimed["named"] and (refused := refused_of(standing, runs, [named(claimed["named"]), *rivals])):
        finalists = [name for name in finalists if name not in refused]
        standing = standing_of(runs, finalists, groups, error)
    return {
        **{key: UNCHECKED for key in NOT_AGAIN if key in claimed},  # older answers lack some
        **_outcome(standing, settings, finalists, trials),
        **deciding_figures.due(standing, whole, finalists, settings, groups, error),
        **_counts(trials, settings),
        "objective": objective,
        "unit": {"time": "s", "cost": "USD", "energy": "J"}[objective],
        "best_value_if_all_missed": Near(_closest(trials), 1e-9),
    }


def _outcome(
    standing: Standing, settings: Mapping[str, Record], finalists: Sequence[str], trials: Sequence[Trial]
) -> dict[str, Any]:  # fmt: skip
    """The named setting, those that do not differ significantly from it, and why the search ended."""
    best = standing.named
    rivals = [name for name in finalists if best and name != best]
    why, states = "budget spent", {trial.state for trial in trials}
    if not any(trial.number is not None for trial in trials):
        whys = {"missed": "all missed", "stopped": "budget spent", "failed": "all failed"}
        why = next((of_all for state, of_all in whys.items() if state in states), "no runs")
    elif standing.ended and best and not rivals:
        why = "nothing compared"
    elif standing.ended and best:
        why = "decided" if len(standing.candidates) == 1 else "not told apart"
    elif standing.ended:
        why = "missed in deciding"
    return {
        "decided": standing.ended and bool(rivals),
        "why": why,
        "named": settings[best] if best else None,
        "alike": _these([name for name in standing.candidates if best and name != best]),
        "compared": _these(rivals),
        "looks": standing.num_looks,
        **({"leading": settings[best]} if best else {}),
    }


def _these(names: Sequence[str]) -> That:
    return That(lambda listed: sorted(map(named, listed)) == sorted(names), str(sorted(names)))


def _counts(trials: Sequence[Trial], decided: Mapping[str, Record]) -> dict[str, Any]:
    exploring = [trial for trial in trials if trial.explores]
    ends: dict[str, list[str]] = {}
    for trial in exploring:
        if trial.name not in decided and trial.state in ENDS:
            ends.setdefault(trial.name, []).append(trial.state)
    best = [min(states, key=ENDS.index) for states in ends.values()]
    return {
        "num_explored": len(exploring),
        "num_stopped": sum(trial.state == "stopped" for trial in exploring),
        "num_decided": len(trials) - len(exploring),
        "only_explored": {end: best.count(end) for end in ENDS if end in best},
    }


def _closest(trials: Sequence[Trial]) -> float | None:
    """The best value of the target's metric, if no run reached the target."""
    if any(trial.number is not None for trial in trials):
        return None
    runs = [trial.run for trial in trials]
    targets = [next(iter(run.targets), "") for run in runs]
    values = [value for run, target in zip(runs, targets, strict=True) if (value := run.best(target)) is not None]
    lower = any(run.directions.get(target) == "lower" for run, target in zip(runs, targets, strict=True))
    return (min(values) if lower else max(values)) if values else None
