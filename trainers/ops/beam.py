"""Beam search over sentences, with length and coverage penalties: Y. Wu et al. 2016, arXiv:1609.08144, section 7."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

STEPS_A_LOOK = 8  # The host asks a GPU so seldom whether all is found, since it has to wait for the answer.
LEAST_COVERAGE = 1e-20


@dataclass(frozen=True)
class Scoring:
    """A hypothesis of `n` tokens, its end included, has log P / ((5 + n) / 6) ** alpha + beta * coverage.

    The coverage is the sum over the source of log min(1, what was looked at it in all).
    """

    alpha: float
    beta: float = 0.0

    def length_penalty(self, num: float | torch.Tensor) -> float | torch.Tensor:
        return ((5 + num) / 6) ** self.alpha


class Stepper(Protocol):
    """A model that says a token at a time, of `beam` hypotheses of n sentences."""

    def step(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Of the last ids, int64 [n, beam]: log P of the next one, float32 [n, beam, tokens], and what of the source
        was looked at, [n, beam, S], each row 1 in all and 0 at padding; None where there is no coverage."""
        ...

    def reorder(self, rows: torch.Tensor) -> None:
        """Go on with the hypotheses `rows`, int64 [n * beam], of those of the last step."""
        ...


class _Beams:
    """The `beam` best hypotheses that go on, and those that have ended, of n sentences."""

    def __init__(self, num: int, beam: int, most: int, begin: int, pad: int, device: torch.device) -> None:
        self.scores = torch.full((num, beam), -torch.inf, device=device)
        self.scores[:, 0] = 0.0  # All begin alike: only one of them counts.
        self.last = torch.full((num, beam), begin, device=device)
        self.ids = torch.full((num, beam, most), pad, device=device)
        self.ended_scores = torch.full((num, beam), -torch.inf, device=device)
        self.ended = self.ids.clone()
        self.coverage: torch.Tensor | None = None
        self.first_row = torch.arange(num, device=device)[:, None] * beam


@torch.no_grad()
def beam_search(
    make: Callable[[int], Stepper], limits: torch.Tensor, beam: int, scoring: Scoring, begin: int, end: int, pad: int,
    source_mask: torch.Tensor | None = None, most_steps: int | None = None,
) -> torch.Tensor:  # fmt: skip
    """The best hypothesis of each of n sentences that a beam finds: ids int64 [n, L], padding behind the end.

    Each step goes on with the `beam` most probable hypotheses of a sentence that have not ended; of the 2 * beam most
    probable continuations, those that end are kept by their score. A sentence of which none has ended after `limits`
    [n] steps has the best that has not. `source_mask`, bool [n, S], is where the source is. `make(beam)` makes the
    stepper. The search ends where nothing that goes on can be better than what has ended.
    """
    most = int(limits.max()) if most_steps is None else min(most_steps, int(limits.max()))
    stepper = make(beam)
    beams = _Beams(len(limits), beam, most, begin, pad, limits.device)
    bound = scoring.length_penalty(limits.float())
    assert isinstance(bound, torch.Tensor)
    for num in range(1, most + 1):
        probabilities, looked = stepper.step(beams.last)
        rows = _advance(beams, num, probabilities, looked, scoring, end, source_mask)
        _end_at_limit(beams, num, limits.clamp(max=most), scoring)
        if num == most:
            break
        looks = limits.device.type == "cpu" or num % STEPS_A_LOOK == 0
        # Scores are negative: whatever comes, they are divided by no more than the longest one's penalty.
        if looks and bool((beams.ended_scores[:, 0] >= beams.scores[:, 0] / bound).all()):
            break
        stepper.reorder(rows.flatten())
    return beams.ended[:, 0]


def _advance(
    beams: _Beams, num: int, probabilities: torch.Tensor, looked: torch.Tensor | None, scoring: Scoring, end: int,
    source_mask: torch.Tensor | None,
) -> torch.Tensor:  # fmt: skip
    """Take step `num`; returns the rows that the next one goes on with, int64 [n, beam]."""
    beam, tokens = probabilities.shape[1:]
    totals = (beams.scores[:, :, None] + probabilities).flatten(1)
    scores, places = totals.topk(min(2 * beam, totals.shape[1]), dim=1)
    parents, said = places // tokens, places % tokens
    ids = beams.ids.gather(1, parents[:, :, None].expand(-1, -1, beams.ids.shape[2]))
    ids[:, :, num - 1] = said
    coverage = None
    if looked is not None:
        total = looked if beams.coverage is None else beams.coverage + looked
        coverage = total.gather(1, parents[:, :, None].expand(-1, -1, total.shape[2]))
    ending = said == end
    final = scores / scoring.length_penalty(num) + _coverage_penalty(coverage, scoring, source_mask)
    _keep_ended(beams, final.masked_fill(~ending, -torch.inf), ids)
    beams.scores, kept = scores.masked_fill(ending, -torch.inf).topk(beam, dim=1)
    beams.ids = ids.gather(1, kept[:, :, None].expand(-1, -1, ids.shape[2]))
    beams.last = said.gather(1, kept)
    if coverage is not None:
        beams.coverage = coverage.gather(1, kept[:, :, None].expand(-1, -1, coverage.shape[2]))
    return beams.first_row + parents.gather(1, kept)


def _coverage_penalty(
    coverage: torch.Tensor | None, scoring: Scoring, source_mask: torch.Tensor | None
) -> torch.Tensor | float:
    if coverage is None or not scoring.beta:
        return 0.0
    assert source_mask is not None
    covered = coverage.clamp(LEAST_COVERAGE, 1.0).log().masked_fill(~source_mask[:, None, :], 0.0)
    return scoring.beta * covered.sum(dim=2)


def _keep_ended(beams: _Beams, scores: torch.Tensor, ids: torch.Tensor) -> None:
    """Keep the best of what had ended and of what has ended now."""
    all_ids = torch.cat((beams.ended, ids), dim=1)
    beam = beams.scores.shape[1]
    beams.ended_scores, kept = torch.cat((beams.ended_scores, scores), dim=1).topk(beam, dim=1)
    beams.ended = all_ids.gather(1, kept[:, :, None].expand(-1, -1, all_ids.shape[2]))


def _end_at_limit(beams: _Beams, num: int, limits: torch.Tensor, scoring: Scoring) -> None:
    """Of sentences that have had all their steps and no hypothesis that ended, keep those that have not; stop them."""
    over = (limits <= num)[:, None]
    without = over & (beams.ended_scores[:, :1] == -torch.inf)
    unended = beams.scores / scoring.length_penalty(num)
    _keep_ended(beams, unended.masked_fill(~without, -torch.inf), beams.ids)
    beams.scores = beams.scores.masked_fill(over, -torch.inf)
