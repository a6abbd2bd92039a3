"""Monte Carlo tree search of many games at once, in flat arrays: several leaves a game and step, one evaluation for all.

A step makes nobody wait for the device, and on a GPU it is one CUDA graph.
"""

from trainers.ops.tree_search.dice import Dice
from trainers.ops.tree_search.search import Evaluate, Search, Settings
from trainers.ops.tree_search.trees import Trees, node_bytes

__all__ = ["Dice", "Evaluate", "Search", "Settings", "Trees", "node_bytes"]
