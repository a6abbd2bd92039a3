"""GPT-2's byte pairs: the ids that its own code gives, and files of another encoding are refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from conf.schema import ConfigError
from tests.trainers.data.tokens import gpt2_files
from trainers.data.tokens.byte_pairs import BytePairs

GPT2 = os.environ.get("TIMETRIAL_GPT2_FILES")  # a folder of the published files
# By npm's gpt-3-encoder 1.1.4 and Hugging Face's tokenizers 0.23.3, of the published files.
PUBLISHED = {
    "hello world": [31373, 995],
    "Hello, I'm   a test\n\n\tof 12345 numbers... don't!\r\n": [
        15496, 11, 314, 1101, 220, 220, 257, 1332, 628, 197, 1659, 17031, 2231, 3146, 986, 836, 470, 0, 201, 198,
    ],
    "naïve café — “quotes” 日本語": [
        2616, 38776, 40304, 851, 564, 250, 421, 6421, 447, 251, 10545, 245, 98, 17312, 105, 45739, 252,
    ],
    " \n \n  x": [220, 198, 220, 198, 220, 2124],
    "def f(x):\n    return x ** 2  # ok\n": [
        4299, 277, 7, 87, 2599, 198, 220, 220, 220, 1441, 2124, 12429, 362, 220, 1303, 12876, 198,
    ],
}  # fmt: skip


@pytest.mark.skipif(not GPT2, reason="needs TIMETRIAL_GPT2_FILES, a folder of GPT-2's encoder.json and vocab.bpe")
def test_ids_are_those_of_the_published_files() -> None:
    encoding = BytePairs(Path(GPT2 or ""))
    assert (encoding.vocabulary, encoding.separator) == (50_257, 50_256)
    assert {text: encoding.encode(text).tolist() for text in PUBLISHED} == PUBLISHED


def pieces(folder: Path, text: str) -> list[str]:
    names = {number: piece for piece, number in gpt2_files.ids().items()}
    return [names[number] for number in BytePairs(folder).encode(text).tolist()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("hello", ["hel", "lo"]),  # the pair that comes first in the file is joined first
        ("hell", ["hel", "l"]),
        ("ll lo", ["ll", "Ġ", "lo"]),
        ("hello w", ["hel", "lo", "Ġw"]),
        ("he   w", ["he", "ĠĠ", "Ġw"]),  # the last space is the word's
        ("1212w", ["12", "12", "w"]),
        ("é", ["Ã©"]),  # two bytes
        ("he's", ["he", "'", "s"]),  # joined within words only
        ("e\n\nw", ["e", "Ċ", "Ċ", "w"]),  # a line feed before a word is by itself
        ("e\n\n", ["e", "ĊĊ"]),
        ("", []),
    ],
)
def test_pairs_are_joined_in_the_order_of_the_file_and_within_words(
    tmp_path: Path, text: str, expected: list[str]
) -> None:
    assert pieces(gpt2_files.write(tmp_path), text) == expected


def test_every_text_comes_back(tmp_path: Path) -> None:
    text = "naïve — 日本語 🤣\x00\x7f\xa0 hello  world\r\n\t\n"
    named = pieces(gpt2_files.write(tmp_path, ("vocab.json", "merges.txt")), text)
    bytes_of = {piece: number for piece, number in gpt2_files.ids().items() if number < 256}
    assert bytes(bytes_of[character] for piece in named for character in piece).decode() == text


def test_it_agrees_with_another_implementation(tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    folder = gpt2_files.write(tmp_path)
    model = tokenizers.models.BPE.from_file(str(folder / "encoder.json"), str(folder / "vocab.bpe"))
    other = tokenizers.Tokenizer(model)
    other.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    rng, alphabet = np.random.RandomState(0), [*"hello w12é\n\t '.s", "\u00a0", "日", "ǅ", "²", "\u2028"]
    ours = BytePairs(folder)
    for _ in range(300):
        text = "".join(rng.choice(alphabet, rng.randint(1, 40)))
        assert ours.encode(text).tolist() == other.encode(text, add_special_tokens=False).ids


def changed(folder: Path, **ids: int | str | None) -> None:
    content = gpt2_files.ids() | ids
    kept = {piece: number for piece, number in content.items() if number is not None}
    (folder / "encoder.json").write_text(json.dumps(kept))


def appended(folder: Path, line: str) -> None:
    with (folder / "vocab.bpe").open("a") as file:
        file.write(line)


DAMAGES = {
    "no file": (lambda folder: (folder / "vocab.bpe").unlink(), r"has no encoder\.json and vocab\.bpe or vocab"),
    "deep JSON": (lambda folder: (folder / "encoder.json").write_text("[" * 100_000), r"encoder\.json: is not JSON"),
    "no JSON": (lambda folder: (folder / "encoder.json").write_text("{"), r"encoder\.json: is not JSON"),
    "a list": (lambda folder: (folder / "encoder.json").write_text("[1]"), r"encoder\.json: must give each piece"),
    "an id twice": (lambda folder: changed(folder, hel=1), r"encoder\.json: must give each piece an id, from 0 on"),
    "a word": (lambda folder: changed(folder, hel="one"), r"encoder\.json: must give each piece an id"),
    "a byte less": (lambda folder: changed(folder, A=None, B=65), r"encoder\.json: must give|lacks the"),
    "no separator": (
        lambda folder: changed(folder, **{"<|endoftext|>": None}), r"encoder\.json: lacks the piece '<\|endoftext\|>'",
    ),
    "three pieces": (lambda folder: appended(folder, "h e l\n"), r"vocab\.bpe, line 11: 'h e l' must be two pieces"),
    "a foreign pair": (lambda folder: appended(folder, "w x\n"), r"line 11: encoder\.json has no id for 'w x' joined"),
    "no text": (lambda folder: (folder / "vocab.bpe").write_bytes(b"\xff\xfe"), r"vocab\.bpe: cannot be read"),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
def test_files_that_are_not_of_one_encoding_are_refused(tmp_path: Path, damage: str) -> None:
    folder = gpt2_files.write(tmp_path / "files")
    do, words = DAMAGES[damage]
    do(folder)
    with pytest.raises(ConfigError, match=words):
        BytePairs(folder)
