"""docs/environment-variables.md against the code."""

from __future__ import annotations

import re

from tests.support.commands import ROOT

NAME = re.compile(r"\bTIMETRIAL_[A-Z_]+\b")
PRODUCT = ("conf", "tracking", "trainers", "timetrial", "deploy", "launch.py")


def used(*parts: str) -> set[str]:
    paths = [
        path for part in parts for path in ([ROOT / part] if (ROOT / part).is_file() else (ROOT / part).rglob("*"))
    ]
    texts = [path.read_text(encoding="utf-8") for path in paths if path.suffix in (".py", ".yaml", ".sh")]
    return {name for text in texts for name in NAME.findall(text)}


def test_the_table_holds_every_variable_of_the_code_and_no_other() -> None:
    page = (ROOT / "docs/environment-variables.md").read_text()
    rows = [line for line in page.splitlines() if line.startswith("| `")]
    listed = [name for row in rows for name in NAME.findall(row.split("|")[1])]
    assert len(listed) == len(set(listed)) == len(rows)
    assert set(listed) == used(*PRODUCT) | used("tests", "benchmarks")
    for_tests = {name for row in rows for name in NAME.findall(row.split("|")[1]) if " tests: " in row}
    assert for_tests == used("tests", "benchmarks") - used(*PRODUCT)
