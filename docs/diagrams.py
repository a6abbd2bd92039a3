"""Draws the diagrams of docs/*.md for the site: python -m docs.diagrams --mermaid mermaid.min.js.

GitHub draws the pages' Mermaid blocks itself. The site shows these pictures, so that it needs no network. Chromium runs
Mermaid's script (`npm pack mermaid@11`: package/dist/mermaid.min.js).
"""

from __future__ import annotations

import argparse
import hashlib
import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
BLOCK = re.compile(r"^```mermaid\n(.*?)^```$", re.MULTILINE | re.DOTALL)
OPTIONS = """{
    startOnLoad: false, htmlLabels: false, theme: 'neutral', fontFamily: 'sans-serif',
    themeCSS: '.edgeLabel rect { fill: white; opacity: 0.85; }',
}"""
WIDTH = re.compile(r'width="100%"(?=.*?viewBox="\S+ \S+ (\S+))')  # an image of 100 % has no width of its own


def picture(source: str) -> Path:
    """The path of a block's picture, named by what it was drawn from."""
    return HERE / "images" / f"diagram-{hashlib.sha256(source.encode()).hexdigest()[:12]}.svg"


def blocks() -> list[str]:
    """The source of each Mermaid block of the pages."""
    return [source for page in sorted(HERE.glob("*.md")) for source in BLOCK.findall(page.read_text(encoding="utf-8"))]


def main() -> None:
    from tests.support import browser  # with pytest and Playwright, which the site's build has no need of

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mermaid", type=Path, required=True, help="path of mermaid.min.js")
    script = parser.parse_args().mermaid.read_text(encoding="utf-8")
    sources = blocks()
    for old in {*(HERE / "images").glob("diagram-*.svg")} - {picture(source) for source in sources}:
        old.unlink()
    with browser.opened() as page:
        page.add_script_tag(content=script)
        page.evaluate(f"mermaid.initialize({OPTIONS})")
        for source in sources:
            drawn = page.evaluate("async source => (await mermaid.render('diagram', source)).svg", source)
            picture(source).write_text(WIDTH.sub(r'width="\1"', drawn, count=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
