"""The stacks among which a report calls one the best, and what that choice costs in certainty, from the journals."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from tracking.audit.arithmetic import Observations, PairTest, ranges, step
from tracking.audit.evidence import Evidence, Labels, name_of

SHORT = {"topology": "env.topology", "hardware": "env.gpu", "driver": "env.driver", "cuda": "env.cuda"}
SOFTWARE = {
    "stack", "stack.name", "env.stack_id", "env.image", "env.driver", "env.cuda", "env.cudnn", "env.nccl", "env.torch",
    "env.python",
}  # fmt: skip
EQUAL = 1e-12  # means are, whose factor exceeds one by less


def is_stack(axis: str) -> bool:
    return SHORT.get(axis, axis) in SOFTWARE


def without_stack(setting: Labels) -> tuple[tuple[str, str], ...]:
    """What a setting is beside its stack: only where that is the same are stacks compared."""
    return tuple((axis, value) for axis, value in setting.items() if not is_stack(axis))


@dataclass(frozen=True)
class StackChoice:
    """The pairs of stacks whose settings are otherwise alike, by the names of the two; p-values are as they come.

    Where runs stopped short of the target, and of whole numbers (`step` is 1), each of the tests has its share of 5 %;
    else there is one range of means.
    """

    pairs: Mapping[frozenset[str], PairTest]
    samples: Mapping[str, Observations]
    step: float

    @property
    def num_tests(self) -> int:
        return sum(pair.p is not None for pair in self.pairs.values())

    @property
    def tested(self) -> set[str]:
        return {name for names, pair in self.pairs.items() if pair.p is not None for name in names}

    def level(self, freedom: int) -> float:
        """Of each side of a pair's test."""
        if self._shared():
            return 0.05 / (2 * self.num_tests)
        return ranges.level(freedom, len(self.tested))

    def corrected(self, names: frozenset[str]) -> PairTest:
        """The pair of these names, its p-value corrected for its having been chosen."""
        pair = self.pairs[names]
        if (p := pair.p) is None:
            return replace(pair, corrected=None)
        if self._shared():
            return replace(pair, corrected=min(1.0, p * self.num_tests))
        return replace(pair, corrected=ranges.corrected(p, self.freedom(names), len(self.tested)))

    def leads(self, pair: PairTest, name: str, of_all: Mapping[frozenset[str], PairTest], near: float) -> bool:
        """Whether no other stack stands before it among all settings, and this pair is the widest that it leads."""
        stacks = {of for names in self.pairs for of in names}
        ahead = [other.factor for names, other in self.pairs.items() if name in names and other.better == name]
        widest = max(ahead or [other.factor for other in self.pairs.values()])
        return stands_first(name, stacks, of_all) and pair.factor >= widest * (1 - near)

    def freedom(self, names: frozenset[str]) -> int:
        return min(len(self.samples[name]) for name in names) - 1

    def _shared(self) -> bool:
        return self.step > 0 or any(self.samples[name].num_short for name in self.tested)


def choice_of(evidence: Evidence, workload: str, name: str) -> StackChoice:
    """Among the settings that are otherwise as the one of this name; no pairs where a mean has no factor to another."""
    alike = {name_of(setting): without_stack(setting) for setting in evidence.settings(workload)}
    same = {other for other, family in alike.items() if family == alike.get(name)}
    pairs = {both: pair for both, pair in evidence.pairs(workload).items() if both <= same}
    if any(math.isinf(pair.factor) for pair in pairs.values()):
        pairs = {}
    settings = [setting for setting in evidence.settings(workload) if name_of(setting) in same]
    key = evidence.report["metric"]
    samples = {name_of(setting): evidence.sample(workload, setting, key) for setting in settings}
    return StackChoice(pairs, samples, step(key))


def stands_first(name: str, names: Iterable[str], pairs: Mapping[frozenset[str], PairTest]) -> bool:
    """Whether no other of these settings is surely the better one in more of the pairs, or in as many and called so in
    more; of equals either may be called so."""

    def sure(of: str) -> int:
        return sum(pair.better == of and pair.factor - 1 > EQUAL for both, pair in pairs.items() if of in both)

    def called(of: str, nearly: float = -1.0) -> int:
        return sum(pair.better == of or pair.factor - 1 <= nearly for both, pair in pairs.items() if of in both)

    own = sure(name), called(name, EQUAL)
    return all((sure(other), called(other)) <= own for other in names if other != name)
