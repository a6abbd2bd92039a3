"""The search: steps of selection, evaluation and backup in the trees of many games."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from conf.schema import ConfigError
from trainers.ops.chance.dice import Dice
from trainers.ops.go import Boards, Rules
from trainers.ops.tree_search.flat_trees import ENDED, EXPANDED, ILLEGAL, PENDING, Trees, node_bytes

C_PUCT = 1.38  # MLPerf v0.5's, as what follows
ALPHA_POINTS = 0.03 * 361  # Dirichlet noise has a concentration of .03 on 19x19, and in proportion on others
NOISE_WEIGHT = 0.25
COPIES = 1.5  # Where a tree's nodes are moved, its largest tensor is there twice.
LEAF_NUMBERS = 100  # numbers a point that the evaluation of a leaf has in memory at once

# Planes [B, 17, N, N] to logits [B, A] and values [B], float32.
Evaluate = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Settings:
    """`readouts` are visits that each move's search adds, `leaves` of them a step. Raises ConfigError for no whole
    number of steps."""

    readouts: int
    leaves: int
    noise: bool = False  # Dirichlet noise at the roots
    c_puct: float = C_PUCT

    def __post_init__(self) -> None:
        for name, value in (("readouts", self.readouts), ("leaves", self.leaves)):
            if value < 1:
                raise ConfigError(f"model.hparams.{name}={value}: give a whole number, 1 or more")
        if self.readouts % self.leaves:
            near = max(1, self.readouts // self.leaves) * self.leaves
            raise ConfigError(
                f"model.hparams.readouts={self.readouts}: {self.leaves} leaves are evaluated at once"
                f" (model.hparams.leaves), so give a multiple of it, such as {near}"
            )

    @property
    def steps(self) -> int:
        return self.readouts // self.leaves

    @property
    def nodes(self) -> int:
        """Room of a game's tree: what a search adds, what it may keep of the one before, and one that is never used."""
        return self.readouts + self.kept + 1

    @property
    def kept(self) -> int:
        """The most nodes of a tree that the next move's search begins with."""
        return self.readouts + 1

    def bytes_per_game(self, rules: Rules) -> int:
        return int(COPIES * self.nodes * node_bytes(rules)) + self.leaves * LEAF_NUMBERS * 4 * rules.num_moves


