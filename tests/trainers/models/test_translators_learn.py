"""Translators learn a small language, word for word, and translate sentences that they never saw."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.trainers.data.text.files import corpus
from tests.trainers.processes import ALONE
from trainers.data.text.data import Held, TextData
from trainers.data.text.vocabulary import Numbered
from trainers.models.gnmt import GnmtTranslator
from trainers.models.transformer import TransformerTranslator

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("one_thread")]
WORDS, FIRST = 8, 4
BLEU = 60.0
SIZES: dict[Any, dict[str, Any]] = {
    TransformerTranslator: {"layers": 1, "width": 32, "hidden": 64, "heads": 4, "pack_length": 32},
    GnmtTranslator: {"layers": 2, "width": 32, "initial": 0.3},
}


def language(num: int, seed: int) -> tuple[list[list[int]], list[list[int]]]:
    rng = np.random.RandomState(seed)
    source = [rng.randint(FIRST, FIRST + WORDS, rng.randint(4, 8)).tolist() for _ in range(num)]
    return source, [[word + WORDS for word in sentence] for sentence in source]


def data() -> TextData:
    held = language(40, seed=1)
    references = [" ".join(map(str, sentence)) for sentence in held[1]]
    return TextData("words", Numbered(24), corpus(*language(2000, seed=0)), Held(corpus(*held), references))


@pytest.mark.parametrize("kind", SIZES, ids=lambda kind: kind.__name__)
def test_it_learns_a_dictionary(kind: Any) -> None:
    torch.manual_seed(0)
    words = data()
    translator = kind(words, 1.0, 0.0, epochs=1, max_length=16, dropout=0.0, extra_length=2, beam=2, **SIZES[kind])
    words = words.viewed(translator.view)
    optimizer = torch.optim.Adam(translator.parameters(), lr=1e-2)
    loader, best = words.train_loader(512, 1, ALONE), 0.0
    for epoch in range(12):
        loader.set_epoch(epoch)
        for batch in loader:
            optimizer.zero_grad()
            translator.training_step(batch, 0).backward()
            nn.utils.clip_grad_norm_(translator.parameters(), 1.0)
            optimizer.step()
        translator.eval()
        for batch in words.eval_loader(512, ALONE) or ():
            translator.validation_step(batch, 0)
        best = max(best, translator.metrics()["bleu"])
        translator.train()
        if best > BLEU:
            break
    assert best > BLEU, best
