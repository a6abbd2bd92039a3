"""Find the setting that reaches the target soonest with few runs: what to run next, when to stop it, and the answer.

A search first explores, which makes no claims. Then it decides among a few finalists with new seeds. It is a pure
function of the rules and of the trials in order of their start, so an interrupted search continues from its trials.
benchmarks/reports/search_rates.py measures how often its answers are wrong.
"""

from tracking.analysis.search.answers import Answer, Figure, Ratio, answer, answers
from tracking.analysis.search.explored import cap_of
from tracking.analysis.search.objectives import by_second, front
from tracking.analysis.search.propose import highest_seed, propose, runs_to_first_look
from tracking.analysis.search.trials import DECIDE, EXPLORE, Axis, Key, Rules, Scalar, SearchTrial, Second, key_of

__all__ = [
    "DECIDE", "EXPLORE", "Answer", "Axis", "Figure", "Key", "Ratio", "Rules", "Scalar", "SearchTrial", "Second",
    "answer", "answers", "by_second", "cap_of", "front", "highest_seed", "key_of", "propose", "runs_to_first_look",
]  # fmt: skip
