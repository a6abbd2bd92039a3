"""Reads records of games, checks that all moves are legal, and returns their positions."""

from __future__ import annotations

from collections.abc import Sequence
from io import TextIOWrapper
from pathlib import Path

import torch

from conf.schema import ConfigError
from tracking.base.paths import with_home
from trainers.data.go_records.sgf import Record, records_of
from trainers.data.reading.regular_file import opened
from trainers.ops.go import Boards, Rules
from trainers.ops.go.vertices import vertex

PROFESSIONAL = Path(__file__).with_name("professional.sgf")


def read(path: Path | str, size: int = 0) -> list[Record]:
    """Return the games of an SGF file, or of all `*.sgf` of a folder in the order of their names.

    Raises ConfigError, naming the file and the move, if a file is missing or truncated, a board does not have `size`
    rows (0 for any), komi does not end in .5, or a move is illegal.
    """
    path = with_home(path)
    files = sorted(path.glob("*.sgf")) if path.is_dir() else [path]
    if not files:
        raise ConfigError(f"dataset.path={path}: has no *.sgf. Next: give a folder with SGF files, or a file")
    records: list[Record] = []
    for file in files:
        try:
            with TextIOWrapper(opened(file), encoding="utf-8", errors="replace") as lines:
                text = lines.read()
        except OSError as error:
            raise ConfigError(
                f"dataset.path={file}: cannot be read ({error.strerror}). Next: give a readable SGF file"
            ) from None
        for record in records_of(text, str(file)):
            checked(record, f"{file}, game {record.name}", size)
            records.append(record)
    return records


def professional_games() -> list[Record]:
    """Return the four games of MLPerf v0.5's MiniGo: 9x9, komi 7.5, 181 moves in all."""
    return read(PROFESSIONAL, size=9)


def checked(record: Record, where: str, size: int) -> None:
    """Raise ConfigError if the board does not have `size` rows, komi does not end in .5, or a move is illegal."""
    if size and record.size != size:
        raise ConfigError(f"{where}: is played on {record.size}x{record.size}. Next: give games on {size}x{size}")
    try:
        rules = Rules(record.size, record.komi, max_moves=len(record.moves) + 1)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None
    boards = rules.start(1)
    for turn, move in enumerate(record.moves, start=1):
        if not rules.legal(boards)[0, move] or boards.over[0]:
            raise ConfigError(f"{where}, move {turn}: {vertex(move, record.size)} is illegal{_why(boards, move)}")
        boards = rules.play(boards, torch.tensor([move]))


def _why(boards: Boards, move: int) -> str:
    if boards.over[0]:
        return ": both players have passed before"
    if boards.stones[0, move]:
        return ": the point has a stone"
    return ": suicide, or a repeated position"


def positions(records: Sequence[Record], rules: Rules) -> tuple[Boards, torch.Tensor]:
    """Return every position in which a move was played, game after game, and that move, int64 [positions].

    Raises ConfigError if a record's board or komi differ from the rules, or it has more moves than `max_moves`.
    """
    before = [rules.start(0)]
    for record in records:
        if (record.size, record.komi) != (rules.size, rules.komi):
            raise ConfigError(
                f"game {record.name}: is on {record.size}x{record.size} with komi={record.komi:g}; the rules have"
                f" {rules.size}x{rules.size} and komi={rules.komi:g}. Next: give games by these rules"
            )
        if len(record.moves) > rules.max_moves:
            number, most = len(record.moves), rules.max_moves
            raise ConfigError(
                f"game {record.name}: has {number} moves, more than max_moves={most}. Next: leave it out, or give rules"
                " with a larger max_moves"
            )
        boards = rules.start(1)
        for move in record.moves:
            before.append(boards)
            boards = rules.play(boards, torch.tensor([move]))
    moves = torch.tensor([move for record in records for move in record.moves], dtype=torch.int64)
    return Boards(*map(torch.cat, zip(*before, strict=True))), moves
