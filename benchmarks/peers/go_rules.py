"""Moves/s of random Go games played to their end: our rules, pgx's and open-spiel's.

    python benchmarks/peers/go_rules.py --packages FOLDER --out go_rules.csv

FOLDER holds pgx, svgwrite and open-spiel if they are not installed (`pip install --target FOLDER --no-deps pgx svgwrite
open-spiel`). Each engine runs in a process of its own: ours and pgx on the same GPU, open-spiel on one core.

All play 9x9 with komi 7.5 and at most 113 moves. Each move is drawn uniformly from the legal ones, pass included. Moves
after the end of a game do not count. pgx's step also computes a network's input and the rewards. "ours, as pgx"
computes both at each move, too; "ours" only plays. Ours is a CUDA graph of whole games, pgx one compiled loop. A move
that repeats a position ends the game in pgx and open-spiel; our rules forbid it.
"""

from __future__ import annotations

import argparse
import csv
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch

from benchmarks.peers.beside import commit, machine
from trainers.ops.go import Rules

SIZE, KOMI, MAX_MOVES = 9, 7.5, 113
ENGINES = ("ours", "pgx", "open-spiel")
OPEN_SPIEL_SEC = 5.0
Row = dict[str, Any]


def timed(play: Callable[[], int], rounds: int) -> list[float]:
    """Moves a second of each round. `play` plays games to their end, synchronises, and returns their moves."""
    rates = []
    for _ in range(rounds):
        begun = time.perf_counter()
        moves = play()
        rates.append(moves / (time.perf_counter() - begun))
    return rates


def ours(batch: int, device: torch.device, like_pgx: bool) -> Callable[[], int]:
    """A function that plays whole games: a captured graph on a GPU, move by move on a CPU."""
    rules = Rules(SIZE, KOMI, MAX_MOVES)
    start = rules.start(batch, device)

    def games() -> torch.Tensor:
        boards, scores = start, torch.zeros((), device=device)
        for _ in range(MAX_MOVES):
            draws = torch.rand(batch, rules.num_moves, device=device) + rules.legal(boards)
            boards = rules.play(boards, draws.argmax(dim=1))
            if like_pgx:
                rules.planes(boards, torch.bfloat16)
                scores = rules.area_score(boards)
        return boards.moves.sum() + 0 * scores.sum().long()

    if device.type != "cuda":
        return lambda: int(games())
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        games()  # compiles the kernels
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        moves = games()

    def replayed() -> int:
        graph.replay()
        return int(moves)

    return replayed


def pgx_games(batch: int) -> Callable[[], int]:
    import jax
    import pgx.go

    env = pgx.go.Go(size=SIZE, komi=KOMI, max_terminal_steps=MAX_MOVES)

    @jax.jit
    def games(key: Any) -> Any:
        def move(number: Any, state: Any) -> Any:
            scores = jax.numpy.where(state.legal_action_mask, 0.0, -jax.numpy.inf)
            actions = jax.random.categorical(jax.random.fold_in(key, number), scores)
            return jax.vmap(env.step)(state, actions)

        states = jax.vmap(env.init)(jax.random.split(key, batch))
        last = jax.lax.fori_loop(0, MAX_MOVES, move, states)
        return last._x.step_count.sum(), last.observation, last.rewards

    keys = iter(jax.random.split(jax.random.PRNGKey(1), 1000))
    return lambda: int(games(next(keys))[0])  # int() waits for the whole program


def open_spiel_games(seconds: float) -> Callable[[], int]:
    """A function that plays one game after another on one core, for `seconds`."""
    import random

    import pyspiel

    game = pyspiel.load_game("go", {"board_size": SIZE, "komi": KOMI, "max_game_length": MAX_MOVES})
    rng = random.Random(1)

    def games() -> int:
        moves, end = 0, time.perf_counter() + seconds
        while time.perf_counter() < end:
            state = game.new_initial_state()
            while not state.is_terminal():
                state.apply_action(rng.choice(state.legal_actions()))
                moves += 1
        return moves

    return games


def variants(engine: str, batches: list[int], device: torch.device) -> Iterator[tuple[str, int, Callable[[], int]]]:
    """Name, games at once, and the function that plays them."""
    if engine == "open-spiel":
        yield engine, 1, open_spiel_games(OPEN_SPIEL_SEC)
    for batch in batches if engine != "open-spiel" else ():
        if engine == "pgx":
            yield engine, batch, pgx_games(batch)
        else:
            yield engine, batch, ours(batch, device, like_pgx=False)
            yield f"{engine}, as pgx", batch, ours(batch, device, like_pgx=True)


def on_device(engine: str, device: torch.device) -> str:
    """The device that the engine computes on, as the engine reports it."""
    if engine == "pgx":
        import jax

        return str(jax.devices()[0].device_kind)
    gpu = engine == "ours" and device.type == "cuda"
    return torch.cuda.get_device_name(device) if gpu else "CPU"


def measure(engine: str, arguments: argparse.Namespace, device: torch.device) -> Iterator[Row]:
    where = on_device(engine, device)
    for name, batch, play in variants(engine, arguments.batches, device):
        begun = time.perf_counter()
        if engine != "open-spiel":
            play()  # compiles
        first = time.perf_counter() - begun
        rates = timed(play, 1 if engine == "open-spiel" else arguments.rounds)
        row = {"engine": name, "games": batch, "rounds": len(rates), "moves_per_sec": round(statistics.median(rates))}
        spread = {"lowest": round(min(rates)), "highest": round(max(rates)), "first_sec": round(first, 2)}
        yield row | spread | {"on": where} | machine(arguments.commit, device)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batches", type=int, nargs="+", default=[1024, 8192, 32768], help="games at once")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--packages", default="", help="folder of packages that are not installed")
    parser.add_argument("--out", type=Path, default=Path("go_rules.csv"))
    parser.add_argument("--engine", choices=ENGINES, help="measure only this engine, in this process")
    parser.add_argument("--commit", default=commit(), help="for a checkout without .git")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # for games on a CPU
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    if arguments.engine:
        for row in measure(arguments.engine, arguments, device):
            print(row["engine"], row["games"], "games:", f"{row['moves_per_sec']:,} moves/s on {row['on']}", flush=True)
            with arguments.out.open("a", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(row))
                if not file.tell():
                    writer.writeheader()
                writer.writerow(row)
        return 0
    arguments.out.unlink(missing_ok=True)
    path = os.pathsep.join(filter(None, (arguments.packages, os.environ.get("PYTHONPATH", ""))))
    # By default JAX takes three quarters of the GPU's memory.
    environment = {**os.environ, "PYTHONPATH": path, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    command = [sys.executable, *sys.argv, "--engine"]
    codes = [subprocess.run([*command, engine], env=environment).returncode for engine in ENGINES]
    for engine, code in zip(ENGINES, codes, strict=True):
        if code:
            print(f"{engine}: not measured (exit code {code}; see its error above)")
    return max(codes)


if __name__ == "__main__":
    raise SystemExit(main())
