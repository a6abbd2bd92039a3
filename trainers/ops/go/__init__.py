"""Go on boards of any size, thousands of games at once: rules, symmetries, and opponents.

All is computed by batched operations on the games' device; a move never waits for it.
"""

from trainers.ops.go.boards import Boards
from trainers.ops.go.rules import Rules
from trainers.ops.go.symmetries import Symmetries

__all__ = ["Boards", "Rules", "Symmetries"]
