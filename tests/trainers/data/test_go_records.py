"""SGF files become games whose moves are legal; what cannot is refused by file and move."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from conf.schema import ConfigError
from trainers.data.go_records import digest, positions, professional_games, read
from trainers.ops.go import Rules


def written(folder: Path, text: str, name: str = "game.sgf") -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_the_professional_games_are_four_of_181_moves_with_source_and_licence() -> None:
    games = professional_games()
    assert {game.name: len(game.moves) for game in games} == {"IYHN": 30, "IYMD": 62, "YKSH": 42, "YSIY": 47}
    assert {(game.size, game.komi) for game in games} == {(9, 7.5)}
    assert digest(games) == "a3225a10e61bf5a59c9d7b6caef6d17612808e7583a595ebcdfc8433102f1044"
    text = (Path(read.__code__.co_filename).with_name("professional.sgf")).read_text()
    assert text.count("SO[mlcommons/training at 7788f8d7") == text.count("Apache License 2.0") == 4


def test_positions_are_those_in_which_the_moves_were_played() -> None:
    games, rules = professional_games(), Rules()
    boards, moves = positions(games, rules)
    assert len(moves) == len(boards.over) == 181
    assert rules.legal(boards).gather(1, moves[:, None]).all()
    assert boards.moves.tolist() == [turn for game in games for turn in range(len(game.moves))]
    assert boards.stones[2].nonzero()[:, 0].tolist() == sorted(games[0].moves[:2])


def test_a_record_is_its_main_line(tmp_path: Path) -> None:
    text = r"""Junk before. (;GM[1]SZ[5]KM[0.5]GN[A \] name]
        C[a comment with ( ; [ and \] in it];B[aa];W[ee](;B[bc](;W[];B[tt])(;W[cc]))(;B[dd];W[de]))
        (
        ;SZ[3]KM[-1.5];Black[ba])"""
    first, second = read(written(tmp_path, text))
    assert (first.name, first.size, first.komi, first.moves) == (r"A \] name", 5, 0.5, (0, 24, 11, 25, 25))
    assert (second.name, second.size, second.komi, second.moves) == ("2", 3, -1.5, (1,))


def test_a_node_may_begin_on_the_line_after_the_parenthesis(tmp_path: Path) -> None:
    (game,) = read(written(tmp_path, "\N{BYTE ORDER MARK}(\r\n;SZ[3]KM[7.5]\r\n;B[aa]\r\n)\r\n"))
    assert (game.size, game.moves) == (3, (0,))


def test_a_digest_is_of_the_games_and_not_of_what_else_files_say(tmp_path: Path) -> None:
    written(tmp_path, "(;SZ[5]KM[7.5];B[aa];W[bb])", "1.sgf")
    written(tmp_path, "(;SZ[5]KM[7.5];B[cc])", "2.sgf")
    together = written(tmp_path, "(;GN[x]KM[7.5]SZ[5];B[aa]C[!];W[bb])\n(;SZ[5]KM[7.5];B[cc])", "both")
    assert digest(read(tmp_path)) == digest(read(together))
    assert digest(read(tmp_path)) != digest(read(tmp_path / "1.sgf"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(;SZ[9]KM[7.5];B[aa];W[b", r"game.sgf: is damaged at character 22, near '\[b'"),
        ("(;SZ[9]KM[7.5];B[aa];W[bb]", "is truncated after 3 nodes of game 1: a parenthesis is open"),
        ("(;SZ[9]KM[7.5];B[aa]) ;W[bb]", "outside of a game"),
        ("no game", "no game of Go"),
        ("", "no game of Go"),
        ("(;SZ[19]KM[7.5];B[aa])", "game 1: is played on 19x19. Next: give games on 9x9"),
        ("(;KM[7.5];B[aa])", "is played on 19x19"),
        ("(;SZ[9:8]KM[7.5];B[aa])", r"SZ=\['9:8'\]"),
        ("(;SZ[9]KM[7];B[aa])", r"game.sgf, game 1: komi=7: must end in .5"),
        ("(;SZ[9]KM[much];B[aa])", r"KM=\['much'\]"),
        ("(;SZ[9]KM[7.5]GN[x];B[aa];W[aa])", "game.sgf, game x, move 2: A9 is illegal: the point has a stone"),
        ("(;SZ[9]KM[7.5];B[ba];W[ii];B[ab];W[aa])", "move 4: A9 is illegal: suicide, or a repeated position"),
        ("(;SZ[9]KM[7.5];B[];W[];B[aa])", "move 3: A9 is illegal: both players have passed"),
        ("(;SZ[9]KM[7.5];B[];W[];B[])", "move 3: pass is illegal: both players have passed"),
        ("(;SZ[9]KM[7.5];B[aa];W[jj])", r"move 2: W\[jj\] is outside of a board of 9x9"),
        ("(;SZ[9]KM[7.5];B[a])", r"move 1: B\[a\] is outside of a board"),
        ("(;SZ[9]KM[7.5];B[aa];B[bb])", r"move 2: B\[bb\], but it is not B's turn"),
        ("(;SZ[9]KM[7.5]AB[aa][bb];W[cc])", "sets up stones"),
        ("(;GM[2]SZ[9]KM[7.5];B[aa])", r"GM\[2\], which is not Go"),
        ("(;SZ[9]KM[7.5];B[aa][bb])", "game.sgf, game 1: has several values of one B. Next"),
        ("(;SZ[9][13]KM[7.5];B[aa])", "has several values of one SZ"),
    ],
)
def test_what_cannot_be_read_is_refused_by_file_and_move(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        read(written(tmp_path, text), size=9)
    assert "game.sgf" in str(refused.value)


def test_a_ko_taken_back_at_once_is_named(tmp_path: Path) -> None:
    moves = ["ba", "ca", "ab", "db", "bc", "cc", "ii", "bb", "cb"]  # black's bb's white stone is taken by cb
    record = "".join(f";{'BW'[turn % 2]}[{point}]" for turn, point in enumerate(moves))
    game = f"(;SZ[9]KM[7.5]{record}"
    assert len(read(written(tmp_path, f"{game})"))[0].moves) == 9
    with pytest.raises(ConfigError, match="move 10: B8 is illegal: suicide, or a repeated position"):
        read(written(tmp_path, f"{game};W[bb])"))


def test_a_pipe_in_place_of_games_is_named(tmp_path: Path) -> None:
    (tmp_path / "game.sgf").symlink_to(os.devnull)
    with pytest.raises(ConfigError, match=r"game.sgf: cannot be read \(is not a regular file\)\. Next: give a"):
        read(tmp_path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nothing.sgf: cannot be read \(No such file"):
        read(tmp_path / "nothing.sgf")
    with pytest.raises(ConfigError, match=r"has no \*.sgf"):
        read(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.sgf")
    with pytest.raises(ConfigError, match=r"pipe.sgf: cannot be read \(is not a regular file"):
        read(tmp_path)


def test_positions_are_refused_under_other_rules() -> None:
    games = professional_games()
    for rules, message in ((Rules(komi=6.5), "komi=6.5"), (Rules(5), "have 5x5"), (Rules(max_moves=20), "30 moves")):
        with pytest.raises(ConfigError, match=f"game IYHN: .*{message}"):
            positions(games, rules)


def test_positions_of_no_games_are_none() -> None:
    boards, moves = positions([], Rules())
    assert len(boards.over) == len(moves) == 0
    assert moves.dtype == torch.int64
