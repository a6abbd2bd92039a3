"""The Transformer as a translator, in its size "big" and smaller ones."""

from trainers.models.transformer.module import WORKLOAD, TransformerTranslator

__all__ = ["WORKLOAD", "TransformerTranslator"]
