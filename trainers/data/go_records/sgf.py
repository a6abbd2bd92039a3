"""Reads the main lines of SGF files (FF[4], https://www.red-bean.com/sgf), without a library, which workers may lack.

It reads size, komi, name and moves of a game, and skips comments, clocks and variations.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass

from conf.schema import ConfigError

TOKEN = re.compile(r"\s*(?:(?P<sign>[();])|(?P<key>[A-Za-z]+)|\[(?P<value>(?:[^\]\\]|\\.)*)\])", re.DOTALL)
BEGIN = re.compile(r"\(\s*;")
SINGLE = ("GM", "SZ", "KM", "GN", "B", "W")  # properties that have one value
SETUP = {"AB", "AW", "AE", "PL"}


@dataclass(frozen=True)
class Record:
    """A game from an empty board, with black first. A move is row * size + column, or size * size for a pass."""

    name: str
    size: int
    komi: float
    moves: tuple[int, ...]


def digest(records: Iterable[Record]) -> str:
    """Return the SHA-256 of the records' sizes, komi and moves, which does not depend on paths or other content."""
    lines = "\n".join(f"{record.size} {record.komi:g} {' '.join(map(str, record.moves))}" for record in records)
    return hashlib.sha256(lines.encode()).hexdigest()


def records_of(text: str, source: str) -> list[Record]:
    """Return the games of an SGF text. Raises ConfigError, naming the source and the move, for an invalid text."""
    games = [record(nodes, source, number) for number, nodes in enumerate(main_lines(text, source), start=1)]
    if not games:
        raise ConfigError(f"{source}: has no game of Go; an SGF file begins with (;")
    return games


Node = dict[str, list[str]]


def main_lines(text: str, source: str) -> list[list[Node]]:
    """Return the nodes of each game, as their properties; at a branch the first variation is followed."""
    first = BEGIN.search(text)  # Text before this is not part of the format.
    begin = first.start() if first else -1
    games: list[list[Node]] = []
    branches: list[int] = []  # variations so far, for each open parenthesis
    off_line, place, key = 0, max(begin, 0), ""
    while begin >= 0 and text[place:].strip():
        token = TOKEN.match(text, place)
        if token is None:
            raise ConfigError(
                f"{source}: is damaged at character {place}, near {text[place : place + 20].strip()!r}. Next: put the"
                " original file in place"
            )
        place = token.end()
        sign, name, value = token["sign"], token["key"], token["value"]
        if sign == "(":
            if not branches:
                games.append([])
            elif off_line or branches[-1]:
                off_line += 1
            if branches:
                branches[-1] += 1
            branches.append(0)
        elif not branches:
            raise ConfigError(f"{source}: has {text[place - 1 : place + 20].strip()!r} outside of a game")
        elif sign == ")":
            branches.pop()
            off_line = max(off_line - 1, 0)
        elif not off_line and sign == ";":
            games[-1].append({})
        elif name:
            key = "".join(letter for letter in name if letter.isupper())
        elif value is not None and not off_line and games[-1]:
            games[-1][-1].setdefault(key, []).append(value)
    if branches:
        raise ConfigError(
            f"{source}: is truncated after {len(games[-1])} nodes of game {len(games)}: a parenthesis is open"
        )
    return games


def record(nodes: list[Node], source: str, number: int) -> Record:
    root = nodes[0] if nodes else {}
    name = root.get("GN", [str(number)])[0]
    where = f"{source}, game {name}"
    if root.get("GM", ["1"])[0].strip() != "1":
        raise ConfigError(f"{where}: has GM[{root['GM'][0]}], which is not Go. Next: give games with GM[1]")
    if any(SETUP & {*node} for node in nodes):
        raise ConfigError(
            f"{where}: sets up stones ({', '.join(sorted(SETUP))}). Next: give games that start from an empty board"
        )
    if several := next((key for node in nodes for key in SINGLE if len(node.get(key, "")) > 1), ""):
        raise ConfigError(f"{where}: has several values of one {several}. Next: put the original file in place")
    try:
        size, komi = int(root.get("SZ", ["19"])[0]), float(root.get("KM", ["7.5"])[0])
    except ValueError:
        raise ConfigError(
            f"{where}: SZ={root.get('SZ')}, KM={root.get('KM')}: size and komi must be one number each"
        ) from None
    played = [(colour, value[0]) for node in nodes for colour, value in node.items() if colour in ("B", "W")]
    moves = []
    for turn, (colour, point) in enumerate(played, start=1):
        if colour != ("B", "W")[(turn - 1) % 2]:
            raise ConfigError(f"{where}, move {turn}: {colour}[{point}], but it is not {colour}'s turn; black begins")
        moves.append(move_of(point, size, f"{where}, move {turn}: {colour}[{point}]"))
    return Record(name, size, komi, tuple(moves))


def move_of(point: str, size: int, where: str) -> int:
    """Return the move at a column and a row, two letters from `a` on. No letters, or `tt` up to 19x19, is a pass."""
    if point == "" or (point == "tt" and size <= 19):
        return size * size
    places = [ord(letter) - ord("a") for letter in point]
    if len(places) != 2 or not all(0 <= place < size for place in places):
        raise ConfigError(f"{where} is outside of a board of {size}x{size}")
    return places[1] * size + places[0]
