"""The options of a dataset: names, types, defaults and meanings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

REQUIRED = "???"  # OmegaConf's mark of a value that must be given
# Older runs were recorded without these keys.
LANGUAGE_OPTIONS = (
    "sequence_length", "validation_tokens", "train_tokens", "vocabulary", "order", "branches", "tokenizer",
)  # fmt: skip
SPARE_CORES = 2  # cores left free in a process's share, for the threads that launch kernels and assemble batches


@dataclass
class DatasetConfig:
    name: str = REQUIRED  # a dataset in the model's targets
    path: str | None = None  # folder of the files, for datasets that are read from disk
    download: bool | None = None  # download missing files into path
    size: int | None = None  # training samples of a generated dataset; dataset=code: most bytes
    num_classes: int | None = None  # classes of synthetic data; default: 1,000 as ImageNet, 80 as COCO
    num_objects: int | None = None  # most objects in an image of synthetic data; default: 96, COCO's maximum
    year: int | None = None  # 2014 or 2017, for COCO if path holds both
    decode: str | None = None  # where JPEG files are decoded: auto | gpu | cpu
    num_threads: int | None = None  # reading and decoding threads of a process; default: its share of cores minus two
    max_image_pixels: int | None = None  # larger images are refused by their header; default: 178956970, as Pillow's
    # For language models:
    sequence_length: int | None = None  # tokens of a sequence; default: 1,024
    validation_tokens: int | None = None  # number of validation tokens, from the first one; default: 10,485,760
    train_tokens: int | None = None  # tokens of an epoch of a generated language; default: 1,703,936,000
    # number of token ids of a generated language or of dataset=tokens (default: its tokenizer's); text: pieces to learn
    vocabulary: int | None = None
    order: int | None = None  # how many tokens decide which can follow in a generated language; default: 2
    branches: int | None = None  # how many tokens can follow in a generated language; default: 16
    # tokenizer of text: folder of GPT-2's vocab.bpe and encoder.json, a sentencepiece model, or bytes; default: pieces
    # learnt from the text
    tokenizer: str | None = None


def default_threads(cores: int) -> int:
    """`num_threads` of a process by default: its share of the cores less SPARE_CORES, but at least half of it."""
    return max(1, cores // 2, cores - SPARE_CORES)


def remove_unset_dataset(content: dict[str, Any]) -> None:
    """Remove newer options without a value, so that the hashes of older runs stay as they are."""
    for key in LANGUAGE_OPTIONS:
        if content[key] is None:
            del content[key]
