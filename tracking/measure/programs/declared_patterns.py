"""Read values from a program's own output by the regular expressions of `program.*`.

A number is read whole, or not at all. Programs write 0.715, 71.5%, 60,000, 60_000, 1e-3, 12k and 1.2M; some write 71,5
and 60 000. An ambiguous number is not read, since a wrong number looks like a right one: a metric of `1,234` may be
1234 or 1.234.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from tracking.measure.programs import checked_values
from tracking.measure.programs.line_splitter import SkippedLines

PLAIN = re.compile(r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")
WORD = re.compile(r"[-+]?(?:nan|inf(?:inity)?)(?!\w)", re.I)
SPACES = "\u00a0\u2009\u202f"  # spaces that only occur in numbers
TOKEN = re.compile(rf"([-+]?)(\.?\d(?:\d|[.,_'’{SPACES}](?=\d))*\.?)([eE][-+]?\d+)?")
SPACED = re.compile(r"[-+]?\d{1,3}(?: \d{3})+")
THOUSANDS = {",": re.compile(r"[1-9]\d{0,2}(?:,\d{3})+"), ".": re.compile(r"[1-9]\d{0,2}(?:\.\d{3})+")}
SCALES = {"k": 3, "K": 3, "M": 6, "G": 9}  # powers of ten
SCALE = re.compile(r"[kKMG](?![A-Za-z\d])")
# Text that may continue a number: digits after a separator, a power of ten, a scale that may be a unit instead.
CONTINUES = re.compile(r"[.,_'’:\-–]?\d|[.,]\d|[A-Za-z]+\d|[BT](?![A-Za-z])|\s?[×x*·]\s?10\b")
NEXT_GROUP = re.compile(r" \d{3}(?![\d.,:%/\w\-])")  # a further group of thousands
NUMBER_BEFORE = re.compile(rf"\d[.,_'’{SPACES}]?$|[-−]$")
SIGN = re.compile(r"(?<!\w)[-−]$")  # after a word character it is a hyphen, as in `epoch-3`
CHARS_BEFORE, CHARS_AFTER = {"", *" =:([{|"}, {"", *" ,;:)]}/|%"}
GROUP_BEFORE = re.compile(r"(?<![\d.,])\d{1,3} $")


@dataclass(frozen=True)
class PatternMatch:
    """A matched value. `role` is metric, samples, epoch, step or start; `key` is the metric's."""

    role: str
    key: str
    value: float


def compile_pattern(pattern: str, groups: int = 1) -> re.Pattern[str]:
    """The compiled expression. Raises ValueError for an invalid one, or another number of groups."""
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"is not a regular expression: {error}") from None
    if expression.groups != groups:
        words = "none" if groups == 0 else "exactly one, around the number"
        raise ValueError(f"has {expression.groups} groups (...). Next: give {words}, and write others as (?:...)")
    return expression


class DeclaredPatterns:
    """Matches lines against the declared expressions: `metrics` by key, and the others. A line may match several.

    `skipped` collects numbers that were matched and could not be read.
    """

    def __init__(
        self, metrics: Mapping[str, str], samples: str | None = None, epoch: str | None = None,
        step: str | None = None, start: str | None = None, samples_per_step: int | None = None,
    ) -> None:  # fmt: skip
        self.skipped = SkippedLines()
        singles = {"epoch": epoch, "step": step, "samples": samples}
        # In this order, since an epoch's number in a metric's line belongs to that metric.
        self._patterns = [(role, "", compile_pattern(text)) for role, text in singles.items() if text]
        self._patterns += [("metric", key, compile_pattern(text)) for key, text in metrics.items()]
        self._samples_per_step = samples_per_step
        self._start = compile_pattern(start, groups=0) if start else None

    def matches(self, line: str) -> Iterator[PatternMatch]:
        """The matches of a line, at most one per expression. Numbers that are ambiguous go to `skipped`."""
        if self._start is not None and self._start.search(line):
            yield PatternMatch("start", "", 0.0)
        for role, key, pattern in self._patterns:
            match = pattern.search(line)
            if match is None or match[1] is None:
                continue
            try:
                value = _value(match, role)
                yield PatternMatch(role, key, value)
                if role == "step" and self._samples_per_step:
                    yield PatternMatch("samples", "", value * self._samples_per_step)
            except ValueError as error:
                self.skipped.add(f"{key or role} {checked_values.shortened(match[1])} {error}", line)


