"""A report's page in a browser: a wide table is whole on a large screen and on paper, and scrolls on a small one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support import browser
from tracking.analysis.report import page as pages
from tracking.analysis.results import Table

pytest.importorskip("playwright")

from playwright.sync_api import Page

pytestmark = pytest.mark.service

COLUMNS = [f"speed-up of quantity {number}" for number in range(18)]
PAPER = 1046  # pixels in the width of a sheet, A4 across less its margins


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    folder = tmp_path_factory.mktemp("report")
    row = ["0.013060 ± 0.000033 (n=2)" for _ in COLUMNS]
    pages.write_tables("wide", [Table("many columns", dict.fromkeys(COLUMNS, ""), [row, row])], folder)
    with browser.opened() as page:
        page.goto((folder / "report.html").as_uri())
        yield page


def widths(page: Page, width: int) -> tuple[bool, bool]:
    """Whether the page, and the table's box, are as wide as what is in them, in a window of so many pixels."""
    page.set_viewport_size({"width": width, "height": 800})
    script = "name => (it => it.scrollWidth <= it.clientWidth)(document.querySelector(name))"
    return page.evaluate(script, "html"), page.evaluate(script, ".wide")


def test_on_a_small_screen_the_table_scrolls_and_not_the_page(page: Page) -> None:
    assert widths(page, 1280) == (True, False)
    last = page.get_by_text(COLUMNS[-1])
    last.scroll_into_view_if_needed()
    box = last.bounding_box()
    assert box
    assert 0 < box["x"] < box["x"] + box["width"] <= 1280


def test_a_large_screen_has_the_whole_table(page: Page) -> None:
    assert widths(page, 3840) == (True, True)


def test_so_has_paper(page: Page) -> None:
    page.emulate_media(media="print")
    assert widths(page, PAPER) == (True, True)
    page.emulate_media(media="screen")
