"""Kernels of Go's rules beside candidates: first whether all values are equal, then positions/s, then whole games.

    python benchmarks/go/kernels.py --out go_kernels.csv           # an H100: less than a minute

`different` counts the values in which a candidate differs from the present kernel, over all positions of random games
on boards of `--sizes`; it must be 0. A kernel is timed on the positions before every tenth move of random games on 9x9,
as one CUDA graph. Whole games are those of benchmarks/peers/go_rules.py, "as pgx" with planes and areas at each move.
"""

from __future__ import annotations

import argparse
import csv
import statistics
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from benchmarks.peers.beside import commit, machine
from benchmarks.peers.go_rules import KOMI, MAX_MOVES, SIZE, timed
from trainers.ops.go import Boards, Rules, rules_by_warp, rules_triton

PARTS = ("legal", "play", "planes", "area")
PRESENT, ONE_WARP = "present", "1 warp"
EVERY = 10  # moves from a timed position of a game to the next
Kernel = Callable[[Boards, torch.Tensor], Any]  # of boards and the moves that are played on them
Kernels = dict[str, dict[str, Kernel]]  # by part, then by variant


def kernels(rules: Rules, device: torch.device) -> Kernels:
    """The present kernel of each part, and candidates with several numbers of warps for a game."""
    grid, size = rules.grid(device), rules.size

    def with_warps(warps: int) -> dict[str, Kernel]:
        return {
            "legal": lambda boards, moves: rules_by_warp.legal(boards, grid, size, warps),
            "play": lambda boards, moves: rules_triton.play(boards, moves, grid, size, warps),
            "planes": lambda boards, moves: rules_by_warp.planes(boards, torch.bfloat16, warps),
            "area": lambda boards, moves: rules_by_warp.area(boards.stones, size),
        }

    of_now: dict[str, Kernel] = {
        "legal": lambda boards, moves: rules_triton.legal(boards, grid, size),
        "play": lambda boards, moves: rules_triton.play(boards, moves, grid, size),
        "planes": lambda boards, moves: rules_triton.planes(boards, torch.bfloat16),
        "area": lambda boards, moves: rules_triton.area(boards.stones, size),
    }
    variants = {PRESENT: of_now, ONE_WARP: with_warps(1), "2 warps": with_warps(2)}
    parts = {part: {name: kernel[part] for name, kernel in variants.items()} for part in PARTS}
    del parts["area"]["2 warps"]  # It always has one.
    return parts


def draw(legal: torch.Tensor) -> torch.Tensor:
    """A move for each game, drawn uniformly from the legal ones."""
    return (torch.rand(legal.shape, device=legal.device) + legal).argmax(dim=1)


def random_games(rules: Rules, batch: int, device: torch.device) -> Iterator[tuple[Boards, torch.Tensor]]:
    """Boards before each move of random games by the present kernels, and the moves, to the end."""
    of = kernels(rules, device)
    boards = rules.start(batch, device)
    for _ in range(rules.max_moves + 1):
        moves = draw(of["legal"][PRESENT](boards, torch.empty(0)))
        yield boards, moves
        boards = of["play"][PRESENT](boards, moves)


def differences(rules: Rules, batch: int, device: torch.device) -> Counter[str]:
    """In how many values each candidate differs from the present kernel in random games."""
    wrong = defaultdict[str, torch.Tensor](lambda: torch.zeros((), dtype=torch.int64, device=device))
    for boards, moves in random_games(rules, batch, device):
        for part, variants in kernels(rules, device).items():
            expected = variants[PRESENT](boards, moves)
            for name, kernel in variants.items():
                wrong[f"{part}, {name}"] += num_unequal(kernel(boards, moves), expected)
    return Counter({name: int(number) for name, number in wrong.items()})


def num_unequal(given: Any, expected: Any) -> torch.Tensor:
    pairs = list(zip(given, expected, strict=True)) if isinstance(given, Boards) else [(given, expected)]
    assert all(value.dtype == other.dtype and value.shape == other.shape for value, other in pairs)
    return torch.stack([(value != other).sum() for value, other in pairs]).sum()


def replayed(call: Callable[[], torch.Tensor], device: torch.device) -> Callable[[], int]:
    """A function that returns the call's number, from a captured graph on a GPU."""
    if device.type != "cuda":
        return lambda: int(call())
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        call()  # compiles the kernels
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        number = call()

    def replay() -> int:
        graph.replay()
        return int(number)

    return replay


def whole_games(batch: int, of: dict[str, Kernel], like_pgx: bool, device: torch.device) -> Callable[[], torch.Tensor]:
    rules = Rules(SIZE, KOMI, MAX_MOVES)
    start = rules.start(batch, device)

    def games() -> torch.Tensor:
        boards, moves = start, torch.empty(0)
        for _ in range(MAX_MOVES):
            moves = draw(of["legal"](boards, moves))
            boards = of["play"](boards, moves)
            for part in ("planes", "area") if like_pgx else ():
                of[part](boards, moves)
        return boards.moves.sum()

    return games


def variants(batch: int, device: torch.device) -> Iterator[tuple[str, Callable[[], int]]]:
    """Kernels one by one, then games by the present kernels and by those of one warp."""
    rules = Rules(SIZE, KOMI, MAX_MOVES)
    tenth = [pair for number, pair in enumerate(random_games(rules, batch, device)) if number % EVERY == EVERY // 2]
    positions = torch.tensor(batch * len(tenth), device=device)
    of = kernels(rules, device)
    for part in PARTS:
        for name, kernel in of[part].items():

            def call(kernel: Kernel = kernel) -> torch.Tensor:
                for boards, moves in tenth:
                    kernel(boards, moves)
                return positions

            yield f"{part}, {name}", replayed(call, device)
    for name in (PRESENT, ONE_WARP):
        chosen = {part: of[part][name] for part in PARTS}
        yield f"games, {name}", replayed(whole_games(batch, chosen, False, device), device)
        yield f"games as pgx, {name}", replayed(whole_games(batch, chosen, True, device), device)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[4096, 32768], help="games at once")
    parser.add_argument("--sizes", type=int, nargs="+", default=[3, 5, 9, 19], help="boards of the comparison")
    parser.add_argument("--checked", type=int, default=2048, help="random games of each size that are compared")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=Path("go_kernels.csv"))
    parser.add_argument("--commit", default=commit(), help="for a checkout without .git")
    arguments = parser.parse_args()
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    wrong, began = Counter[str](), time.perf_counter()
    for size in arguments.sizes:
        wrong.update(differences(Rules(size), arguments.checked, device))
    print(f"compared in {time.perf_counter() - began:.1f} s; values that differ: {dict(wrong)}", flush=True)
    with arguments.out.open("w", newline="", encoding="utf-8") as file:
        writer = None
        for batch in arguments.batches:
            for name, play in variants(batch, device):
                play()
                rates = timed(play, arguments.rounds)
                row = {
                    "variant": name,
                    "games": batch,
                    "rounds": len(rates),
                    "per_sec": round(statistics.median(rates)),
                }
                row |= {"lowest": round(min(rates)), "highest": round(max(rates)), "different": wrong.get(name)}
                row |= machine(arguments.commit, device)
                print(f"{name:24} {batch:6} games: {row['per_sec']:14,} a second", flush=True)
                writer = writer or csv.DictWriter(file, list(row))
                if not file.tell():
                    writer.writeheader()
                writer.writerow(row)
                file.flush()
    return 1 if any(wrong.values()) else 0


if __name__ == "__main__":
    raise SystemExit(main())
