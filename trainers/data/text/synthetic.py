"""Generated sentences with about the lengths of WMT's English-German ones, to measure the device without files."""

from __future__ import annotations

import numpy as np

from conf.schema import ConfigError
from trainers.data.cached import Arrays, cached_arrays
from trainers.data.text.corpus import Corpus
from trainers.data.text.data import TextData, generated
from trainers.data.text.vocabulary import Numbered, rounded

FORMAT = 1  # version of the generated sentences; raise it when they change
SIZE = 200_000
NUM_TOKENS = 33_708  # the Transformer's vocabulary in MLPerf
# Mean and deviation of the logarithm of a German sentence's byte-pair pieces, with the end mark. Their mean, 28, is
# that of MLPerf v0.7's epoch: 1,213 updates of 8 GPUs with room for 13,824 tokens, 4.5 million pairs, less padding.
LOGARITHM = (3.13, 0.64)
RATIO = (-0.03, 0.24)  # the same for the ratio of English to German lengths; its median is 0.97
MOST = 256


def synthetic(size: int = SIZE) -> TextData:
    """Return `size` pairs of random ids, made once, without an evaluation. Raises ConfigError for a size below 1."""
    if size < 1:
        raise ConfigError(f"dataset.size={size}: must be 1 or more")

    def make() -> Arrays:
        return dict(vars(generated(*lengths(size), rounded(NUM_TOKENS), 0)))

    corpus = Corpus(**cached_arrays("text", [], f"synthetic {size}", FORMAT, make))
    return TextData("synthetic", Numbered(rounded(NUM_TOKENS)), corpus, None)


def lengths(size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the tokens of each sentence's source and target, int64 [size] each, including end marks."""
    rng = np.random.RandomState(0)
    target = np.exp(rng.normal(*LOGARITHM, size))
    source = target * np.exp(rng.normal(*RATIO, size))
    return tuple(np.clip(side.round(), 2, MOST).astype(np.int64) for side in (source, target))
