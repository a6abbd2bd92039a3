"""BLEU (K. Papineni et al. 2002) over any number of processes, computed by sacrebleu from summed n-gram counts.

M. Post 2018, arXiv:1804.08771. The counts are whole numbers, so the value equals sacrebleu's for the joined text to the
last digit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

ORDER = 4


class BleuCounter:
    """Counts n-grams of translations, lower-cased and tokenised by mteval-v14's international rules, as in MLPerf."""

    def __init__(self) -> None:
        from sacrebleu.metrics import BLEU  # Only an evaluation needs this import.

        self._bleu = BLEU(lowercase=True, tokenize="intl", force=True)  # No warning for text that looks tokenised.

    def counts(self, hypotheses: Sequence[str], references: Sequence[str]) -> torch.Tensor:
        """Return float64 [10]: matching and all n-grams of 1 to 4 words, words of hypotheses, words of references."""
        if not hypotheses:
            return torch.zeros(2 * ORDER + 2, dtype=torch.float64)
        score = self._bleu.corpus_score(list(hypotheses), [list(references)])
        numbers = [*score.counts, *score.totals, score.sys_len, score.ref_len]
        return torch.tensor(numbers, dtype=torch.float64)

    def value(self, counts: Sequence[float]) -> float:
        """Return the BLEU, 0 to 100, of summed counts."""
        whole = [int(count) for count in counts]
        score = self._bleu.compute_bleu(
            whole[:ORDER], whole[ORDER : 2 * ORDER], whole[-2], whole[-1], smooth_method="exp"
        )
        return float(score.score)
