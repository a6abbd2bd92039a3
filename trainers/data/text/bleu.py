"""BLEU over any number of processes (K. Papineni et al. 2002), from summed n-gram counts, computed by sacrebleu.

M. Post 2018, arXiv:1804.08771. What is summed are whole numbers, so that the value is sacrebleu's of the joined text to
the last digit.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

ORDER = 4


class BleuCounter:
    """Counts of what was translated; lower-cased, cut by mteval-v14's international rules, as MLPerf has it."""

    def __init__(self) -> None:
        from sacrebleu.metrics import BLEU  # Here alone: it is imported where something is evaluated.

        self._bleu = BLEU(lowercase=True, tokenize="intl", force=True)  # It warns of text that looks tokenised.

    def counts(self, hypotheses: Sequence[str], references: Sequence[str]) -> torch.Tensor:
        """float64 [10]: matching n-grams of 1 to 4 words, all of them, the hypotheses' words, the references'."""
        if not hypotheses:
            return torch.zeros(2 * ORDER + 2, dtype=torch.float64)
        score = self._bleu.corpus_score(list(hypotheses), [list(references)])
        numbers = [*score.counts, *score.totals, score.sys_len, score.ref_len]
        return torch.tensor(numbers, dtype=torch.float64)

    def value(self, counts: Sequence[float]) -> float:
        """BLEU, 0 to 100, of summed counts."""
        whole = [int(count) for count in counts]
        score = self._bleu.compute_bleu(
            whole[:ORDER], whole[ORDER : 2 * ORDER], whole[-2], whole[-1], smooth_method="exp"
        )
        return float(score.score)
