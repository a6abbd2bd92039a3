"""A small byte-pair encoding in GPT-2's files: all bytes, and some pieces that are joined of them."""

from __future__ import annotations

import json
from pathlib import Path

from trainers.data.tokens.byte_pairs import SEPARATOR, VISIBLE

# Ġ is the space. "hel" is joined before "lo", so "hello" is "hel" and "lo"; "ll" is never joined where "lo" was.
MERGES = ["h e", "l o", "he l", "l l", "Ġ w", "Ã ©", "Ġ Ġ", "Ċ Ċ", "1 2"]


def ids() -> dict[str, int]:
    pieces = [*VISIBLE, *(merge.replace(" ", "") for merge in MERGES), SEPARATOR]
    return {piece: number for number, piece in enumerate(pieces)}


def write(folder: Path, names: tuple[str, str] = ("encoder.json", "vocab.bpe")) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / names[0]).write_text(json.dumps(ids()))
    (folder / names[1]).write_text("#version: 0.2\n" + "".join(f"{merge}\n" for merge in MERGES))
    return folder
