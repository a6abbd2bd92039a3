"""English-German text of WMT's translation tasks, in the files that people have of it, or any other of their layout.

Either text that was cut into byte-pair pieces, as NVIDIA's and MLPerf's scripts leave it:

    train.tok.clean.bpe.32000.{en,de}  vocab.bpe.32000  newstest2014.tok.bpe.32000.{en,de}  newstest2014.de

where newstest2014.de, the references as they were before, may be missing; or plain text and what cuts it, a model of
sentencepiece or tensor2tensor's subwords:

    train.{en,de}  newstest2014.{en,de}  *.model | vocab.ende.* | *.subwords
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from conf.schema import ConfigError
from trainers.data.reading.folder_index import resolved
from trainers.data.text.corpus import Corpus, plain_lines, read_corpus
from trainers.data.text.data import Held, TextData
from trainers.data.text.lines import read_lines
from trainers.data.text.subwords import Subwords
from trainers.data.text.vocabulary import PieceList, SentencePiece, Vocabulary

SOURCE, TARGET = "en", "de"
# What cuts plain text
MODELS: dict[str, Callable[[Path], Vocabulary]] = {
    "*.model": SentencePiece, "vocab.ende.*": Subwords, "*.subwords": Subwords,
}  # fmt: skip
PIECES, PLAIN = "train.tok.clean.bpe.32000", "train"
LAYOUT = (
    f"{PIECES}.{{en,de}}, vocab.bpe.32000 and newstest2014.tok.bpe.32000.{{en,de}}, or train.{{en,de}},"
    " newstest2014.{en,de} and a sentencepiece *.model or tensor2tensor's vocab.ende.* or *.subwords"
)


def wmt(path: str) -> TextData:
    """The text in folder `path`. Raises ConfigError, with file and line, for what is missing or cannot be used."""
    root = resolved(path)
    if (root / f"{PIECES}.{SOURCE}").exists():
        return _of_pieces(root)
    if (root / f"{PLAIN}.{SOURCE}").exists():
        return plain_text("wmt", root, evaluation="newstest2014")
    what = f"{root} holds neither {PIECES}.en nor train.en" if root.is_dir() else f"there is no folder {root}"
    raise ConfigError(f"dataset.path={path}: {what}; set dataset.path to a folder that holds {LAYOUT}")


def plain_text(name: str, root: Path, evaluation: str, test: str | None = None) -> TextData:
    """Plain text, with the files `evaluation`.en and .de, and of `test`, and one vocabulary of MODELS beside it."""
    models = {path: kind for pattern, kind in MODELS.items() for path in root.glob(pattern)}
    if len(models) != 1:
        names = ", ".join(sorted(path.name for path in models)) or "none"
        raise ConfigError(
            f"dataset.path: {root} must hold one vocabulary, a sentencepiece *.model or tensor2tensor's vocab.ende.* or"
            f" *.subwords, and has {names}; leave one"
        )
    ((model, kind),) = models.items()
    vocabulary = kind(model)

    def held(part: str) -> Held:
        corpus = _corpus(root, part, vocabulary, [model], limited=True)
        return Held(corpus, plain_lines(root / f"{part}.{TARGET}"))

    # A character that the model was not trained on is part of plain text, so that what it does not know is no error.
    train = _corpus(root, PLAIN, vocabulary, [model])
    return TextData(name, vocabulary, train, held(evaluation), held(test) if test else None)


def _of_pieces(root: Path) -> TextData:
    path = root / "vocab.bpe.32000"
    if not path.is_file():
        raise ConfigError(f"{path}: is missing; put there the vocabulary that the text was cut with, a piece a line")
    # subword-nmt writes how often a piece occurs behind it.
    pieces = [line.split()[0] for lines in read_lines(path, "it names no piece; remove the line") for line in lines]
    first: dict[str, int] = {}
    for number, piece in enumerate(pieces, 1):
        if first.setdefault(piece, number) != number:
            raise ConfigError(f"{path}, line {number}: {piece} stands in line {first[piece]}, too; remove one of them")
    vocabulary = PieceList(str(path), pieces, TARGET)
    train = _corpus(root, PIECES, vocabulary, [path], all_known=True)
    part = "newstest2014.tok.bpe.32000"
    corpus = _corpus(root, part, vocabulary, [path], limited=True)
    return TextData("wmt", vocabulary, train, Held(corpus, _references(root, part, vocabulary, len(corpus))))


def _references(root: Path, part: str, vocabulary: PieceList, num: int) -> list[str]:
    """The sentences before they were tokenised; where that file is missing, what undoing it gives."""
    plain = root / f"newstest2014.{TARGET}"
    if not plain.exists():
        return [vocabulary.joined(line.split()) for line in plain_lines(root / f"{part}.{TARGET}")]
    references = plain_lines(plain)
    if len(references) != num:
        raise ConfigError(
            f"{plain}, line {min(len(references), num) + 1}: the file has {len(references):,} lines, and"
            f" {part}.{TARGET} has {num:,}; put the references of the same sentences there, or remove the file"
        )
    return references


def _corpus(
    root: Path, part: str, vocabulary: Vocabulary, identity: list[Path], all_known: bool = False, limited: bool = False
) -> Corpus:
    source, target = (root / f"{part}.{language}" for language in (SOURCE, TARGET))
    return read_corpus(source, target, vocabulary, identity, all_known, limited)
