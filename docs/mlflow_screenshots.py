"""Takes the pictures of docs/mlflow_ui.md: python -m docs.mlflow_screenshots.

Sixty made-up runs on a server of its own (tests/tracking/team_runs.py), seen with Chromium. The tests open the same
pages by the same functions, and look at what is there.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from playwright.sync_api import Page

from tests.tracking import browser, team_ui
from tests.tracking.team_ui import TeamUi

IMAGES = Path(__file__).resolve().parent / "images"
DRAWN_MS = 1500  # after the words of a page are there, until its plots have come to rest


def table(page: Page, ui: TeamUi) -> None:
    """The link that a sweep ends with: its jobs by time to accuracy."""
    browser.visit(page, ui.links("vgg")["MLflow UI"])
    page.get_by_role("link", name="-seed").first.wait_for()


def charts(page: Page, ui: TeamUi) -> None:
    """The same runs in charts."""
    browser.visit(page, ui.links("vgg")["as charts"])
    page.get_by_text("Time to accuracy").wait_for()
    page.locator("svg.main-svg").first.wait_for()


def compare(page: Page, ui: TeamUi) -> None:
    """The jobs of a smaller sweep side by side."""
    browser.visit(page, ui.links("maskrcnn")["side by side"])
    page.get_by_text("Comparing 9 Runs").wait_for()


def report(page: Page, ui: TeamUi) -> None:
    """The sweep's report among its artifacts, down to the first figure."""
    browser.visit(page, ui.links("vgg")["report"])
    page.frame_locator("iframe").get_by_role("img").first.scroll_into_view_if_needed()


def answer(page: Page, ui: TeamUi) -> None:
    """The parent run's page, with the answer in its description."""
    browser.visit(page, ui.page(ui.sweep("vgg")))
    page.get_by_text("Tables and figures:").wait_for()


def experiment(page: Page, ui: TeamUi) -> None:
    """All runs of the experiment, as MLflow shows them without a view: sweeps with their jobs below them."""
    browser.visit(page, ui.experiment)
    page.get_by_text("vgg sweep").first.wait_for()


PICTURES: Mapping[str, Callable[[Page, TeamUi], None]] = {
    one.__name__: one for one in (experiment, table, charts, compare, answer, report)
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder of the pictures; default: %(default)s")
    parser.add_argument("pictures", nargs="*", choices=[[], *PICTURES], help="which; default: all")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, team_ui.running(Path(scratch)) as ui, browser.opened() as page:
        for name in arguments.pictures or PICTURES:
            PICTURES[name](page, ui)
            page.wait_for_timeout(DRAWN_MS)
            page.screenshot(path=arguments.out / f"mlflow_{name}.png")


if __name__ == "__main__":
    main()
