"""Records of Go games: read from SGF files, checked move by move, and converted to positions.

The four professional games of MLPerf v0.5's MiniGo are in this folder; their file names source and licence.
"""

from trainers.data.go_records.games import positions, professional_games, read
from trainers.data.go_records.sgf import Record, digest

__all__ = ["Record", "digest", "positions", "professional_games", "read"]
