"""English-German text of WMT's translation tasks, or any other text in the same layout of files.

The text is either split into byte-pair pieces, as by NVIDIA's and MLPerf's scripts:

    train.tok.clean.bpe.32000.{en,de}  vocab.bpe.32000  newstest2014.tok.bpe.32000.{en,de}  newstest2014.de

where newstest2014.de, the untokenised references, may be missing; or it is plain text with a sentencepiece model or
tensor2tensor's subwords:

    train.{en,de}  newstest2014.{en,de}  *.model | vocab.ende.* | *.subwords
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from conf.schema import ConfigError
from trainers.data.reading.folder_index import resolved
from trainers.data.text.corpus import Corpus, plain_lines, read_corpus, read_lines
from trainers.data.text.data import Held, TextData
from trainers.data.text.subwords import Subwords
from trainers.data.text.vocabulary import PieceList, SentencePiece, Vocabulary

SOURCE, TARGET = "en", "de"
# vocabularies for plain text, by file name
MODELS: dict[str, Callable[[Path], Vocabulary]] = {
    "*.model": SentencePiece, "vocab.ende.*": Subwords, "*.subwords": Subwords,
}  # fmt: skip
PIECES, PLAIN = "train.tok.clean.bpe.32000", "train"
LAYOUT = (
    f"{PIECES}.{{en,de}}, vocab.bpe.32000 and newstest2014.tok.bpe.32000.{{en,de}}, or train.{{en,de}},"
    " newstest2014.{en,de} and a sentencepiece *.model or tensor2tensor's vocab.ende.* or *.subwords"
)


def wmt(path: str) -> TextData:
    """Return the text in folder `path`. Raises ConfigError, naming file and line, for missing or unusable text."""
    root = resolved(path)
    if (root / f"{PIECES}.{SOURCE}").exists():
        return _of_pieces(root)
    if (root / f"{PLAIN}.{SOURCE}").exists():
        return plain_text("wmt", root, evaluation="newstest2014")
    problem = f"{root} has neither {PIECES}.en nor train.en" if root.is_dir() else f"{root} is not a folder"
    raise ConfigError(f"dataset.path={path}: {problem}. Next: set dataset.path to a folder with {LAYOUT}")


def plain_text(name: str, root: Path, evaluation: str, test: str | None = None) -> TextData:
    """Return plain text with one vocabulary of MODELS; `evaluation` and `test` name files without .en or .de."""
    models = {path: kind for pattern, kind in MODELS.items() for path in root.glob(pattern)}
    if len(models) != 1:
        names = ", ".join(sorted(path.name for path in models)) or "none"
        raise ConfigError(
            f"dataset.path: {root} must have one vocabulary, but has {names}. Next: leave or add one sentencepiece"
            " *.model, or tensor2tensor's vocab.ende.* or *.subwords"
        )
    ((model, kind),) = models.items()
    vocabulary = kind(model)

    def held(part: str) -> Held:
        corpus = _corpus(root, part, vocabulary, [model], limited=True)
        return Held(corpus, plain_lines(root / f"{part}.{TARGET}"))

    # Plain text may have characters that the model was not trained on, so unknown tokens are not an error.
    train = _corpus(root, PLAIN, vocabulary, [model])
    return TextData(name, vocabulary, train, held(evaluation), held(test) if test else None)


def _of_pieces(root: Path) -> TextData:
    path = root / "vocab.bpe.32000"
    if not path.is_file():
        raise ConfigError(f"{path}: is missing. Next: put the vocabulary of the text there, one piece a line")
    # subword-nmt writes a piece's count after it.
    pieces = [
        line.split()[0] for lines in read_lines(path, "it names no piece. Next: remove the line") for line in lines
    ]
    first: dict[str, int] = {}
    for number, piece in enumerate(pieces, 1):
        if first.setdefault(piece, number) != number:
            raise ConfigError(
                f"{path}, line {number}: {piece} is also in line {first[piece]}. Next: remove one of the lines"
            )
    vocabulary = PieceList(str(path), pieces, TARGET)
    train = _corpus(root, PIECES, vocabulary, [path], all_known=True)
    part = "newstest2014.tok.bpe.32000"
    corpus = _corpus(root, part, vocabulary, [path], limited=True)
    return TextData("wmt", vocabulary, train, Held(corpus, _references(root, part, vocabulary, len(corpus))))


def _references(root: Path, part: str, vocabulary: PieceList, num: int) -> list[str]:
    """Return the untokenised references; if their file is missing, detokenise the tokenised ones."""
    plain = root / f"newstest2014.{TARGET}"
    if not plain.exists():
        return [vocabulary.joined(line.split()) for line in plain_lines(root / f"{part}.{TARGET}")]
    references = plain_lines(plain)
    if len(references) != num:
        raise ConfigError(
            f"{plain}, line {min(len(references), num) + 1}: the file has {len(references):,} lines, but"
            f" {part}.{TARGET} has {num:,}. Next: put the references of the same sentences there, or remove the file"
        )
    return references


def _corpus(
    root: Path, part: str, vocabulary: Vocabulary, identity: list[Path], all_known: bool = False, limited: bool = False
) -> Corpus:
    source, target = (root / f"{part}.{language}" for language in (SOURCE, TARGET))
    return read_corpus(source, target, vocabulary, identity, all_known, limited)
