"""Play a trained MiniGo network against GNU Go, as an anchor of its strength.

    python benchmarks/peers/gnugo_match.py RUN/model.pt --games 100 --level 10 --readouts 200

The network plays by search, black in half of the games. Each game has a process of GNU Go (`apt-get install gnugo`).
Prints the share of games won with its 95 % interval (Wilson), and the same in Elo.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch
from scipy import stats

from trainers.models.minigo.elo import difference
from trainers.models.minigo.frozen import digest_of, load_network
from trainers.models.minigo.matches import Searcher, wins_of
from trainers.models.minigo.network import Evaluator
from trainers.ops.go import Rules
from trainers.ops.go.gnugo import GnuGo
from trainers.ops.tree_search import Settings


def match(arguments: argparse.Namespace, device: torch.device) -> tuple[int, str]:
    """Number of games that the network wins, and its digest."""
    net, komi = load_network(arguments.model)
    rules = Rules(net.sizes.board, komi)
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    settings = Settings(arguments.readouts, arguments.leaves)
    player = Searcher(rules, Evaluator(net.to(device), dtype), settings, arguments.games // 2 + 1, device, dtype)
    with GnuGo(rules, arguments.level, arguments.seed) as opponent:
        games = torch.arange(arguments.games, device=device)
        wins = wins_of(rules, player, opponent, games, arguments.games, (arguments.seed,))
    return int(wins.sum()), digest_of(net)


def summary(wins: int, games: int) -> str:
    low, high = stats.binomtest(wins, games).proportion_ci(method="wilson")
    elo = [difference(number, games) for number in (wins, games * low, games * high)]
    return (
        f"{wins} of {games} games won, {wins / games:.2f} [{low:.2f}, {high:.2f}];"
        f" Elo over GNU Go {elo[0]:+.0f} [{elo[1]:+.0f}, {elo[2]:+.0f}]"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="model.pt of a run with model=minigo save_model=final")
    parser.add_argument("--games", type=int, default=100)
    parser.add_argument("--level", type=int, default=10, help="GNU Go's level, 0 to 10")
    parser.add_argument("--readouts", type=int, default=200)
    parser.add_argument("--leaves", type=int, default=8)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    begun = time.perf_counter()
    wins, digest = match(arguments, device)
    print(f"network {digest}, {arguments.readouts} readouts, against GNU Go at level {arguments.level}:")
    print(f"{summary(wins, arguments.games)} ({time.perf_counter() - begun:.0f} s)")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
