"""The templates of a report's sentences, by kind.

A template holds no digits, so every number of a sentence is a value of its record, and can be recomputed without
reading English.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tracking.base.number_text import filled

MOST_NAMED = 3  # settings that a sentence names
LEAD = "more than the noise (p = {p_corrected:.2g}, corrected for the choice among {num_stacks} stacks{paired})"
NO_CONCLUSION = "{workload}{among}: no conclusion is possible about the best stack. The best mean is of {better}"
# The sentences that begin a report. {lead} names the workload if a report has several.
ANSWER = {
    "no run reached": "{lead}o run reached {target}: {counts}.",
    "no run counts": "{lead}o run that counts has {metric}.",
    "no direction": "{lead}o setting is the best by {metric}: {why}.",
    "only setting": "{lead}{setting}{figure}{amount}.{alone}",
    "best": "{lead}{setting} {are} {adjective}: {figure}{ahead}{amount}.",
    "best so far": "{lead}{setting} {are} {adjective} so far: {figure}{ahead}{amount}.",
    "searched": "A search looked at runs of {named} before it chose whether to make more, so they are not tested here; "
    "its answer is in search.json of {sweeps}.",
    "one run each": "One run each is too few to tell{advice}.",
    "one run of some": "One run of {few} is too few to tell{advice}.",
    "cannot tell": "{apart}.",
    "cannot tell yet": "{apart}; {further} would tell{one} in {percent} % of "
    "cases, if the lead is as large as it looks.",
    "best more often": "{setting} {reach} the target more often than {named}.",
    "misses": "Reached the target: {counts}.",
    "not counted": "{num} of {total} runs {are} not counted: {counts}.",
    "cheapest": "{setting} {have} the lowest mean cost to the target: {figure}.",
    "cheapest too": "That has the lowest mean cost to the target as well: {figure}.",
    "limit": "{setting} {are} limited by {cause} ({percent} % of the time); try first: {next}.",
}
TEMPLATES = ANSWER | {
    # Not called goodput: a sweep's goodput, on its last lines, covers all its jobs.
    "goodput": "{percent} % of the time from submission to the end was training (mean of the runs of {setting}).",
    "told apart": "{better} is better by a factor of {at_least}{factor:.3g}{paired}",
    "told apart without a factor": "{better} is better{paired}",
    "told apart by pairs": "{better} is better: its run is the sooner one in {won:.0%} of pairs",
    "not told apart": "cannot be told apart{paired}",
    "of a search": "not tested: runs of a search, whose answer is in its search.json",
    "one run": "cannot be told apart: one run of {few}; repeat it with other seeds",
    "factors": "; {better} has {rate:.3g} times the rate ({of_rate}) and takes {evaluations:.3g} times the evaluations "
    "({of_evaluations})",
    "runs that would tell": "; {runs} would tell",
    "more often": "; {often} reaches the target more often{by}: {reached} of {n} runs, and {other_reached} of {m} "
    "of {seldom}",
    "lead told apart": LEAD,
    "lead not told apart": "not " + LEAD,
    "lead of a search": "not tested: runs of a search",
    "lead of one run": "not more than the noise (one run a side)",
    "best stack": "{workload}{among}: the best stack is {better}, ahead of the next, {worse}, by a factor of "
    "{at_least}{factor:.3g}{interval}.",
    "best stack without a factor": "{workload}{among}: the best stack is {better}, ahead of the next, {worse}.",
    "no best stack": NO_CONCLUSION + ", which cannot be told apart from {named}. Its factor over {worse} is "
    "{at_least}{factor:.3g}{interval}, which may be noise.",
    "no best stack without a factor": NO_CONCLUSION + ", which cannot be told apart from {named}.",
    "stack of one run": NO_CONCLUSION + ", but there is one run of {few}: repeat it with other seeds.",
    "stack of a search": NO_CONCLUSION + ", but a search looked at runs of {named} as it went: its answer is in its "
    "search.json.",
    "best stack saves": " {better} saves {difference} USD a training to the target over {worse} ({better_usd} and not "
    "{worse_usd}).",
    "best stack costs": " {better} costs {difference} USD more a training to the target than {worse} ({better_usd} and "
    "not {worse_usd}).",
    "runs that would decide": " {runs} would tell {better} from {worse} in {power:.0%} of cases, if the two truly "
    "differ as much: {num_more} more in all.",
    "decides when": " How many runs would decide is not known: {why}.",
    "excluded": "Runs not in every mean: {num_excluded} of {num_runs}",
}


@dataclass(frozen=True)
class Sentence:
    """A sentence on a workload: `kind` is a key of TEMPLATES, and `values` fill the template."""

    kind: str
    task: str
    values: Mapping[str, Any]

    @property
    def text(self) -> str:
        return filled(TEMPLATES[self.kind], self.values)

    def plain(self) -> dict[str, Any]:
        """The sentence for JSON, with its template and its text."""
        about = {"kind": self.kind, "workload": self.task, "values": dict(self.values)}
        return about | {"template": TEMPLATES[self.kind], "text": self.text}
