"""Go on boards of any size, thousands of games at once: rules, symmetries and an opponent.

All games are computed by batched operations on their device; a move does not wait for the device.
"""

from trainers.ops.go.boards import Boards
from trainers.ops.go.rules import Rules
from trainers.ops.go.symmetries import Symmetries

__all__ = ["Boards", "Rules", "Symmetries"]
