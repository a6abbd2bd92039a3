"""MiniGo's rates on one device: network alone, parts of a search step, generations, training, gate.

    python benchmarks/steps/minigo.py --out minigo.json           # an H100: about 4 minutes; less with --games 512
    python benchmarks/steps/minigo.py --tiny                      # a CPU, seconds

Prints a line for each figure, and writes all of them to a file. A generation plays all its games to their end; its
rates are over its whole wall time. Weights are random, so games are as long as in a first generation.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

from trainers.models.minigo.arena import Arena, Place
from trainers.models.minigo.network import Evaluator, GoNet, Sizes, flops, training_loss
from trainers.models.minigo.play_options import Options
from trainers.models.minigo.positions import Window
from trainers.models.minigo.self_play import Customs
from trainers.ops.compiling import compiled
from trainers.ops.go import Rules
from trainers.ops.tree_search import Dice, Search, Settings

Figures = dict[str, Any]


def seconds(call: Callable[[], object], device: torch.device, repeats: int) -> float:
    """Mean seconds of `repeats` calls, after two untimed ones."""
    for _ in range(2):
        call()
    finish(device)
    began = time.monotonic()
    for _ in range(repeats):
        call()
    finish(device)
    return (time.monotonic() - began) / repeats


def finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def of_network(net: GoNet, arguments: argparse.Namespace, place: Place) -> Figures:
    number = arguments.games_at_once * arguments.leaves
    evaluator = Evaluator(net, place.dtype, place.compile)
    size = net.sizes.board
    planes = torch.rand(number, 17, size, size, device=place.device).to(place.dtype)
    with torch.no_grad():
        each = seconds(lambda: evaluator(planes), place.device, arguments.repeats)
    rate = number / each
    return {"network/evaluations_per_sec": rate, "network/tflops": rate * flops(net.sizes) / 1e12}


def of_steps(search: Search, place: Place, repeats: int) -> Figures:
    """Times of a step's parts, launched one by one on the trees of a finished search, and of a whole search."""
    trees, settings, rules = search.trees, search.settings, search.rules
    every = torch.ones(trees.num_games, dtype=torch.bool, device=place.device)
    dice = Dice(torch.arange(trees.num_games, device=place.device), 1)

    def searched() -> None:
        search.restart(every, rules.start(trees.num_games, place.device))
        search.run(every, dice)

    searched()
    no_games = torch.zeros_like(every)
    leaves = trees.counts[:, None] - 1 - torch.arange(settings.leaves, device=place.device)
    leaves = leaves.clamp(min=1).long()
    parents = (search._offsets + trees.parents.gather(1, leaves)).flatten()
    moves = trees.moves.gather(1, leaves).flatten().long()
    boards = trees.boards.take(parents)
    planes, values = rules.planes(boards, place.dtype), torch.zeros(leaves.shape, device=place.device)
    place_of = (search._offsets + leaves).flatten()
    pairs = list(zip(trees.boards, boards, strict=True))
    parts: dict[str, Callable[[], object]] = {
        "select": lambda: search._select(trees, no_games, settings.leaves, settings.c_puct),
        "boards of parents": lambda: trees.boards.take(parents),
        "play": lambda: rules.play(boards, moves),
        "planes": lambda: rules.planes(boards, place.dtype),
        "network": lambda: search._evaluate(planes),
        "legal": lambda: rules.legal(boards),
        "area score": lambda: rules.area_score(boards),
        "boards of leaves": lambda: [tree.index_copy_(0, place_of, leaf) for tree, leaf in pairs],
        "back up": lambda: search._back_up(trees, leaves, values),
    }
    with torch.no_grad():
        figures = {f"step/{name}_ms": 1e3 * seconds(call, place.device, repeats) for name, call in parts.items()}
        figures["search/ms"] = 1e3 * seconds(searched, place.device, 2)
    figures["search/evaluations_per_sec"] = trees.num_games * settings.readouts / figures["search/ms"] * 1e3
    return figures


