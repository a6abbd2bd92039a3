"""Benchmarks run as files from any folder, whether timetrial is installed or not."""

from __future__ import annotations

import re

from tests.support.commands import ROOT

IMPORTS = re.compile(r"^(?:from|import) (?:benchmarks|conf|tests|tracking|trainers)\b", re.MULTILINE)


def test_a_script_finds_the_project_before_it_imports_from_it() -> None:
    for path in sorted((ROOT / "benchmarks").rglob("*.py")):
        source = path.read_text(encoding="utf-8")
        first = IMPORTS.search(source)
        if first and '__name__ == "__main__"' in source:
            assert "sys.path.insert(0, str(" in source[: first.start()], path
