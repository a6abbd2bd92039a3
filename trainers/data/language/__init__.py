"""Sequences of tokens for language models: llm.c's shards, text, Python sources, and a generated language."""

from trainers.data.language.code import code
from trainers.data.language.data import LanguageData
from trainers.data.language.generated import grammar
from trainers.data.language.loader import IGNORED
from trainers.data.language.synthetic import synthetic
from trainers.data.language.text import text
from trainers.data.language.tokens import tokens

__all__ = ["IGNORED", "LanguageData", "code", "grammar", "synthetic", "text", "tokens"]
