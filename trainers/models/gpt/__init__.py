"""A language model of GPT-2's sizes, trained by Muon."""

from __future__ import annotations

from trainers.models.gpt.module import WORKLOAD, LanguageModel

__all__ = ["WORKLOAD", "LanguageModel"]
