"""Beam search against all hypotheses that there are, of random models on tiny vocabularies."""

from __future__ import annotations

import functools
import itertools
import math

import numpy as np
import pytest
import torch

from trainers.ops.beam import Scoring, beam_search

TOKENS, SOURCE = 4, 3
PAD, BEGIN, END = 0, 2, 3


@functools.cache
def answer(sentence: int, said: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Probabilities of what follows, and what is looked at: random, but the same each time."""
    rng = np.random.RandomState([sentence, *said])
    chances = rng.dirichlet([0.7] * TOKENS)
    return chances, rng.dirichlet([0.3] * SOURCE)


class Stepper:
    """The random model, which remembers what each row has said."""

    def __init__(self, num: int, beam: int) -> None:
        self.beam, self.said = beam, [()] * (num * beam)  # type: list[tuple[int, ...]]
        self.num = num
        self.steps = 0

    def step(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.steps:
            self.said = [(*said, token) for said, token in zip(self.said, tokens.flatten().tolist(), strict=True)]
        self.steps += 1
        answers = [answer(row // self.beam, said) for row, said in enumerate(self.said)]
        chances, looked = (torch.tensor(np.array(part), dtype=torch.float64) for part in zip(*answers, strict=True))
        shape = (self.num, self.beam, -1)
        return chances.log().float().view(shape), looked.float().view(shape)

    def reorder(self, rows: torch.Tensor) -> None:
        self.said = [self.said[row] for row in rows.tolist()]


def score(sentence: int, ids: tuple[int, ...], scoring: Scoring) -> float:
    total, coverage = 0.0, np.zeros(SOURCE)
    for place, token in enumerate(ids):
        chances, looked = answer(sentence, ids[:place])
        total += math.log(chances[token])
        coverage += looked
    covered = sum(math.log(min(1.0, part)) for part in coverage)
    return total / ((5 + len(ids)) / 6) ** scoring.alpha + scoring.beta * covered


def search(num: int, limit: int, beam: int, scoring: Scoring, limits: list[int] | None = None) -> list[tuple[int, ...]]:
    there = torch.ones(num, SOURCE, dtype=torch.bool)
    ids = beam_search(
        lambda size: Stepper(num, size), torch.tensor(limits or [limit] * num), beam, scoring, BEGIN, END, PAD, there
    )
    return [tuple(row) for row in ids.tolist()]


def ended(limit: int) -> list[tuple[int, ...]]:
    """All hypotheses of up to `limit` tokens with one end token, their last."""
    others = [token for token in range(TOKENS) if token != END]
    return [(*said, END) for num in range(limit) for said in itertools.product(others, repeat=num)]


@pytest.mark.parametrize(
    "scoring", [Scoring(0.0), Scoring(0.6), Scoring(2.5), Scoring(0.6, 0.1), Scoring(0.6, 2.0)], ids=str
)
def test_a_beam_that_holds_all_finds_the_best_of_all(scoring: Scoring) -> None:
    limit, num = 4, 6
    best = [max(ended(limit), key=lambda ids: score(sentence, ids, scoring)) for sentence in range(num)]
    assert search(num, limit, TOKENS**limit, scoring) == [(*ids, *[PAD] * (limit - len(ids))) for ids in best]
    assert len({len(ids) for ids in best}) > 1


def narrow(sentence: int, limit: int, beam: int, scoring: Scoring) -> tuple[int, ...]:
    """A plain beam search of one sentence, to its limit."""
    going: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    done: list[tuple[int, ...]] = []
    for _ in range(limit):
        said = [
            (total + math.log(answer(sentence, ids)[0][token]), (*ids, token))
            for total, ids in going
            for token in range(TOKENS)
        ]
        best = sorted(said, reverse=True)[: 2 * beam]
        done += [ids for _, ids in best if ids[-1] == END]
        going = [entry for entry in best if entry[1][-1] != END][:beam]
    return max(done or [going[0][1]], key=lambda ids: score(sentence, ids, scoring))


@pytest.mark.parametrize("beam", [1, 2, 3])
def test_a_narrow_beam_stops_early_and_finds_what_one_without_haste_finds(beam: int) -> None:
    num, limits = 40, [1 + sentence % 7 for sentence in range(40)]
    for scoring in (Scoring(0.6), Scoring(0.6, 0.1)):
        results = search(num, 7, beam, scoring, limits)
        for sentence, (ids, limit) in enumerate(zip(results, limits, strict=True)):
            expected = narrow(sentence, limit, beam, scoring)
            assert ids == (*expected, *[PAD] * (7 - len(expected)))


def test_padding_of_the_source_is_not_to_be_covered() -> None:
    class Half(Stepper):
        def step(self, tokens: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            chances, looked = super().step(tokens)
            return chances, looked * torch.tensor([1.0, 1.0, 0.0])

    whole, part = torch.ones(4, SOURCE, dtype=torch.bool), torch.tensor([[True, True, False]] * 4)
    results = [
        beam_search(lambda size: Half(4, size), torch.full((4,), 4), 3, Scoring(0.6, 5.0), BEGIN, END, PAD, there)
        for there in (whole, part)
    ]
    assert results[0].shape == results[1].shape
    assert torch.isfinite(results[1].float()).all()


def test_the_warm_up_takes_few_steps() -> None:
    ids = beam_search(lambda size: Stepper(2, size), torch.tensor([9, 9]), 2, Scoring(0.6), BEGIN, END, PAD, None, 2)
    assert ids.shape == (2, 2)
