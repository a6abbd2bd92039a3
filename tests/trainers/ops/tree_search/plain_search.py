"""The search once more, for one game, with an object a node: as plain as its definition."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import torch

from trainers.ops.go import Boards, Rules
from trainers.ops.tree_search import Evaluate, Settings

F = np.float32


@dataclass(eq=False)
class Node:
    boards: Boards  # of one game
    parent: Node | None = None
    move: int = -1
    value: np.float32 = F(0)  # noqa: RUF009  it never changes
    evaluated: bool = False
    priors: np.ndarray = field(default_factory=lambda: np.zeros(0))
    visits: np.ndarray = field(default_factory=lambda: np.zeros(0))
    totals: np.ndarray = field(default_factory=lambda: np.zeros(0))
    children: dict[int, Node] = field(default_factory=dict)
    number: int = 0  # how many were made before it

    @property
    def over(self) -> bool:
        return bool(self.boards.over[0])


class PlainSearch:
    def __init__(self, rules: Rules, evaluate: Evaluate, settings: Settings, root: Boards) -> None:
        self.rules, self.evaluate, self.settings = rules, evaluate, settings
        self.root, self.num_made = Node(root), 0

    def run(self) -> np.ndarray:
        if not self.root.evaluated:
            self.expand(self.root)
        for _ in range(self.settings.readouts // self.settings.leaves):
            leaves = [self.select() for _ in range(self.settings.leaves)]
            for leaf in leaves:
                self.expand(leaf)
            for leaf in leaves:
                self.back_up(leaf)
        return self.root.visits

    def select(self) -> Node:
        node = self.root
        while True:
            move = self.best_move(node)
            node.visits[move] += 1
            node.totals[move] -= F(1)
            if move not in node.children:
                after = self.rules.play(node.boards, torch.tensor([move]))
                self.num_made += 1
                node.children[move] = Node(after, node, move, number=self.num_made)
                return node.children[move]
            node = node.children[move]
            if not node.evaluated or node.over:
                return node

    def best_move(self, node: Node) -> int:
        last = len(node.visits) - 1
        if int(node.boards.passes[0]) == 1 and node.visits[last] == 0:
            return last
        explored = F(self.settings.c_puct) * np.sqrt(F(1 + node.visits.sum()))
        scores = (node.value + node.totals + explored * node.priors) / (1 + node.visits).astype(F)
        return int(np.where(node.priors < 0, -np.inf, scores).argmax())

    def expand(self, node: Node) -> None:
        if node.evaluated:
            return
        node.evaluated = True
        logits, value = self.evaluate(self.rules.planes(node.boards))
        legal = self.rules.legal(node.boards)
        priors = logits.masked_fill(~legal, -torch.inf).softmax(dim=1).masked_fill(~legal, -1.0)
        node.priors, node.value = priors[0].numpy(), F(value[0])
        node.visits, node.totals = np.zeros(len(node.priors), np.int64), np.zeros(len(node.priors), F)
        if node.over:
            black_wins = self.rules.area_score(node.boards)[0] > 0
            node.value = F(1 if black_wins == (node.boards.to_play[0] > 0) else -1)

    def back_up(self, node: Node) -> None:
        value = node.value
        while node.parent is not None:
            value = -value
            node.parent.totals[node.move] += F(1) + value
            node = node.parent

    def advance(self, move: int) -> None:
        """Keep the first nodes that were made below it; how many, the settings say."""
        self.root = self.root.children[move]
        self.root.parent = None
        made = sorted(self.below(self.root), key=lambda node: node.number)
        for node in made[self.settings.kept :]:
            assert node.parent is not None
            node.parent.children.pop(node.move, None)

    def below(self, node: Node) -> list[Node]:
        return [node, *(deeper for child in node.children.values() for deeper in self.below(child))]
