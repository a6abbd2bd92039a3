"""Every way to alter a report's JSON by one value: a number, a label, a name, a record more or less.

There are thousands, so tests try some of each kind.
"""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from tracking.analysis.report.sentences import ANSWER

Path = tuple[Any, ...]  # the keys and places that lead to a value
# Values that `report --check` does not check, as docs/report.md says: words, and values that belong to no run.
WORDS = ("title", "source", "warnings", "sentences")
WORDS_OF_A_TABLE = ("title", "note")
# By kind of table, the columns that hold words or what others published.
COLUMNS = {"pairs": {"so"}, "missing": {"why"}, "beside": {"hardware"}}


def is_unchecked(report: dict[str, Any], path: Path) -> bool:
    """Whether a value is one of the words that are not checked."""
    if path[0] == "sentences" and len(path) > 1 and report["sentences"][path[1]]["kind"] == "factors":
        return path[2:] in ((), ("template",), ("kind",))
    if path[0] == "sentences" and len(path) > 1 and report["sentences"][path[1]]["kind"] in ANSWER:
        return False
    if path[0] in WORDS or path[::2] == ("comparisons", "so"):
        return True
    if path[0] != "tables" or len(path) < 3:
        return False
    table = report["tables"][path[1]]
    if table["kind"] == "published" or path[2] in WORDS_OF_A_TABLE:
        return True
    if path[2] != "rows" or len(path) < 4:
        return False
    row = table["rows"][path[3]]
    if table["kind"] == "beside" and not row[0].startswith("yours: "):
        return True
    is_gap = table["kind"] == "stacks" and row[0] == "lead"
    words = COLUMNS.get(table["kind"], set()) | ({report["metric"]} if is_gap else set())
    return len(path) > 4 and table["columns"][path[4]] in words


def values(node: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Every value of a tree, also those that hold others."""
    if path:
        yield path, node
    pairs = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, inner in pairs:
        yield from values(inner, (*path, key))


@dataclass(frozen=True)
class Alteration:
    """One change of one value, with what it is an example of: of a column's or figure's own values, and of a way to
    change a field of such records."""

    path: Path
    kinds: tuple[tuple[str, ...], tuple[str, ...]]
    words: str
    change: Callable[[Any, Any], None]

    def made(self, tree: dict[str, Any]) -> dict[str, Any]:
        """The tree with the change; what is beside it is shared."""
        other = tree | {self.path[0]: copy.deepcopy(tree[self.path[0]])}
        holder: Any = other
        for key in self.path[:-1]:
            holder = holder[key]
        self.change(holder, self.path[-1])
        return other

    def __str__(self) -> str:
        return f"{self.path}: {self.words}"


def alterations(
    tree: dict[str, Any], unchecked: Callable[[dict[str, Any], Path], bool] = is_unchecked
) -> Iterator[Alteration]:
    """Every change of every value but the words."""
    for path, value in values(tree):
        if not unchecked(tree, path):
            for words, change in changes(path, value):
                sort = words if words in ("dropped", "twice", "renamed") else "altered"
                kinds = (*field(tree, path),), (*map(str, path[::2]), sort)
                yield Alteration(path, kinds, f"{str(value)[:60]}: {words}", change)


def sampled(some: Iterable[Alteration], covered: Iterable[tuple[str, ...]] = ()) -> list[Alteration]:
    """By chance so many that each kind has an example; of those that are `covered` already none is needed."""
    shuffled, known, chosen = [*some], {*covered}, []
    random.Random(1).shuffle(shuffled)
    for each in shuffled:
        if not known.issuperset(each.kinds):
            known.update(each.kinds)
            chosen.append(each)
    return chosen


def field(tree: dict[str, Any], path: Path) -> Iterator[str]:
    """The keys that lead to a value. A list's index is replaced by the kind of its record, or by its column."""
    node: Any = tree
    columns: list[str] = []
    for key in path:
        if isinstance(node, dict):
            columns = node.get("columns", columns)
            yield str(key)
        elif isinstance(node[key], dict):
            yield str(node[key].get("figure") or node[key].get("kind") or "")
        else:
            yield columns[key] if columns and isinstance(node[key], str) else ""
        node = node[key]


def changes(path: Path, value: Any) -> Iterator[tuple[str, Callable[[Any, Any], None]]]:
    def put(new: Any) -> tuple[str, Callable[[Any, Any], None]]:
        return f"{new!r:.60}", lambda holder, key: holder.__setitem__(key, new)

    if isinstance(value, bool):
        yield put(not value)
    elif isinstance(value, int | float):
        yield from map(put, (value + 1, 1.1 * value + 0.001, str(value), None))
        if value:
            yield put(2 * value)
    elif value is None:
        yield put(1.0)
    elif isinstance(value, str):
        yield from map(put, (f"{value}x", *digits(value)))
    if len(path) > 1:  # A whole part that is not there is another test's.
        yield "dropped", lambda holder, key: holder.__delitem__(key)
    if len(path) > 1 and isinstance(path[-1], int):
        yield "twice", lambda holder, key: holder.append(copy.deepcopy(holder[key]))
    elif len(path) > 1:
        yield "renamed", lambda holder, key: holder.__setitem__(f"{key} ", holder.pop(key))


def digits(text: str) -> Iterator[str]:
    """The text with the last digit of each number changed."""
    for match in re.finditer(r"\d(?!\d)", text):
        yield text[: match.start()] + str((int(match[0]) + 5) % 10) + text[match.end() :]
