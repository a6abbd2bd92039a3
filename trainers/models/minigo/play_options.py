"""MiniGo's options for play, training and evaluation: their checks, and the memory that they need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from conf.schema import ConfigError
from trainers.models.minigo.positions import position_bytes
from trainers.models.minigo.self_play import Customs
from trainers.models.schedule import check_below_one, is_count, is_number, require
from trainers.ops.go import Rules
from trainers.ops.tree_search import Settings

OPPONENTS = ("random", "one_ply", "frozen")
USABLE = 0.8  # share of the free memory; the rest is for the network, the training and fragmentation


@dataclass(frozen=True)
class Options:
    """MiniGo's options. Numbers of games are totals over all processes."""

    rules: Rules
    customs: Customs
    games: int  # in a generation
    games_at_once: int  # on a device
    search: Settings  # for self-play
    match: Settings  # for the gate and for games against opponents
    gate_games: int
    gate: float  # share of the gate's games that a new network has to win
    opponents: tuple[str, ...]
    eval_games: int  # against each opponent
    seed: int = 0
    window: int = 2_000_000  # positions

    def __post_init__(self) -> None:
        check_counts(
            games=self.games, games_at_once=self.games_at_once, gate_games=self.gate_games, eval_games=self.eval_games,
            window=self.window,
        )  # fmt: skip
        check_shares(never_resign=self.customs.never_resign, gate=self.gate)
        resign = self.customs.resign_at
        require("resign", resign, is_number(resign) and -1 <= resign < 1, "from -1 (never resign) to below 1")
        for name in ("temperature_moves", "match_temperature_moves"):
            moves = getattr(self.customs, name)
            require(name, moves, is_count(moves), "a whole number of moves, 0 or more")

    def slots(self, world_size: int) -> int:
        return min(self.games_at_once, -(-self.games // world_size))

    def check_memory(self, available: int, world_size: int, pro_search: int = 0) -> None:
        """Raise ConfigError if trees and positions do not fit; the message says how many games at once would.

        `pro_search` is the size of the search for professional moves in bytes.
        """
        kept = (self.window + self.games * self.rules.max_moves) // world_size
        matches = 2 * -(-max(self.gate_games, self.eval_games) // world_size) * self.match.bytes_per_game(self.rules)
        per_game = self.search.bytes_per_game(self.rules)
        if kept * position_bytes(self.rules) > USABLE * available:
            fits = int(USABLE * available * world_size / position_bytes(self.rules))
            larger = "games" if self.games * self.rules.max_moves > self.window else "window"
            raise ConfigError(
                f"model.hparams.{larger}={getattr(self, larger)}: a window of {self.window} positions and those of"
                f" {self.games} games, of up to {self.rules.max_moves} moves, do not fit into the memory; about {fits}"
                f" positions would fit. Next: give a smaller model.hparams.{larger}"
            )
        room = int(USABLE * available) - kept * position_bytes(self.rules) - matches - pro_search
        slots = self.slots(world_size)
        if slots * per_game <= room:
            return
        fits = max(0, room // per_game)
        advice = f"about model.hparams.games_at_once={fits} would fit" if fits else "not one game would fit"
        raise ConfigError(
            f"model.hparams.games_at_once={self.games_at_once}: the trees of {slots:,} games with"
            f" {self.search.readouts} readouts take {slots * per_game / 1e9:,.1f} GB, but only"
            f" {max(0, room) / 1e9:,.1f} GB are free for them; {advice}. Next: give fewer games or"
            " model.hparams.readouts"
        )


def check_counts(**counts: Any) -> None:
    for name, value in counts.items():
        require(name, value, is_count(value) and value >= 1, "a whole number, 1 or more")


def check_shares(**shares: Any) -> None:
    for name, value in shares.items():
        require(name, value, is_number(value) and 0 <= value <= 1, "a share, from 0 to 1")


def check_rules(board: Any, komi: Any) -> None:
    require("board", board, is_count(board) and 2 <= board <= 19, "a whole number of rows, 2 to 19")
    halves = is_number(komi) and komi * 2 % 2 == 1
    require("komi", komi, halves, "a number that ends in .5, such as 7.5, so that no game is drawn")


def settings(prefix: str, readouts: int, leaves: int, noise: bool = False) -> Settings:
    """Return the settings of a search whose options have this prefix. Raises ConfigError."""
    try:
        return Settings(readouts, leaves, noise)
    except ConfigError as error:
        raise ConfigError(f"model.hparams.{prefix}{str(error).replace(' leaves=', f' {prefix}leaves=')}") from error


def check_schedule(momentum: Any, decay_steps: Any) -> None:
    check_below_one(momentum=momentum)
    steps = isinstance(decay_steps, Sequence) and all(map(is_count, decay_steps))
    ascends = steps and list(decay_steps) == sorted(decay_steps)
    require("decay_steps", decay_steps, ascends, "ascending numbers of steps")


def checked_opponents(opponents: Sequence[str], frozen: str | None, digest: str | None) -> tuple[str, ...]:
    """Return the opponents without duplicates.

    Raises ConfigError for an unknown opponent, for "frozen" without its file or the reverse, and for a digest without a
    file.
    """
    listed = isinstance(opponents, Sequence) and not isinstance(opponents, str)
    known = listed and all(name in OPPONENTS for name in opponents)
    require("opponents", opponents, known, f"a list of some of {', '.join(OPPONENTS)}")
    if ("frozen" in opponents) != (frozen is not None):
        raise ConfigError(
            f"model.hparams.frozen={frozen}: goes with frozen in model.hparams.opponents. Next: give both, or neither;"
            " the file is the model.pt of the network to play against"
        )
    if digest is not None and frozen is None:
        raise ConfigError(
            f"model.hparams.frozen_digest={digest}: has no effect without model.hparams.frozen. Next: give the file"
            " too, or leave it out"
        )
    return tuple(dict.fromkeys(opponents))