def of_generations(arena: Arena, arguments: argparse.Namespace, window: Window) -> Figures:
    figures: Figures = {}
    for generation in range(arguments.generations):
        finish(arena.place.device)
        began = time.monotonic()
        played = arena.self_play(generation)
        window.add(played.positions)
        finish(arena.place.device)
        sec = time.monotonic() - began
        name = f"generation {generation + 1}"
        figures |= {
            f"{name}/sec": sec,
            f"{name}/games_per_sec": played.games / sec,
            f"{name}/moves_per_sec": played.moves / sec,
            f"{name}/evaluations_per_sec": played.evaluations / sec,
            f"{name}/moves_per_game": played.moves / played.games, f"{name}/resigned": played.resigned / played.games,
        }  # fmt: skip
    return figures


def of_training(net: GoNet, window: Window, arguments: argparse.Namespace, place: Place) -> Figures:
    loss_of = compiled(training_loss, place.device) if place.compile else training_loss
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    weights = torch.full((arguments.batch,), 1 / arguments.batch, device=place.device)

    def step() -> None:
        batch = window.sample(arguments.batch, 1)
        optimizer.zero_grad()
        with torch.autocast(place.device.type, place.dtype, enabled=place.dtype != torch.float32):
            loss = loss_of(net, batch["planes"], batch["policies"], batch["outcomes"], weights)
        loss.backward()
        optimizer.step()

    each = seconds(step, place.device, arguments.repeats)
    return {"training/step_ms": 1e3 * each, "training/positions_per_sec": arguments.batch / each}


def parsed(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, value in (
        ("board", 9), ("games", 2048), ("games-at-once", 2048), ("readouts", 200), ("leaves", 8), ("generations", 2),
        ("batch", 4096), ("repeats", 20), ("gate-games", 100),
    ):  # fmt: skip
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--no-compile", action="store_true")
    parser.add_argument("--tiny", action="store_true", help="a few games on a CPU")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args(argv)
    if arguments.tiny:
        vars(arguments).update(
            board=3, games=6, games_at_once=4, readouts=8, leaves=4, generations=1, batch=8, repeats=1, gate_games=4
        )
    return arguments


def main(argv: list[str] | None = None) -> int:
    arguments = parsed(argv)
    on_gpu = torch.cuda.is_available() and not arguments.tiny
    device = torch.device("cuda", 0) if on_gpu else torch.device("cpu")
    place = Place(0, 1, device, torch.bfloat16 if on_gpu else torch.float32, on_gpu and not arguments.no_compile)
    rules = Rules(arguments.board, 7.5 if arguments.board > 5 else 0.5)
    settings = Settings(arguments.readouts, arguments.leaves, noise=True)
    options = Options(
        rules, Customs(), arguments.games, arguments.games_at_once, settings,
        Settings(arguments.readouts, arguments.leaves), arguments.gate_games, 0.55, (), 1,
    )  # fmt: skip
    torch.manual_seed(0)
    net = GoNet(Sizes(arguments.board)).to(device)
    figures: Figures = {"device": torch.cuda.get_device_name(0) if on_gpu else "cpu", "torch": torch.__version__}

    def note(more: Figures) -> None:
        figures.update(more)
        for name, value in more.items():
            print(f"{name:40} {value:,.3f}" if isinstance(value, float) else f"{name:40} {value}", flush=True)
        if arguments.out:
            arguments.out.write_text(json.dumps(figures, indent=1), encoding="utf-8")

    note(dict(figures))
    note(of_network(net, arguments, place))
    arena, window = Arena(options, place, net, net), Window(rules, 2_000_000 if on_gpu else 2000)
    began = time.monotonic()
    arena.warm_up(evaluates=False)
    note({"compile and capture/sec": time.monotonic() - began})
    note(of_steps(arena._self_play.searches[0], place, arguments.repeats))
    note(of_generations(arena, arguments, window))
    note(of_training(net, window, arguments, place))
    began = time.monotonic()
    arena.gate(0)
    note({"gate/sec": time.monotonic() - began})
    if on_gpu:
        note({"memory/peak_gb": torch.cuda.max_memory_allocated() / 1e9})
    return 0


if __name__ == "__main__":
    sys.exit(main())
