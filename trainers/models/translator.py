"""What translators have in common: they are evaluated by the BLEU of what a beam search says."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainers.data.text import BEGIN, END, PAD, BleuCounter, TextData
from trainers.models.schedule import is_count, require
from trainers.ops.beam import Scoring, Stepper, beam_search
from trainers.ops.distributed_sum import DistributedSum
from trainers.workload import Batch, TrialModule

# On Hopper PyTorch leaves attention to cuDNN, which plans it anew for each number of keys, at each step of a search.
ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class Translator(TrialModule):
    """Raises ConfigError, in the words of model.hparams, for a search that cannot be.

    A hypothesis has at most `extra_length` tokens more than the source. `eval_batch_size`, in tokens, is for the view.
    """

    def __init__(
        self, data: TextData, beam: int, scoring: Scoring, extra_length: int, eval_batch_size: int | None = None
    ) -> None:
        super().__init__()
        require("beam", beam, is_count(beam) and beam >= 1, "a whole number of hypotheses, 1 or more")
        require("extra_length", extra_length, is_count(extra_length), "a whole number of tokens, 0 or more")
        there = eval_batch_size is None or (is_count(eval_batch_size) and eval_batch_size >= 1)
        require("eval_batch_size", eval_batch_size, there, "a whole number of tokens, 1 or more, or null")
        self.beam, self.scoring, self.extra_length = beam, scoring, extra_length
        self.vocabulary = data.vocabulary
        self._translated: list[tuple[list[str | None], torch.Tensor]] = []  # references and ids, of each step
        self._bleu: BleuCounter | None = None

    @abstractmethod
    def stepper(self, source: torch.Tensor, beam: int) -> Stepper:
        """The model as it says a token at a time, of ids int64 [n, S]."""

    def translate(self, source: torch.Tensor, most_steps: int | None = None) -> torch.Tensor:
        """The best hypotheses, int64 [n, T], of ids int64 [n, S] with the mark of the end and padding behind it."""
        there = source != PAD
        with sdpa_kernel(ATTENTION):
            return beam_search(
                lambda beam: self.stepper(source, beam), there.sum(dim=1) + self.extra_length, self.beam, self.scoring,
                BEGIN, END, PAD, there, most_steps,
            )  # fmt: skip

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._translated.append((batch["references"], self.translate(batch["source"], batch.get("most_steps"))))

    def metrics(self) -> dict[str, float]:
        """BLEU, 0 to 100; a collective call."""
        self._bleu = self._bleu or BleuCounter()
        hypotheses, references = [], []
        for texts, ids in self._translated:
            for text, hypothesis in zip(texts, ids.tolist(), strict=True):
                if text is not None:
                    references.append(text)
                    hypotheses.append(self.vocabulary.decode(hypothesis))
        self._translated.clear()
        total = DistributedSum()
        total.add(self._bleu.counts(hypotheses, references).to(self.device))
        return {"bleu": self._bleu.value(total.reduce())}
