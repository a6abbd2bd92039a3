"""Options of MiniGo that cannot be, or do not fit into the memory, are refused."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from conf.schema import ConfigError
from tests.trainers.models.minigo_parts import minigo, options
from trainers.models.minigo.pro_moves import ProMoves, pro_games
from trainers.ops.go import Rules
from trainers.ops.tree_search import Settings


def refuse_target() -> None:
    minigo().check_targets({"pro_moves"})


REFUSED: list[tuple[Callable[[], object], str]] = [
    (lambda: minigo(readouts=9), "readouts=9: .*leaves=2.* such as 8"),
    (lambda: minigo(readouts=1), "readouts=1: .*leaves=2.* such as 2"),
    (lambda: minigo(match_readouts=9), r"model\.hparams\.match_readouts=9: .*match_leaves=8.* such as 8"),
    (lambda: minigo(momentum=1.0), r"model\.hparams\.momentum=1\.0: must be from 0 to below 1"),
    (lambda: minigo(window=10**15).check_batch(8), r"model\.hparams\.window=10{15}: .* about \d+ positions would fit"),
    (lambda: minigo(frozen_digest="12345678"), r"frozen_digest=12345678: has no effect without model\.hparams\.frozen"),
    (lambda: minigo(opponents=["gnugo"]), "opponents=.*random, one_ply, frozen"),
    (
        lambda: minigo(games=10**15).check_batch(8),
        r"model\.hparams\.games=10{15}: .* give a smaller model.hparams.games",
    ),
    (lambda: minigo(opponents=["frozen"]), "frozen=None: goes with frozen in model.hparams.opponents"),
    (lambda: minigo(frozen="m"), "frozen=m: goes with"),
    (lambda: minigo(komi=7), r"model\.hparams\.komi="),
    (lambda: minigo(komi="abc"), r"model\.hparams\.komi="),
    (lambda: minigo(komi=None), r"model\.hparams\.komi="),
    (lambda: minigo(board=20), r"model\.hparams\.board="),
    (lambda: minigo(board="9x9"), r"model\.hparams\.board="),
    (lambda: minigo(board=9.0), r"model\.hparams\.board="),
    (lambda: minigo(board=5.5), r"model\.hparams\.board="),
    (lambda: minigo(readouts="x"), r"model\.hparams\.readouts="),
    (lambda: minigo(readouts=200.0), r"model\.hparams\.readouts="),
    (lambda: minigo(leaves=None), r"model\.hparams\.leaves="),
    (lambda: minigo(match_leaves=None), r"model\.hparams\.match_leaves="),
    (lambda: minigo(resign="never"), r"model\.hparams\.resign="),
    (lambda: minigo(resign=None), r"model\.hparams\.resign="),
    (lambda: minigo(opponents=[["random"]]), r"model\.hparams\.opponents="),
    (lambda: minigo(temperature_moves="x"), r"model\.hparams\.temperature_moves="),
    (lambda: minigo(temperature_moves=None), r"model\.hparams\.temperature_moves="),
    (lambda: minigo(match_temperature_moves=None), r"model\.hparams\.match_temperature_moves="),
    (lambda: minigo(pro_moves=True), "pro_moves=false"),
    (lambda: minigo(resign=1.5), "resign=1.5"),
    (lambda: minigo(gate=1.5), "gate=1.5"),
    (lambda: minigo(games=0), "games=0"),
    (lambda: minigo(decay_steps=[3, 1]), "decay_steps"),
    (refuse_target, "pro_moves: true"),
]


@pytest.mark.parametrize(("ask", "words"), REFUSED)
def test_options_that_cannot_be_are_refused(ask: Callable[[], object], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        ask()


def test_trees_that_do_not_fit_are_refused_with_how_many_games_would() -> None:
    given = options(rules=Rules(), games=10_000, games_at_once=8192, search=Settings(200, 8))
    per_game = given.search.bytes_per_game(given.rules)
    assert 200 * 2 * 3000 < per_game < 200 * 2 * 6000  # a node has some 3 kB
    with pytest.raises(
        ConfigError, match=r"games_at_once=8192: .* about model.hparams.games_at_once=(\d+) would fit"
    ) as told:
        given.check_memory(10 * 10**9, 1)
    fits = int(str(told.value).split("about model.hparams.games_at_once=")[1].split()[0])
    options(rules=Rules(), games=10_000, games_at_once=fits, search=Settings(200, 8)).check_memory(10 * 10**9, 1)


def test_the_professionals_positions_take_their_part_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    module = minigo(board=9, komi=7.5, pro_moves=True)
    rules, pro = module.options.rules, ProMoves(Rules(), pro_games(Rules()))
    assert pro.search_bytes(1) == 362 * pro.settings.bytes_per_game(rules)
    assert pro.search_bytes(4) == 91 * pro.settings.bytes_per_game(rules)
    monkeypatch.setattr("trainers.models.minigo.module.available_bytes", lambda: int(1.2 * pro.search_bytes(1)))
    with pytest.raises(ConfigError, match="not one game would fit"):
        module.check_batch(16)
    minigo(board=9, komi=7.5).check_batch(16)
