"""BLEU from summed counts is sacrebleu's of the joined text."""

from __future__ import annotations

import random
from itertools import pairwise

import sacrebleu

from trainers.data.text import BleuCounter


def texts(num: int) -> tuple[list[str], list[str]]:
    rng = random.Random(0)
    words = ["der", "Hund", "bellt", "laut,", "und", "1.000", "Katzen", "„schlafen“.", "Ja!"]
    references = [" ".join(rng.choices(words, k=rng.randint(1, 12))) for _ in range(num)]
    hypotheses = [
        " ".join(word for word in text.split() if rng.random() < 0.9).upper() if number % 3 else text
        for number, text in enumerate(references)
    ]
    return hypotheses, references


def test_the_parts_sum_to_the_whole_to_the_last_digit() -> None:
    hypotheses, references = texts(101)
    counter = BleuCounter()
    for bounds in ((0, 101), (0, 50, 101), (0, 0, 1, 3, 100, 101)):
        parts = [counter.counts(hypotheses[a:b], references[a:b]) for a, b in pairwise(bounds)]
        total = sum(parts[1:], parts[0]).tolist()
        expected = sacrebleu.corpus_bleu(hypotheses, [references], lowercase=True, tokenize="intl").score
        assert counter.value(total) == expected
        assert 50 < expected < 100


def test_nothing_right_and_nothing_said_are_zero() -> None:
    counter = BleuCounter()
    assert counter.value(counter.counts([], []).tolist()) == 0
    assert counter.value(counter.counts([""], ["der Hund bellt laut"]).tolist()) == 0
