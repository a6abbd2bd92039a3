"""The positions that a network learns from, and the window of the newest ones.

A position's planes are stored as one 16-bit word per point: bit k is plane k. Plane 16 tells whether black is to move.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from trainers.ops.chance.counters import key_of, random_bits
from trainers.ops.go import Boards, Rules, Symmetries

BITS = 16


class Positions(NamedTuple):
    """M positions with the search's policy and the outcome of their games."""

    words: torch.Tensor  # int16 [M, N*N]
    black: torch.Tensor  # bool [M]: black is to move
    policies: torch.Tensor  # float16 [M, N*N + 1]: shares of the root's visits
    outcomes: torch.Tensor  # int8 [M]: 1 if the player to move won, else -1

    @classmethod
    def room(cls, number: int, rules: Rules, device: torch.device) -> Positions:
        return cls(
            torch.zeros(number, rules.num_points, dtype=torch.int16, device=device),
            torch.zeros(number, dtype=torch.bool, device=device),
            torch.zeros(number, rules.num_moves, dtype=torch.float16, device=device),
            torch.zeros(number, dtype=torch.int8, device=device),
        )

    def take(self, index: torch.Tensor) -> Positions:
        return Positions(*(tensor[index] for tensor in self))

    def put(self, index: torch.Tensor, others: Positions) -> None:
        for target, source in zip(self, others, strict=True):
            target[index] = source


def position_bytes(rules: Rules) -> int:
    """Return the size of a position in bytes."""
    return 2 * (rules.num_points + rules.num_moves) + 2


def words_of(boards: Boards) -> torch.Tensor:
    """Pack all planes of the boards except the last into words, int16 [B, N*N]."""
    to_play = boards.to_play[:, None, None]
    bits = 1 << torch.arange(0, BITS, 2, device=to_play.device)[:, None]
    words = ((boards.recent == to_play) * bits + (boards.recent == -to_play) * (bits << 1)).sum(dim=1)
    return words.to(torch.int16)


def planes_of(words: torch.Tensor, black: torch.Tensor, size: int) -> torch.Tensor:
    """Unpack words into the network's planes, float32 [B, 17, N, N]."""
    bits = torch.arange(BITS, dtype=torch.int16, device=words.device)[:, None]
    planes = (words[:, None] >> bits & 1).float()
    sides = black[:, None, None].expand(-1, 1, words.shape[1]).float()
    return torch.cat([planes, sides], dim=1).view(-1, BITS + 1, size, size)


@dataclass
class Window:
    """The newest positions of this process, up to `capacity`, in a ring."""

    rules: Rules
    capacity: int
    held: Positions | None = None
    size: int = 0
    next: int = 0

    def add(self, positions: Positions) -> None:
        """Add positions; they replace the oldest ones."""
        newest = positions.take(slice(-self.capacity, None))  # type: ignore[arg-type]
        number, device = len(newest.words), newest.words.device
        if self.held is None:
            self.held = Positions.room(self.capacity, self.rules, device)
        place = (self.next + torch.arange(number, device=device)) % self.capacity
        self.held.put(place, newest)
        self.next = (self.next + number) % self.capacity
        self.size = min(self.capacity, self.size + number)

    def sample(self, number: int, *key: int) -> dict[str, Any]:
        """Draw positions with replacement, each under a random symmetry; return planes, policies and outcomes."""
        assert self.held is not None
        assert self.size
        device = self.held.words.device
        drawn = random_bits(torch.arange(number, device=device), key_of(*key))
        # Count from the oldest position: a restored ring begins with it, so the same key draws the same positions.
        place = ((drawn >> 8 & (1 << 48) - 1) % self.size + self.next - self.size) % self.capacity
        chosen = self.held.take(place)
        turn = drawn & 7
        symmetries = Symmetries(self.rules.size, device)
        planes = planes_of(chosen.words, chosen.black, self.rules.size)
        return {
            "planes": symmetries.planes(planes, turn),
            "policies": symmetries.policies(chosen.policies, turn).float(),
            "outcomes": chosen.outcomes.float(),
        }

    def content(self) -> dict[str, torch.Tensor]:
        """Return the content for a checkpoint, oldest first, on the CPU."""
        if self.held is None:
            return {}
        oldest = (self.next - self.size) % self.capacity
        order = (oldest + torch.arange(self.size, device=self.held.words.device)) % self.capacity
        return {name: tensor[order].cpu() for name, tensor in self.held._asdict().items()}

    def restore(self, content: dict[str, torch.Tensor], device: torch.device) -> None:
        self.held, self.size, self.next = None, 0, 0
        if content:
            self.add(Positions(**content)._replace(**{name: tensor.to(device) for name, tensor in content.items()}))
