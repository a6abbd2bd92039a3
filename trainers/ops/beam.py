"""Beam search over sentences, with length and coverage penalties: Y. Wu et al. 2016, arXiv:1609.08144, section 7."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

STEPS_A_LOOK = 8  # steps between checks whether the search has ended; on a GPU each check waits for the device
LEAST_COVERAGE = 1e-20


@dataclass(frozen=True)
class Scoring:
    """The score of a hypothesis of `n` tokens, including its end: log P / ((5 + n) / 6) ** alpha + beta * coverage.

    The coverage is the sum over source tokens of log min(1, total attention to the token).
    """

    alpha: float
    beta: float = 0.0

    def length_penalty(self, num: float | torch.Tensor) -> float | torch.Tensor:
        return ((5 + num) / 6) ** self.alpha


class Stepper(Protocol):
    """A model that decodes one token a step, for `beam` hypotheses of each of n sentences."""

    def step(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return log P of the next token, float32 [n, beam, tokens], for the last ids, int64 [n, beam].

        Also returns the attention to the source, [n, beam, S], whose rows add up to 1 and are 0 at padding; None for a
        model without coverage.
        """
        ...

    def reorder(self, rows: torch.Tensor) -> None:
        """Continue with the hypotheses `rows`, int64 [n * beam], of the last step."""
        ...


class _Beams:
    """The `beam` best open hypotheses, and the best ended ones, of n sentences."""

    def __init__(self, num: int, beam: int, most: int, begin: int, pad: int, device: torch.device) -> None:
        self.scores = torch.full((num, beam), -torch.inf, device=device)
        self.scores[:, 0] = 0.0  # All hypotheses start equal, so only the first one counts.
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
    """Return the best hypothesis of each of n sentences: ids int64 [n, L], with padding after the end.

    Each step continues the `beam` most probable open hypotheses of a sentence. Among the 2 * beam most probable
    continuations, those that end compete by their score. If no hypothesis of a sentence has ended after `limits` [n]
    steps, its best open one is taken. The search ends when no open hypothesis can beat the ended ones.

    `source_mask`, bool [n, S], is False for padding. `make(beam)` makes the stepper.
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
        # An upper bound of open hypotheses: scores are negative, and the longest hypothesis has the largest divisor.
        if looks and bool((beams.ended_scores[:, 0] >= beams.scores[:, 0] / bound).all()):
            break
        stepper.reorder(rows.flatten())
    return beams.ended[:, 0]


def _advance(
    beams: _Beams, num: int, probabilities: torch.Tensor, looked: torch.Tensor | None, scoring: Scoring, end: int,
    source_mask: torch.Tensor | None,
) -> torch.Tensor:  # fmt: skip
    """Do step `num`; return the rows that the next step continues, int64 [n, beam]."""
    beam, tokens = probabilities.shape[1:]
    totals = (beams.scores[:, :, None] + probabilities).flatten(1)
    scores, places = totals.topk(min(2 * beam, totals.shape[1]), dim=1)
    parents, next_tokens = places // tokens, places % tokens
    ids = beams.ids.gather(1, parents[:, :, None].expand(-1, -1, beams.ids.shape[2]))
    ids[:, :, num - 1] = next_tokens
    coverage = None
    if looked is not None:
        total = looked if beams.coverage is None else beams.coverage + looked
        coverage = total.gather(1, parents[:, :, None].expand(-1, -1, total.shape[2]))
    ending = next_tokens == end
    final = scores / scoring.length_penalty(num) + _coverage_penalty(coverage, scoring, source_mask)
    _keep_ended(beams, final.masked_fill(~ending, -torch.inf), ids)
    beams.scores, kept = scores.masked_fill(ending, -torch.inf).topk(beam, dim=1)
    beams.ids = ids.gather(1, kept[:, :, None].expand(-1, -1, ids.shape[2]))
    beams.last = next_tokens.gather(1, kept)
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
    """Keep the best of the hypotheses that ended before and now."""
    all_ids = torch.cat((beams.ended, ids), dim=1)
    beam = beams.scores.shape[1]
    beams.ended_scores, kept = torch.cat((beams.ended_scores, scores), dim=1).topk(beam, dim=1)
    beams.ended = all_ids.gather(1, kept[:, :, None].expand(-1, -1, all_ids.shape[2]))


def _end_at_limit(beams: _Beams, num: int, limits: torch.Tensor, scoring: Scoring) -> None:
    """Stop sentences that have used all their steps; if no hypothesis has ended, keep the open ones."""
    over = (limits <= num)[:, None]
    without = over & (beams.ended_scores[:, :1] == -torch.inf)
    unended = beams.scores / scoring.length_penalty(num)
    _keep_ended(beams, unended.masked_fill(~without, -torch.inf), beams.ids)
    beams.scores = beams.scores.masked_fill(over, -torch.inf)
