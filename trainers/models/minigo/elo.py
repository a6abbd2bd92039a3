"""Elo of the networks of all generations, from the matches between them."""

from __future__ import annotations

import csv
import importlib.util
import math
from dataclasses import dataclass, field
from pathlib import Path

SCALE = 400.0


@dataclass(frozen=True)
class Gated:
    """A generation's match. `elo` is that of the new network, relative to the first network."""

    generation: int
    games: int
    wins: int
    promoted: bool
    elo: float


def difference(wins: float, games: int) -> float:
    """Return the Elo difference for so many wins; wins are clamped to 0.5 to `games` - 0.5."""
    share = min(max(wins, 0.5), games - 0.5) / games
    return SCALE * math.log10(share / (1 - share))


@dataclass
class History:
    """The matches so far. `best` is the champion's Elo."""

    rows: list[Gated] = field(default_factory=list)

    @property
    def generation(self) -> int:
        return len(self.rows)

    @property
    def best(self) -> float:
        return next((row.elo for row in reversed(self.rows) if row.promoted), 0.0)

    def add(self, wins: int, games: int, promoted: bool) -> None:
        """Add the match of the next generation's network against the champion."""
        self.rows.append(Gated(self.generation + 1, games, wins, promoted, self.best + difference(wins, games)))


def write_csv(history: list[Gated], path: Path) -> None:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["generation", "games", "wins", "promoted", "elo"])
        for row in history:
            writer.writerow([row.generation, row.games, row.wins, int(row.promoted), f"{row.elo:.1f}"])


def plot(history: list[Gated], path: Path) -> None:
    """Draw Elo against generation as PNG; without matplotlib, print that and draw nothing."""
    if importlib.util.find_spec("matplotlib") is None:
        print(f"{path.name} is not drawn: matplotlib is not installed in this stack")
        return
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # This import takes a second.
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.plot([row.generation for row in history], [row.elo for row in history], color="tab:blue", linewidth=1)
    for promoted, marker, label in ((True, "o", "plays the next games"), (False, "x", "does not")):
        rows = [row for row in history if row.promoted == promoted]
        axes.plot([row.generation for row in rows], [row.elo for row in rows], marker, color="tab:blue", label=label)
    axes.set_xlabel("generation")
    axes.set_ylabel("Elo over the first network")
    axes.set_title(f"Matches of {history[0].games} games against the best network so far", fontsize=10)
    axes.legend()
    figure.savefig(path, dpi=150)
