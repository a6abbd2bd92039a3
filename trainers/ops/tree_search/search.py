"""Searches the trees of many games: each step selects leaves, evaluates them and backs up their values."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass

import torch

from conf.schema import ConfigError
from trainers.ops.chance.dice import Dice
from trainers.ops.go import Boards, Rules
from trainers.ops.tree_search.flat_trees import ENDED, EXPANDED, ILLEGAL, PENDING, Trees, node_bytes

# The next three are MLPerf v0.5's.
C_PUCT = 1.38
ALPHA_POINTS = 0.03 * 361  # Dirichlet noise: concentration 0.03 on 19x19, times 361 / points on other boards
NOISE_WEIGHT = 0.25
COPIES = 1.5  # Moving a tree's nodes needs a second copy of its largest tensor.
LEAF_NUMBERS = 100  # numbers per point in memory at once during the evaluation of a leaf

# Maps planes [B, 17, N, N] to logits [B, A] and values [B], float32.
Evaluate = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Settings:
    """Settings of a search: each move's search adds `readouts` visits, `leaves` of them in each step.

    Raises ConfigError if `leaves` does not divide `readouts`.
    """

    readouts: int
    leaves: int
    noise: bool = False  # Dirichlet noise at the roots
    c_puct: float = C_PUCT

    def __post_init__(self) -> None:
        for name, value in (("readouts", self.readouts), ("leaves", self.leaves)):
            if value < 1:
                raise ConfigError(f"{name}={value}: must be a whole number, 1 or more")
        if self.readouts % self.leaves:
            near = max(1, self.readouts // self.leaves) * self.leaves
            raise ConfigError(
                f"readouts={self.readouts}: is not a multiple of leaves={self.leaves}, the leaves evaluated at once."
                f" Next: give a multiple, such as {near}"
            )

    @property
    def steps(self) -> int:
        return self.readouts // self.leaves

    @property
    def nodes(self) -> int:
        """Return the number of nodes for a game's tree: a search's, those kept from the previous search, one unused."""
        return self.readouts + self.kept + 1

    @property
    def kept(self) -> int:
        """Return the largest number of nodes kept for the next move's search."""
        return self.readouts + 1

    def bytes_per_game(self, rules: Rules) -> int:
        return int(COPIES * self.nodes * node_bytes(rules)) + self.leaves * LEAF_NUMBERS * 4 * rules.num_moves


class Search:
    """A search in the trees of `games` games. On GPUs, with `graphs`, a step is replayed as one CUDA graph.

    `evaluate` gets planes of `dtype`.
    """

    def __init__(
        self, rules: Rules, evaluate: Evaluate, settings: Settings, games: int, device: torch.device,
        dtype: torch.dtype = torch.float32, graphs: bool = True,
    ) -> None:  # fmt: skip
        self.rules, self.settings, self._evaluate, self._dtype = rules, settings, evaluate, dtype
        self.trees = Trees.empty(rules, games, settings.nodes, device)
        self._active = torch.zeros(games, dtype=torch.bool, device=device)  # The graph reads this tensor.
        self._graph: torch.cuda.CUDAGraph | None = None
        self._graphs = graphs and device.type == "cuda"
        self._memory = torch.cuda.graph_pool_handle() if self._graphs else None
        self._offsets = torch.arange(games, device=device)[:, None] * settings.nodes
        if device.type == "cuda":
            from trainers.ops.tree_search import descent_triton as descent
        else:
            from trainers.ops.tree_search import descent  # type: ignore[no-redef]
        self._select, self._back_up = descent.select, descent.back_up

    def first(self, games: int) -> Search:
        """Return a search in the trees of the first games.

        On a GPU its graph has the same memory as this one's: run only one at a time.
        """
        search = copy.copy(self)
        search.trees, search._graph = self.trees.first(games), None
        search._active, search._offsets = self._active[:games].clone(), self._offsets[:games]
        return search

    @torch.no_grad()
    def run(self, active: torch.Tensor, dice: Dice) -> None:
        """Search in the games of the mask, bool [G]; their roots must not be over.

        Advance or restart a game before it is searched again: trees have room for one search.
        """
        self._begin(active, dice)
        for _ in range(self.settings.steps):
            self._replay()

    @torch.no_grad()
    def warm_up(self) -> None:
        """Compile and capture what `run` calls, by a step without active games. Restart the games afterwards."""
        nobody = torch.zeros_like(self._active)
        self._begin(nobody, Dice(nobody.long(), 0))
        self._replay()

    def counts(self) -> torch.Tensor:
        """Return the visits of the roots' moves, int32 [G, A]."""
        return self.trees.visits[:, 0]

    def advance(self, moves: torch.Tensor, games: torch.Tensor) -> None:
        """Play a visited move, int64 [G], in the games of the mask, and keep its subtree."""
        child = self.trees.children[:, 0].gather(1, moves[:, None])[:, 0].long()
        self.trees.descend_to(child.clamp(min=0), games, self.settings.kept)

    def restart(self, games: torch.Tensor, boards: Boards) -> None:
        """Restart the games of the mask from these boards, one for each game."""
        self.trees.set_roots(games, boards)

    def _begin(self, active: torch.Tensor, dice: Dice) -> None:
        self._active.copy_(active)
        self._evaluate_roots()
        if self.settings.noise:
            self._add_noise(dice)

    def _evaluate_roots(self) -> None:
        """Evaluate all roots, and store the results of those that were not evaluated yet."""
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
        """Capture a step, after two steps without active games that allocate what it needs."""
        active = self._active.clone()
        self._active.zero_()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._step()
        torch.cuda.current_stream().wait_stream(stream)
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph, pool=self._memory):
            self._step()
        self._active.copy_(active)

    def _step(self) -> None:
        """Select leaves, evaluate them, and back up their values."""
        trees = self.trees
        leaves = self._select(trees, self._active, self.settings.leaves, self.settings.c_puct)
        above = trees.parents.gather(1, leaves)
        moves = trees.moves.gather(1, leaves).flatten().long()
        boards = self.rules.play(trees.boards.take((self._offsets + above).flatten()), moves)
        priors, values = self._priors_and_values(boards)
        scores = self.rules.area_score(boards) * boards.to_play
        values = torch.where(boards.over, scores.sign(), values)
        states = torch.where(boards.over, ENDED, EXPANDED).to(torch.int8)
        # Inactive games write to their last node. A leaf that was selected twice is written twice with the same values.
        place = (self._offsets + torch.where(leaves > 0, leaves, trees.num_nodes - 1)).flatten()
        for nodes, evaluated in zip(trees.boards, boards, strict=True):
            nodes.index_copy_(0, place, evaluated)
        for nodes, evaluated in ((trees.priors, priors), (trees.values, values), (trees.states, states)):
            nodes.flatten(0, 1).index_copy_(0, place, evaluated)
        self._back_up(trees, leaves, values.view(leaves.shape))

    def _priors_and_values(self, boards: Boards) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the priors, float32 [B, A], ILLEGAL for illegal moves, and the values for the player, float32 [B]."""
        logits, values = self._evaluate(self.rules.planes(boards, self._dtype))
        legal = self.rules.legal(boards)
        priors = logits.masked_fill(~legal, -torch.inf).softmax(dim=1)
        return priors.masked_fill(~legal, ILLEGAL), values
