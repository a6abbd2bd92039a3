"""What a Go player knows by name, each on a board drawn by hand."""

from __future__ import annotations

import pytest
import torch

from conf.schema import ConfigError
from trainers.ops.go import Rules

BLACK, WHITE = 1, -1
PASS = (-1, -1)


class Game:
    """One game from a drawn board: X black, O white. Points are (row, column) from the top left."""

    def __init__(self, drawing: str, to_play: int = BLACK, komi: float = 7.5) -> None:
        rows = drawing.split()
        self.size = len(rows)
        self.rules = Rules(self.size, komi, max_moves=200)
        self.boards = self.rules.start(1)
        for row, signs in enumerate(rows):
            for column, sign in enumerate(signs):
                if sign != ".":
                    self.turn(BLACK if sign == "X" else WHITE)
                    self.play((row, column))
        self.turn(to_play)
        assert self.drawing == " ".join(rows)

    def turn(self, colour: int) -> None:
        if int(self.boards.to_play[0]) != colour:
            self.play(PASS)

    def move(self, point: tuple[int, int]) -> int:
        return self.rules.pass_move if point == PASS else point[0] * self.size + point[1]

    def allows(self, point: tuple[int, int]) -> bool:
        return bool(self.rules.legal(self.boards)[0, self.move(point)])

    def play(self, *points: tuple[int, int]) -> Game:
        for point in points:
            assert self.allows(point), f"{point} on {self.drawing}"
            self.boards = self.rules.play(self.boards, torch.tensor([self.move(point)]))
        return self

    @property
    def drawing(self) -> str:
        signs = "".join(".XO"[stone] for stone in self.boards.stones[0].tolist())
        return " ".join(signs[row : row + self.size] for row in range(0, len(signs), self.size))

    @property
    def score(self) -> float:
        return float(self.rules.area_score(self.boards)[0])


@pytest.mark.parametrize(
    ("before", "point", "after"),
    [
        ("..... .XOX. ..X.. ..... .....", (0, 2), "..X.. .X.X. ..X.. ..... ....."),
        ("..X.. .XOX. XO... .X... .....", (2, 2), "..X.. .X.X. X.X.. .X... ....."),  # two chains at once
        (".OX.. OX... X.... ..... .....", (0, 0), "X.X.. .X... X.... ..... ....."),  # without a liberty of its own
        (".OO.. OOX.. XX... ..... .....", (0, 3), ".OOX. OOX.. XX... ..... ....."),  # an eye is left
    ],
)
def test_a_move_captures_the_chains_whose_last_liberty_it_takes(
    before: str, point: tuple[int, int], after: str
) -> None:
    assert Game(before).play(point).drawing == after


def test_suicide_is_forbidden_for_one_stone_and_for_several() -> None:
    assert not Game(".O... O.... ..... ..... .....").allows((0, 0))
    several = Game("X.O.. OO... ..... ..... .....")
    assert not several.allows((0, 1))
    assert several.play(PASS, (0, 1)).drawing == ".OO.. OO... ..... ..... ....."


KO = "..XO. .XO.O ..XO. ..... ....."


def test_a_ko_is_taken_back_after_a_threat_and_not_before() -> None:
    game = Game(KO).play((1, 3))
    assert game.drawing == "..XO. .X.XO ..XO. ..... ....."
    assert not game.allows((1, 2))
    game.play((4, 0), (4, 4), (1, 2))
    assert game.drawing == "..XO. .XO.O ..XO. ..... O...X"
    assert not game.allows((1, 3)), "the position after the threat was answered"


def test_three_kos_end_where_the_first_position_would_return() -> None:
    """No ko is taken back at once, so a rule that looks back by a move or two would allow the circle."""
    taken, free = "..XO..... .X.XO.... ..XO.....", "..XO..... .XO.O.... ..XO....."
    game = Game(f"{free} {taken} {free}").play((1, 3), (4, 2), (7, 3), (1, 2), (4, 3))
    assert int(game.boards.to_play[0]) == WHITE
    assert not game.allows((7, 2))
    assert game.play((0, 8), (8, 8)).allows((7, 2))


def test_sending_two_and_returning_one_is_forbidden() -> None:
    game = Game(".O.O. XXO.. ..... ..... .....", WHITE).play((0, 0), (0, 2))
    assert game.drawing == "..XO. XXO.. ..... ..... ....."
    assert not game.allows((0, 1))
    assert game.play((4, 4), (4, 0)).allows((0, 1))


def test_a_snapback_takes_what_has_captured() -> None:
    game = Game("..OX. OOOX. XXX.. ..... .....").play((0, 1), (0, 0))
    assert game.drawing == "O.OX. OOOX. XXX.. ..... ....."
    assert game.play((0, 1)).drawing == ".X.X. ...X. XXX.. ..... ....."


SEKI = ".OX.OX. OOXXOXX .OXXOX. OOXXOXX OOXXOXX OOXXOXX OOX.OXX"


def test_a_seki_s_shared_liberties_are_nobodys() -> None:
    assert Game(SEKI, komi=0.5).score == 26 - 21 - 0.5


@pytest.mark.parametrize(("first", "score"), [(BLACK, 14 - 35), (WHITE, 35 - 14)])
def test_who_plays_first_in_a_seki_loses_the_chain(first: int, score: int) -> None:
    game = Game(SEKI, first, komi=0.5).play((0, 3), (6, 3))
    assert game.score == score - 0.5


def test_an_eye_of_the_other_player_is_no_point_to_play() -> None:
    game = Game(SEKI, BLACK)
    assert not game.allows((0, 0))
    assert game.allows((0, 6)), "one's own eye may be filled"


@pytest.mark.parametrize(
    ("drawing", "score"),
    [
        ("... ... ...", 0),  # nobody's
        ("... .X. ...", 9),
        (".X. ..O ...", 0),
        (".XO XXO OO.", 4 - 5),
        ("X.O X.O X.O", 0),
    ],
)
def test_area_is_stones_and_the_regions_that_touch_one_colour(drawing: str, score: int) -> None:
    assert Game(drawing, komi=0.5).score == score - 0.5


def test_two_passes_end_a_game_which_then_stays_as_it_is() -> None:
    game = Game("..... .X.O. ..... ..... .....").play(PASS)
    assert not game.boards.over[0]
    game.play((4, 4))
    assert game.boards.passes.tolist() == [0]
    game.play(PASS, PASS)
    assert game.boards.over[0]
    assert game.rules.legal(game.boards).nonzero().tolist() == [[0, 25]]
    for move in (0, game.rules.pass_move):
        after = game.rules.play(game.boards, torch.tensor([move]))
        assert all(torch.equal(*pair) for pair in zip(game.boards, after, strict=True))


def test_a_game_ends_at_its_limit_and_others_go_on() -> None:
    rules = Rules(5, max_moves=3)
    boards = rules.start(2)
    assert Rules(9).max_moves == 113
    for first, second in ((0, 25), (1, 25), (2, 25)):
        boards = rules.play(boards, torch.tensor([first, second]))
    assert boards.over.tolist() == [True, True]
    assert boards.moves.tolist() == [3, 2]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"komi": 7}, "komi=7: must end in .5"),
        ({"komi": 7.25}, "komi=7.25: "),
        ({"komi": float("nan")}, "komi=nan: "),
        ({"size": 1}, "size=1: must be 2 to 19 rows"),
        ({"size": 20}, "size=20: "),
        ({"max_moves": -1}, "max_moves=-1: "),
    ],
)
def test_rules_that_cannot_be_are_refused(words: dict[str, float], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Rules(**words)  # type: ignore[arg-type]
