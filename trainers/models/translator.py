"""The base class of translators, which are evaluated by the BLEU of their beam search."""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from trainers.data.text import BEGIN, END, PAD, BleuCounter, TextData
from trainers.models.schedule import is_count, is_number, require
from trainers.ops.beam import Scoring, Stepper, beam_search
from trainers.ops.distributed_sum import DistributedSum
from trainers.workload import Batch, TrialModule

# Without cuDNN, which PyTorch prefers on Hopper: it makes a new plan for each number of keys, so at each search step.
ATTENTION = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]

LARGEST_PENALTY = 10  # of length and coverage; published ones are below 1, and far larger ones overflow


class Translator(TrialModule):
    """Evaluates a translation model by beam search.

    A hypothesis has at most `extra_length` tokens more than the source. The view uses `eval_batch_size`, in tokens.
    Raises ConfigError, naming model.hparams, for an invalid option.
    """

    def __init__(
        self, data: TextData, beam: int, scoring: Scoring, extra_length: int, eval_batch_size: int | None = None
    ) -> None:
        super().__init__()
        require("beam", beam, is_count(beam) and beam >= 1, "a whole number of hypotheses, 1 or more")
        require("extra_length", extra_length, is_count(extra_length), "a whole number of tokens, 0 or more")
        valid = eval_batch_size is None or (is_count(eval_batch_size) and eval_batch_size >= 1)
        require("eval_batch_size", eval_batch_size, valid, "a whole number of tokens, 1 or more, or null")
        for name, value in {"alpha": scoring.alpha, "coverage": scoring.beta}.items():
            require(name, value, is_number(value) and 0 <= value <= LARGEST_PENALTY, f"from 0 to {LARGEST_PENALTY}")
        self.beam, self.scoring, self.extra_length = beam, scoring, extra_length
        self.vocabulary = data.vocabulary
        self._translated: list[tuple[list[str | None], torch.Tensor]] = []  # references and ids, of each step
        self._bleu: BleuCounter | None = None

    @abstractmethod
    def stepper(self, source: torch.Tensor, beam: int) -> Stepper:
        """Return the decoder, one token a step, for source ids int64 [n, S]."""

    def translate(self, source: torch.Tensor, most_steps: int | None = None) -> torch.Tensor:
        """Translate ids, int64 [n, S], each with an end mark and padding; return the best hypotheses, int64 [n, T]."""
        is_token = source != PAD
        with sdpa_kernel(ATTENTION):
            return beam_search(
                lambda beam: self.stepper(source, beam), is_token.sum(dim=1) + self.extra_length, self.beam,
                self.scoring, BEGIN, END, PAD, is_token, most_steps,
            )  # fmt: skip

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self._translated.append((batch["references"], self.translate(batch["source"], batch.get("most_steps"))))

    def metrics(self) -> dict[str, float]:
        """Return the BLEU, 0 to 100. A collective call."""
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