class Search:
    """The trees of `games` games. With `graphs`, on GPUs, a step is replayed as one CUDA graph.

    `evaluate` is called with planes of `dtype`. On a CPU all is computed as it is called.
    """

    def __init__(
        self, rules: Rules, evaluate: Evaluate, settings: Settings, games: int, device: torch.device,
        dtype: torch.dtype = torch.float32, graphs: bool = True,
    ) -> None:  # fmt: skip
        self.rules, self.settings, self._evaluate, self._dtype = rules, settings, evaluate, dtype
        self.trees = Trees.empty(rules, games, settings.nodes, device)
        self._active = torch.zeros(games, dtype=torch.bool, device=device)  # where the graph reads it
        self._graph: torch.cuda.CUDAGraph | None = None
        self._graphs = graphs and device.type == "cuda"
        self._offsets = torch.arange(games, device=device)[:, None] * settings.nodes
        if device.type == "cuda":
            from trainers.ops.tree_search import descent_triton as descent
        else:
            from trainers.ops.tree_search import descent  # type: ignore[no-redef]
        self._select, self._back_up = descent.select, descent.back_up

    @torch.no_grad()
    def run(self, active: torch.Tensor, dice: Dice) -> None:
        """Search in the games of the mask, bool [G], from their roots, none of which is over.

        Before a game is searched again, it is advanced or restarted: trees have room for one search.
        """
        self._begin(active, dice)
        for _ in range(self.settings.steps):
            self._replay()

    @torch.no_grad()
    def warm_up(self) -> None:
        """Compile and capture what `run` calls, by a step in which no game takes part. Restart the games afterwards."""
        nobody = torch.zeros_like(self._active)
        self._begin(nobody, Dice(nobody.long(), 0))
        self._replay()

    def counts(self) -> torch.Tensor:
        """Visits of the roots' moves, int32 [G, A]."""
        return self.trees.visits[:, 0]

    def advance(self, moves: torch.Tensor, games: torch.Tensor) -> None:
        """Play a move that has visits, int64 [G], in the games of the mask; its tree is kept."""
        child = self.trees.children[:, 0].gather(1, moves[:, None])[:, 0].long()
        self.trees.descend_to(child.clamp(min=0), games, self.settings.kept)

    def restart(self, games: torch.Tensor, boards: Boards) -> None:
        """Begin anew in the games of the mask, from these boards, one a game."""
        self.trees.set_roots(games, boards)

    def _begin(self, active: torch.Tensor, dice: Dice) -> None:
        self._active.copy_(active)
        self._evaluate_roots()
        if self.settings.noise:
            self._add_noise(dice)

    def _evaluate_roots(self) -> None:
        """Evaluate all roots, and keep that of those that were not yet."""
        boards = self.trees.roots().map(torch.Tensor.contiguous)
        priors, values = self._priors_and_values(boards)
        trees, fresh = self.trees, self.trees.states[:, 0] == PENDING
        trees.priors[:, 0] = torch.where(fresh[:, None], priors, trees.priors[:, 0])
        trees.values[:, 0] = torch.where(fresh, values, trees.values[:, 0])
        trees.states[:, 0] = torch.where(fresh, EXPANDED, trees.states[:, 0])

    def _add_noise(self, dice: Dice) -> None:
        priors = self.trees.priors[:, 0]
        noise = dice.dirichlet(self.trees.roots().moves, priors >= 0, ALPHA_POINTS / self.rules.num_points)
        mixed = (1 - NOISE_WEIGHT) * priors + NOISE_WEIGHT * noise
        self.trees.priors[:, 0] = torch.where(self._active[:, None] & (priors >= 0), mixed, priors)

    def _replay(self) -> None:
        if not self._graphs:
            self._step()
            return
        if self._graph is None:
            self._capture()
        assert self._graph is not None
        self._graph.replay()

    def _capture(self) -> None:
        """Record a step. What it needs is made by a step before, in which no game takes part."""
        active = self._active.clone()
        self._active.zero_()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._step()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._step()
        self._active.copy_(active)

    def _step(self) -> None:
        """Select leaves, evaluate them, and take the values up to the roots."""
        trees = self.trees
        leaves = self._select(trees, self._active, self.settings.leaves, self.settings.c_puct)
        above = trees.parents.gather(1, leaves)
        moves = trees.moves.gather(1, leaves).flatten().long()
        boards = self.rules.play(trees.boards.take((self._offsets + above).flatten()), moves)
        priors, values = self._priors_and_values(boards)
        scores = self.rules.area_score(boards) * boards.to_play
        values = torch.where(boards.over, scores.sign(), values)
        states = torch.where(boards.over, ENDED, EXPANDED).to(torch.int8)
        # What is in no tree goes to each game's last node; a leaf that was selected twice is written the same twice.
        place = (self._offsets + torch.where(leaves > 0, leaves, trees.num_nodes - 1)).flatten()
        for own, made in zip(trees.boards, boards, strict=True):
            own.index_copy_(0, place, made)
        for own, made in ((trees.priors, priors), (trees.values, values), (trees.states, states)):
            own.flatten(0, 1).index_copy_(0, place, made)
        self._back_up(trees, leaves, values.view(leaves.shape))

    def _priors_and_values(self, boards: Boards) -> tuple[torch.Tensor, torch.Tensor]:
        """Of each board: P of what is legal, ILLEGAL elsewhere, float32 [B, A], and the player's value, float32 [B]."""
        logits, values = self._evaluate(self.rules.planes(boards, self._dtype))
        legal = self.rules.legal(boards)
        priors = logits.masked_fill(~legal, -torch.inf).softmax(dim=1)
        return priors.masked_fill(~legal, ILLEGAL), values
