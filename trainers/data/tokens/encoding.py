"""Converts a share of a text to tokens; a job file in the folder tells the processes what to convert."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from conf.schema import ConfigError
from trainers.data.cached.work_shares import while_parent_lives
from trainers.data.tokens.shards import GPT2, LLAMA3, Format
from trainers.data.tokens.stretches import Stretch, shares
from trainers.data.tokens.tokenizers import tokenizer_of

JOB = "job.json"
MOST_SHORT = 1 << 16  # ids that fit into 16 bits


@dataclass(frozen=True)
class Job:
    """The tokenizer and all stretches, first those for training."""

    tokenizer: str
    train: Sequence[Stretch]
    validation: Sequence[Stretch]

    def write(self, folder: Path) -> None:
        (folder / JOB).write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, folder: Path) -> Job:
        content = json.loads((folder / JOB).read_text())
        train, validation = ([Stretch(**stretch) for stretch in content[part]] for part in ("train", "validation"))
        return cls(content["tokenizer"], train, validation)


def format_of(vocabulary: int) -> Format:
    """Return the smallest format that fits the ids."""
    return GPT2 if vocabulary <= MOST_SHORT else LLAMA3


def share_file(folder: Path, share: int) -> Path:
    return folder / f"share-{share}"


def encode_share(folder: Path, share: int, of: int) -> str:
    """Write the share's tokens to its file, without a header.

    Returns JSON. `error` says what is wrong with the text. Otherwise `counts` are the training and evaluation tokens,
    and `bytes` two sizes of the evaluation's text: its own, and the sum of its tokens' bytes.
    """
    job = Job.read(folder)
    parts = shares([*job.train, *job.validation], of)
    first = sum(map(len, parts[:share]))
    num_train = min(max(len(job.train) - first, 0), len(parts[share]))
    tokenizer = tokenizer_of(job.tokenizer)
    dtype, counts = format_of(tokenizer.vocabulary).type, [0, 0]
    lengths, num_bytes = tokenizer.num_bytes(), [0, 0]
    with share_file(folder, share).open("wb") as file:
        for place, stretch in enumerate(while_parent_lives(parts[share])):
            try:
                text = stretch.text()
                ids = tokenizer.encode(text)
            except ConfigError as error:
                return json.dumps({"error": str(error)})
            if stretch.begins:
                ids = np.concatenate(([tokenizer.separator], ids))
            file.write(ids.astype(dtype).tobytes())
            counts[place >= num_train] += len(ids)
            if place >= num_train:
                num_bytes[0] += len(text.encode())
                num_bytes[1] += int(lengths[ids].sum())
    return json.dumps({"counts": counts, "bytes": num_bytes})
