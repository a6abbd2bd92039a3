"""The Transformer as a translator, in its size "big" and smaller ones."""

from __future__ import annotations

from trainers.models.transformer.module import WORKLOAD, TransformerTranslator

__all__ = ["WORKLOAD", "TransformerTranslator"]
