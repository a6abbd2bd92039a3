"""Pairs of sentences in two languages, WMT's files or generated ones: their subword ids, and batches in tokens."""

from trainers.data.text.bleu import BleuCounter
from trainers.data.text.data import TextData, TextView
from trainers.data.text.numbers import numbers
from trainers.data.text.synthetic import synthetic
from trainers.data.text.vocabulary import BEGIN, END, NUM_MARKS, PAD, UNKNOWN
from trainers.data.text.wmt import wmt

__all__ = [
    "BEGIN", "END", "NUM_MARKS", "PAD", "UNKNOWN", "BleuCounter", "TextData", "TextView", "numbers",
    "synthetic", "wmt",
]  # fmt: skip
