"""GNU Go, an opponent without a neural network: a fixed reference of strength. It plays off the clock.

Each game has its own process, which speaks the Go Text Protocol (https://www.lysator.liu.se/~gunnar/gtp).
"""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from types import TracebackType

import torch

from conf.schema import ConfigError
from trainers.ops.go.boards import Boards
from trainers.ops.go.rules import Rules
from trainers.ops.go.vertices import PASS, move_at, vertex

PLACES = ("/usr/games",)  # Debian installs it here, which may not be in PATH.
BLACK = 1
# GNU Go captures dead stones before it passes, because area scoring counts all stones.
RULES = ("--chinese-rules", "--positional-superko", "--capture-all-dead", "--never-resign")


def installed() -> str | None:
    """Return the program's path; None if it is not installed."""
    return shutil.which("gnugo", path=os.pathsep.join((os.environ.get("PATH", ""), *PLACES)))


class Process:
    """A program that speaks the Go Text Protocol. Commands are sent at once; answers are read later, in order."""

    def __init__(self, command: list[str]) -> None:
        self._name = os.path.basename(command[0])  # noqa: PTH119
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._waiting: list[str] = []

    def send(self, *commands: str) -> None:
        assert self._process.stdin
        self._waiting += commands
        try:
            self._process.stdin.writelines(f"{command}\n" for command in commands)
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def answer(self) -> str:
        """Read all answers and return the last one. Raises RuntimeError if one is an error."""
        assert self._process.stdout
        words = ""
        while self._waiting:
            lines: list[str] = []
            while (line := self._process.stdout.readline()).strip() or not lines:
                if not line:
                    raise self._ended()
                if line.strip():
                    lines.append(line.strip())
            command, words = self._waiting.pop(0), " ".join(lines)
            if not words.startswith("="):
                raise RuntimeError(f"{self._name} answers {command!r} with {words!r}")
        return words[1:].strip()

    def close(self) -> None:
        self._process.kill()
        self._process.communicate()

    def _ended(self) -> RuntimeError:
        code = self._process.wait()
        return RuntimeError(f"{self._name} ended with exit code {code} before it answered {self._waiting[:1]}")


@dataclass
class Game:
    """A process, and how many moves of its game it knows."""

    process: Process
    known: int = -1


class GnuGo:
    """Plays any number of games at once. Its first move in a game must be the game's first or second move.

    Args:
        rules: of the games
        level: 0 to 10, GNU Go's strength without a clock
        seed: game i is played with seed + 1 + i

    Raises ConfigError if GNU Go is not installed.
    """

    def __init__(self, rules: Rules, level: int = 10, seed: int = 0) -> None:
        program = installed()
        if program is None:
            raise ConfigError(
                "GNU Go is not installed. Next: run `apt-get install gnugo` on Debian, else put gnugo on PATH"
            )
        self._rules, self._seed = rules, seed
        words = ("--mode", "gtp", "--quiet", "--level", str(level), "--boardsize", str(rules.size))
        self._command = [program, *words, *RULES]
        self._games: dict[tuple[int, int], Game] = {}  # by GNU Go's colour and the game's index in the batch

    def moves(self, boards: Boards, dice: object = None) -> torch.Tensor:
        """Return its move in each game, int64 [B] on the boards' device; a pass in games that are over."""
        newest, before = (boards.recent[:, age].cpu() for age in (0, 1))
        legal, numbers = self._rules.legal(boards).cpu(), boards.moves.tolist()
        colours, over = boards.to_play.tolist(), boards.over.tolist()
        running = {index: self._game(colours[index], index) for index, ended in enumerate(over) if not ended}
        for index, game in running.items():
            placed = ((newest[index] == -colours[index]) & (before[index] == 0)).nonzero()[:, 0].tolist()
            last = placed[0] if placed else self._rules.pass_move
            self._catch_up(game, numbers[index], colours[index], last)
            game.process.send(f"genmove {named(colours[index])}")
        moves = [self._rules.pass_move] * len(over)
        for index, game in running.items():
            moves[index] = move_at(game.process.answer(), self._rules.size)
            game.known = numbers[index] + 1
            if not legal[index, moves[index]]:  # GNU Go knows the rules; this covers its bugs.
                game.process.send("undo", f"play {named(colours[index])} {PASS}")
                moves[index] = self._rules.pass_move
        return torch.tensor(moves, dtype=torch.int64, device=boards.stones.device)

    def _game(self, colour: int, index: int) -> Game:
        if (colour, index) not in self._games:
            seed = ("--seed", str(self._seed + 1 + index))  # 0 would mean a seed from the time.
            self._games[colour, index] = Game(Process([*self._command, *seed]))
        return self._games[colour, index]

    def _catch_up(self, game: Game, number: int, colour: int, last: int) -> None:
        """Tell a process that a game begins, and the other player's last move."""
        if number <= 1:
            game.process.send("clear_board", f"komi {self._rules.komi}")
            game.known = 0
        if number - game.known not in (0, 1):
            raise ValueError(f"GNU Go knows {game.known} moves of this game and cannot play move {number + 1}")
        if number > game.known:
            game.process.send(f"play {named(-colour)} {vertex(last, self._rules.size)}")

    def close(self) -> None:
        for game in self._games.values():
            game.process.close()
        self._games.clear()

    def __enter__(self) -> GnuGo:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def named(colour: int) -> str:
    return "black" if colour == BLACK else "white"
