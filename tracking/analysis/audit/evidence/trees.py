"""Compare a report's values with the recomputed ones, key by key: missing, surplus or different."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from tracking.analysis.audit.arithmetic import close

ABSENT = "nothing"


@dataclass
class AuditResult:
    num_runs: int = 0
    num_figures: int = 0  # values that were compared
    differences: list[str] = field(default_factory=list)

    def note(self, good: bool, sentence: str) -> None:
        """Count a value that was compared, and keep the sentence if it differs."""
        self.num_figures += 1
        if not good:
            self.differences.append(sentence)


class Unchecked:
    """Accepts any value: a sentence, a title or a note."""


UNCHECKED = Unchecked()


@dataclass(frozen=True)
class Near:
    """Accepts a number to a relative tolerance `near`, and to `near` times `size` around zero."""

    value: float | None
    near: float
    size: float = 0.0

    def holds(self, claimed: Any) -> bool:
        is_number = claimed is None or (isinstance(claimed, int | float) and not isinstance(claimed, bool))
        return is_number and close(claimed, self.value, self.near, self.size)

    def __str__(self) -> str:
        return str(self.value)


@dataclass(frozen=True)
class That:
    """Accepts what `test` accepts; `words` describe it in differences."""

    test: Callable[[Any], bool]
    words: str

    def holds(self, claimed: Any) -> bool:
        try:
            return self.test(claimed)
        except (TypeError, ValueError, KeyError, AttributeError):
            return False

    def __str__(self) -> str:
        return self.words


def compare(tally: AuditResult, name: str, claimed: Any, expected: Any) -> None:
    """Note each value of the tree `expected` that differs; a key that one side lacks has ABSENT there."""
    if isinstance(expected, Unchecked):
        return None
    if isinstance(expected, Mapping) and isinstance(claimed, Mapping):
        for key in dict.fromkeys([*expected, *claimed]):
            compare(tally, f"{name}: {key}", claimed.get(key, ABSENT), expected.get(key, ABSENT))
        return None
    if isinstance(expected, Mapping) and claimed is ABSENT:
        return tally.note(False, f"{name}: it is not in the report")
    if isinstance(claimed, Mapping) and expected is ABSENT:
        return tally.note(False, f"{name}: it is in the report, and not in the run folders")
    good = expected.holds(claimed) if isinstance(expected, Near | That) else _same(claimed, expected)
    return tally.note(good, f"{name}: the report has {_shown(claimed)}, the run folders {_shown(expected)}")


def _same(claimed: Any, expected: Any) -> bool:
    return isinstance(claimed, bool) == isinstance(expected, bool) and bool(claimed == expected)


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) and value is not ABSENT else str(value)


def by_identity(tally: AuditResult, name: str, records: Any, identity: Callable[[Mapping[str, Any]], str]) -> Any:
    """The records of a list by identity; notes duplicates."""
    records_by_key: dict[str, Any] = {}
    for record in records if isinstance(records, Collection) else ():
        key = identity(record) if isinstance(record, Mapping) else str(record)
        if key in records_by_key:
            tally.note(False, f"{name}: {key}: it is there twice")
        records_by_key[key] = record
    return records_by_key


def name_of(setting: Any) -> str:
    """A setting's labels in words; an altered report may have any other value there."""
    if not isinstance(setting, Mapping):
        return str(setting)
    return " ".join(f"{axis}={value}" for axis, value in setting.items()) or "all"
