"""Monte Carlo tree search of many games at once, in flat arrays: all leaves of all games are evaluated together.

A step does not wait for the device; on a GPU it is one CUDA graph.
"""

from trainers.ops.chance.dice import Dice
from trainers.ops.tree_search.flat_trees import Trees, node_bytes
from trainers.ops.tree_search.search import Evaluate, Search, Settings

__all__ = ["Dice", "Evaluate", "Search", "Settings", "Trees", "node_bytes"]
