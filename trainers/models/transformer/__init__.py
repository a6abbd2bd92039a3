"""Transformer-big and its smaller sizes, which translate."""

from __future__ import annotations

from trainers.models.transformer.module import WORKLOAD, TransformerTranslator

__all__ = ["WORKLOAD", "TransformerTranslator"]
