"""The options of a dataset: which there are, their types, defaults and meanings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

REQUIRED = "???"  # OmegaConf's mark of a value that must be given
# Older runs have none of these.
OF_LANGUAGE = (
    "sequence_length", "validation_tokens", "train_tokens", "vocabulary", "order", "branches", "tokenizer",
)  # fmt: skip


@dataclass
class DatasetConfig:
    name: str = REQUIRED  # one of those in the model's targets
    path: str | None = None  # folder of the files, for datasets that are read from disk
    download: bool | None = None  # fetch the files into path where they are missing and the network allows
    size: int | None = None  # number of training samples, for datasets that are generated; of code, bytes at most
    num_classes: int | None = None  # classes of synthetic data; default: 1,000 as ImageNet, 80 as COCO
    num_objects: int | None = None  # room for objects in an image of synthetic data; default: 96, COCO's most
    year: int | None = None  # 2014 or 2017, for COCO where path holds both
    decode: str | None = None  # where JPEG files are decoded: auto | gpu | cpu
    num_threads: int | None = None  # threads a process that read and decode; default: its share of cores, less two
    max_image_pixels: int | None = None  # larger images are refused by their header; default: 178956970, as Pillow's
    # Of tokens for language models:
    sequence_length: int | None = None  # tokens of a sequence; default: 1,024
    validation_tokens: int | None = None  # tokens to evaluate on, from the first on; default: 10,485,760
    train_tokens: int | None = None  # tokens of an epoch of a generated language; default: 1,703,936,000
    # token ids: of a generated language; of tokens, where not those of the files' tokenizer; pieces to learn of text
    vocabulary: int | None = None
    order: int | None = None  # tokens that decide which can follow in a generated language; default: 2
    branches: int | None = None  # tokens that can follow in a generated language; default: 16
    # what cuts text: folder of GPT-2's vocab.bpe and encoder.json, a sentencepiece model, or bytes; default: pieces
    # that are learnt of it
    tokenizer: str | None = None


def without_unset(content: dict[str, Any]) -> None:
    """Leave out what was not given of the newer options: a run's hash stays what it was before there were these."""
    for key in OF_LANGUAGE:
        if content[key] is None:
            del content[key]
