"""GNU Go plays by our rules, in several games at once, and is named where it is missing."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from conf.schema import ConfigError
from tests.trainers.ops.go.random_games import random_moves
from trainers.ops.go import Rules, gnugo
from trainers.ops.go.gnugo import GnuGo, Process
from trainers.ops.go.vertices import move_at, vertex

needs_gnugo = pytest.mark.skipif(gnugo.installed() is None, reason="GNU Go is not installed: apt-get install gnugo")


@pytest.mark.slow
@needs_gnugo
@pytest.mark.parametrize("gnugos", [0, 1], ids=["black", "white"])
def test_it_beats_random_moves_in_every_game(gnugos: int) -> None:
    rules, generator = Rules(5, komi=0.5), torch.Generator().manual_seed(1)
    boards = rules.start(3)
    with GnuGo(rules, level=1) as player:
        while not boards.over.all():
            mine = int(boards.moves.max()) % 2 == gnugos
            moves = player.moves(boards) if mine else random_moves(rules.legal(boards), generator)
            assert rules.legal(boards).gather(1, moves[:, None]).all()
            boards = rules.play(boards, moves)
    assert ((rules.area_score(boards) > 0) == (gnugos == 0)).all()


@pytest.mark.slow
@needs_gnugo
def test_a_player_begins_anew_follows_passes_and_tells_its_colours_apart() -> None:
    rules = Rules(5, komi=0.5)
    with GnuGo(rules, level=1, seed=3) as player:
        first = player.moves(rules.start(2))
        other = rules.play(rules.start(2), first)
        replies = player.moves(other)
        assert player.moves(rules.start(2)).tolist() == first.tolist(), "the same seed in the next match"
        mine = rules.play(rules.start(2), first)
        mine = rules.play(mine, torch.full((2,), rules.pass_move))
        assert (player.moves(mine) != first).all(), "the other one has passed"
        later = rules.play(other, replies)
        for move in (0, 24, 4):
            later = rules.play(later, torch.tensor([move, move]))
        with pytest.raises(ValueError, match="knows 2 moves of this game and cannot play move 6"):
            player.moves(later)


def test_a_missing_gnu_go_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(gnugo, "PLACES", ())
    with pytest.raises(ConfigError, match=r"GNU Go is not installed\. Next: run `apt-get install gnugo`"):
        GnuGo(Rules())


PROGRAM = """
import sys
for line in sys.stdin:
    if line.startswith("end"):
        sys.exit(3)
    print("? unknown command" if line.startswith("bad") else f"= {line.strip()}", end="\\n\\n", flush=True)
"""


@pytest.mark.slow
def test_errors_and_the_end_of_a_program_are_told() -> None:
    process = Process([sys.executable, "-c", PROGRAM])
    try:
        process.send("first", "second")
        assert process.answer() == "second"
        process.send("bad move")
        with pytest.raises(RuntimeError, match=r"answers 'bad move' with '\? unknown command'"):
            process.answer()
        process.send("end")
        with pytest.raises(RuntimeError, match=r"ended with exit code 3 before it answered \['end'\]"):
            process.answer()
    finally:
        process.close()


def test_vertices_leave_out_the_letter_i() -> None:
    assert [vertex(move, 9) for move in (0, 8, 72, 80, 81)] == ["A9", "J9", "A1", "J1", "pass"]
    assert [move_at(vertex(move, 19), 19) for move in range(362)] == list(range(362))
    for name in ("I5", "K5", "A10", "A0"):
        with pytest.raises(ValueError, match=r".+"):
            move_at(name, 9)
