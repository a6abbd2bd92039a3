"""Play MiniGo's networks against each other: every pair of the given ones.

    python benchmarks/steps/minigo_match.py A/model.pt B/model.pt untrained --games 200
    python benchmarks/steps/minigo_match.py A/model.pt A/model.pt --games 1000 --plain     # the search against itself

Each pair plays `--games` games, half of them with each colour. Prints the first one's share of games won with its 95 %
interval (Wilson), and the same in Elo. `untrained` has first weights. With --plain the second player of a pair
searches in float32, and its trees by PyTorch's operators, without compilation and CUDA graphs: equal strength shows
that kernels, graphs and rounding cost none.
"""

from __future__ import annotations

import argparse
import itertools
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
from trainers.models.minigo.network import Evaluator, GoNet, Sizes
from trainers.ops.go import Rules
from trainers.ops.tree_search import Search, Settings, descent

UNTRAINED = "untrained"


def network(name: str, seed: int) -> tuple[GoNet, float]:
    """Network of a file, or with first weights, and its komi."""
    if name != UNTRAINED:
        return load_network(Path(name))
    torch.manual_seed(seed)
    return GoNet(Sizes()).eval(), Rules().komi


def player(net: GoNet, rules: Rules, arguments: argparse.Namespace, device: torch.device, plain: bool) -> Searcher:
    on_gpu = device.type == "cuda" and not plain
    dtype = torch.bfloat16 if on_gpu else torch.float32
    evaluator = Evaluator(net.to(device), dtype, compile=on_gpu)
    settings = Settings(arguments.readouts, arguments.leaves)
    made = Searcher(rules, evaluator, settings, arguments.games // 2 + 1, device, dtype)
    if plain:
        made.search = Search(rules, evaluator, settings, arguments.games // 2 + 1, device, dtype, graphs=False)
        made.search._select, made.search._back_up = descent.select, descent.back_up
    return made


def summary(wins: int, games: int) -> str:
    low, high = stats.binomtest(wins, games).proportion_ci(method="wilson")
    elo = [difference(number, games) for number in (wins, games * low, games * high)]
    share = f"{wins} of {games}, {wins / games:.3f} [{low:.3f}, {high:.3f}]"
    return f"{share}; Elo {elo[0]:+.0f} [{elo[1]:+.0f}, {elo[2]:+.0f}]"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", help=f"model.pt of a run with save_model=final, or {UNTRAINED}")
    for name, value in (("games", 200), ("readouts", 200), ("leaves", 8), ("seed", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--plain", action="store_true", help="the second player searches in float32 without kernels")
    arguments = parser.parse_args(argv)
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    nets, komi = zip(*(network(name, arguments.seed) for name in arguments.models), strict=True)
    boards = {(net.sizes.board, of_net) for net, of_net in zip(nets, komi, strict=True)}
    if len(boards) > 1:
        parser.error(f"models: play on boards with komi {sorted(boards)}. Next: give networks of one board and komi")
    rules = Rules(*boards.pop())
    for name, net in zip(arguments.models, nets, strict=True):
        print(f"{name}: network {digest_of(net)}", flush=True)
    firsts = [player(net, rules, arguments, device, plain=False) for net in nets]
    seconds = [player(net, rules, arguments, device, plain=True) for net in nets] if arguments.plain else firsts
    games = torch.arange(arguments.games, device=device)
    for first, second in itertools.combinations(range(len(nets)), 2):
        begun = time.perf_counter()
        wins = wins_of(rules, firsts[first], seconds[second], games, arguments.games, (arguments.seed,))
        names = f"{arguments.models[first]} against {arguments.models[second]}"
        print(f"{names}: {summary(int(wins.sum()), arguments.games)} ({time.perf_counter() - begun:.0f} s)", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
