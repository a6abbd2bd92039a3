"""Takes the pictures of docs/mlflow_ui.md: python -m docs.mlflow_screenshots --runs-dir runs --sweep vgg.

A copy of the runs goes, with a report of each sweep, to an MLflow server that is started for it, and its pages are seen
with Chromium. The tests open the same pages by the same functions, and look at what is there.
"""

from __future__ import annotations

import argparse
import dataclasses
import io
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import FloatRect, Page

from tests.support import browser
from tests.support.mlflow_server import MlflowServer
from tests.support.team_ui import TeamUi
from tracking.cli import main as command
from tracking.jobs.follow import sync
from tracking.jobs.plan import sweep as sweeps
from tracking.record import documents, run_folder

IMAGES = Path(__file__).resolve().parent / "images"
DRAWN_MS = 1500  # after the words of a page are there, until its plots have come to rest
HEIGHTS = {"experiment": 360, "table": 520}  # in pixels, of pages with few runs, which are empty below
COLORS = 128  # a picture's: fewer bytes, and no difference is seen


def table(page: Page, ui: TeamUi, sweep: str) -> None:
    """The link that a sweep ends with: its jobs by time to accuracy."""
    browser.visit(page, ui.links(sweep)["MLflow UI"])
    page.get_by_role("link", name="-seed").first.wait_for()


def charts(page: Page, ui: TeamUi, sweep: str) -> None:
    """The same runs in charts."""
    browser.visit(page, ui.links(sweep)["as charts"])
    page.get_by_text("Time to accuracy").wait_for()
    page.locator("svg.main-svg").first.wait_for()


def compare(page: Page, ui: TeamUi, sweep: str) -> None:
    """The jobs of a sweep side by side."""
    browser.visit(page, ui.links(sweep)["side by side"])
    page.get_by_text(re.compile(r"Comparing \d+ Runs")).wait_for()


def report(page: Page, ui: TeamUi, sweep: str) -> None:
    """The sweep's report among its artifacts, from the heading before its first figure on."""
    browser.visit(page, ui.links(sweep)["report"])
    frame = page.frame_locator("iframe")
    frame.get_by_role("img").first.wait_for()
    frame.get_by_role("heading").last.evaluate("heading => heading.scrollIntoView()")


def answer(page: Page, ui: TeamUi, sweep: str) -> None:
    """The parent run's page, with the answer in its description."""
    browser.visit(page, ui.page(ui.sweep(sweep)))
    page.get_by_text("Tables and figures:").wait_for()


def experiment(page: Page, ui: TeamUi, sweep: str) -> None:
    """All runs of the experiment, as MLflow shows them without a view: sweeps with their jobs below them."""
    browser.visit(page, ui.experiment)
    page.get_by_text(run_folder.read_info(ui.sweep(sweep)).name).first.wait_for()


PICTURES: Mapping[str, Callable[[Page, TeamUi, str], None]] = {
    show.__name__: show for show in (experiment, table, charts, compare, answer, report)
}


@contextmanager
def serving(runs_dir: Path, scratch: Path) -> Iterator[TeamUi]:
    """Serve a copy of the runs, as they would be had this server been theirs."""
    copied = shutil.copytree(runs_dir, scratch / "runs")
    with MlflowServer(scratch) as server:
        folders = list(run_folder.run_folders(copied))
        for folder in folders:
            (folder / run_folder.MIRROR).unlink(missing_ok=True)
            info = dataclasses.replace(run_folder.read_info(folder), tracking_uri=server.uri)
            documents.write_json(folder / run_folder.RUN, info)
        for outcome in sync.sync(folders):
            assert outcome.state == "complete", outcome
        for folder in folders:
            if (folder / sweeps.DEFINITION).exists():
                command(["report", folder.name, "--uri", server.uri, "--attach", "--out", str(folder)])
        yield TeamUi(server.uri, folders)


def take(page: Page, path: Path, height: int) -> None:
    """Write the picture of what is seen, down to `height` pixels."""
    page.wait_for_timeout(DRAWN_MS)
    clip = FloatRect(x=0, y=0, width=browser.WIDTH, height=height)
    write(Image.open(io.BytesIO(page.screenshot(clip=clip))), path)


def write(picture: Image.Image, path: Path) -> None:
    """Write a picture in few colors. The rare ones, those of thin lines, are kept."""
    few = picture.convert("RGB").quantize(COLORS, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE)
    few.save(path, optimize=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs-dir", type=Path, required=True, help="folder of run folders; it is only read")
    parser.add_argument("--sweep", required=True, help="the newest of this model is shown: vgg")
    parser.add_argument("--out", type=Path, default=IMAGES, help="folder of the pictures; default: %(default)s")
    parser.add_argument("pictures", nargs="*", choices=[[], *PICTURES], help="which; default: all")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as scratch,
        serving(arguments.runs_dir, Path(scratch)) as ui,
        browser.opened() as page,
    ):
        for name in arguments.pictures or PICTURES:
            PICTURES[name](page, ui, arguments.sweep)
            take(page, arguments.out / f"mlflow_{name}.png", HEIGHTS.get(name, browser.HEIGHT))
        figure = ui.sweep(arguments.sweep) / "report-1-settings.png"
        write(Image.open(figure), arguments.out / "report_settings.png")


if __name__ == "__main__":
    main()