def _value(match: re.Match[str], role: str) -> float:
    value = matched_number(match, is_count=role in ("samples", "step"))
    if role != "metric" and not 0 <= value <= checked_values.MAX_COUNT:
        raise ValueError(f"is not from 0 to {checked_values.MAX_COUNT}")
    return value


def matched_number(match: re.Match[str], is_count: bool = False) -> float:
    """The number in the expression's single group. `is_count`: a whole number, such as of samples.

    Text that the expression matches around its group is not part of the number, except a sign: `loss\\D+(...)` also
    matches the sign of `loss -0.5`. Raises ValueError with the reason why the number is not read.
    """
    line, (start, end) = match.string, match.span(1)
    is_plain = PLAIN.fullmatch(match[1]) and not (is_count and not match[1].isdigit())
    if is_plain and _stands_alone(line[max(0, start - 2) : start], line[end : end + 2]):
        return float(match[1])  # the fast path for nearly all numbers
    after = line[end:] if match.end() == end else line[end : end + 1] if line[end : end + 1].isdigit() else ""
    before = line[:start] if match.start() == start else line[max(0, start - 1) : start].lstrip(f"-−.,_'’{SPACES}")
    text = match[1]
    if SIGN.search(line[max(0, start - 2) : start]):
        raise ValueError("has a sign before the matched part")
    if NUMBER_BEFORE.search(before) or (GROUP_BEFORE.search(before) and re.match(r"\d{3}(?!\d)", text)):
        raise ValueError("begins before the matched part")
    return parse_number(text.strip(), after if text == text.rstrip() else "", is_count)


def _stands_alone(before: str, after: str) -> bool:
    """Whether the characters beside a plain number are certainly not part of it."""
    return (
        after[:1] in CHARS_AFTER and not after[1:].isdigit() and after[1:] not in ("×", "x", "*", "·")
        and before[-1:] in CHARS_BEFORE and not before[:-1].isdigit()
    )  # fmt: skip


def parse_number(text: str, after: str = "", is_count: bool = False) -> float:
    """The number at the start of the text; `after` is the text after it. Raises ValueError."""
    if after[:1] and after[0] in SPACES:  # `\S+` ends before these spaces
        text, after = text + after, ""
    if match := WORD.match(text + after):
        return float(match[0])
    if SPACED.fullmatch(text) and not after[:1].isdigit():
        return float(text.replace(" ", ""))
    token = TOKEN.match(text)
    if token is None:
        raise ValueError("is not a number")
    rest = text[token.end() :] + after
    scale = SCALE.match(rest)
    if scale is None and (CONTINUES.match(rest) or (token[2].isdigit() and NEXT_GROUP.match(rest))):
        raise ValueError("may continue after the part that would be read")
    power = int((token[3] or "e0")[1:]) + (SCALES[scale[0]] if scale else 0)
    value = float(f"{token[1]}{_digits(token[2], is_count)}e{power}")  # since 2.01 times 1000.0 is below 2010
    if is_count and not value.is_integer():
        raise ValueError("is not a whole number")
    return value


def _digits(digits: str, is_count: bool) -> str:
    """The digits without separators, with at most a decimal point. Raises ValueError."""
    plain = re.sub(rf"[_'’{SPACES}]", "", digits)
    commas, dots = plain.count(","), plain.count(".")
    if commas and dots:
        decimal = max(",.", key=plain.rfind)
        whole, _, fraction = plain.rpartition(decimal)
        other = "." if decimal == "," else ","
        if plain.count(decimal) > 1 or not THOUSANDS[other].fullmatch(whole):
            raise ValueError("mixes commas and points")
        return f"{whole.replace(other, '')}.{fraction}"
    if THOUSANDS[","].fullmatch(plain):
        if not is_count and commas == 1:
            raise ValueError(f"may be {plain.replace(',', '')} or {plain.replace(',', '.')}")
        return plain.replace(",", "")
    if is_count and THOUSANDS["."].fullmatch(plain):
        raise ValueError(f"may be {plain.replace('.', '')} or {plain}")
    if commas > 1 or dots > 1:
        raise ValueError("has several commas or points")
    return plain.replace(",", ".")
