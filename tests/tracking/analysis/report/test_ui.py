"""MLflow's UI as a user sees it, in a real browser: the runs of a team, and the links that a sweep ends with."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, expect

from docs import mlflow_screenshots
from tests.support import browser, team_runs, team_ui
from tests.support.team_ui import TeamUi
from tracking.record import headline, run_folder

pytestmark = [
    pytest.mark.service,
    pytest.mark.pictures,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]

NUM_JOBS = 12  # those of the sweep over vgg: one missed its target, one failed
COLUMN = '.ag-center-cols-container [col-id="{}"]'
NAMES = '.ag-pinned-left-cols-container [col-id="attributes.`Run Name`"]'


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser.opened() as page:  # before the server: where there is no Chromium, nothing is started
        yield page


@pytest.fixture(scope="module")
def ui(page: Page, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TeamUi]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(tmp_path_factory.mktemp("home")))  # no ~/.mlflow/credentials
        with team_ui.running(tmp_path_factory.mktemp("team")) as running:
            yield running


last: list[tuple[str, str]] = []  # the page that is open


def show(page: Page, ui: TeamUi, name: str, model: str) -> None:
    """Open a page of the docs' pictures, but where the test before has left it open: each takes seconds to load."""
    if last != [(name, model)]:
        mlflow_screenshots.PICTURES[name](page, ui, model)
        last[:] = [(name, model)]


def visit(page: Page, link: str) -> None:
    browser.visit(page, link)
    last.clear()


def in_order(page: Page, selector: str, num_rows: int = NUM_JOBS) -> list[str]:
    """The texts of a column of the runs table, from top to bottom.

    Wait for as many rows as there are to be: those of the last search go some time after the count has changed.
    """
    script = """cells => cells.map(cell => [Number(cell.closest('.ag-row').getAttribute('row-index')), cell.innerText])
        .sort((one, other) => one[0] - other[0]).map(pair => pair[1].trim().split('\\n').pop())"""
    expect(page.locator(selector)).to_have_count(num_rows)
    return page.locator(selector).evaluate_all(script)


def times(ui: TeamUi, model: str) -> dict[str, float]:
    """Time to accuracy by name of the jobs that have one, the fastest first."""
    times = {}
    for folder in ui.sweep(model).glob(f"*/{run_folder.RESULT}"):
        metrics = json.loads(folder.read_text())["metrics"]
        if "time/to_accuracy_sec" in metrics:
            times[folder.parent.name] = metrics["time/to_accuracy_sec"]
    return dict(sorted(times.items(), key=lambda item: item[1]))


def test_the_printed_link_opens_the_sweeps_jobs_by_time_to_accuracy(page: Page, ui: TeamUi) -> None:
    show(page, ui, "table", "vgg")
    expect(page.get_by_text(re.compile("matching runs")).locator("..")).to_contain_text(f"{NUM_JOBS} matching runs")
    expect(page.get_by_text("Sort: time/to_accuracy_sec")).to_be_visible()
    fastest = times(ui, "vgg")
    names = in_order(page, NAMES)
    assert names[: len(fastest)] == list(fastest)
    assert len(fastest) + 2 == NUM_JOBS
    assert set(names) == {path.name for path in ui.sweep("vgg").iterdir() if path.is_dir()}
    shown = in_order(page, COLUMN.format("metrics.`time/to_accuracy_sec`"))
    assert [float(text) for text in shown[: len(fastest)]] == pytest.approx(list(fastest.values()))
    assert shown[len(fastest) :] == ["-", "-"]


def test_names_and_headings_are_whole_and_what_is_compared_is_in_columns(page: Page, ui: TeamUi) -> None:
    show(page, ui, "table", "vgg")
    cut = """cells => cells.filter(cell => {
        const text = document.createRange();
        text.selectNodeContents(cell.querySelector('a'));
        return text.getBoundingClientRect().right > cell.getBoundingClientRect().right;
    }).map(cell => cell.innerText)"""
    assert page.locator(NAMES).evaluate_all(cut) == []
    headings = page.locator(".ag-header-viewport .ag-header-cell")
    across = """cells => cells.sort((a, b) => a.getBoundingClientRect().x - b.getBoundingClientRect().x)
        .map(cell => cell.innerText)"""  # the grid keeps its cells in another order than it shows them in
    first = headings.evaluate_all(across)[:4]
    metrics = ["time/to_accuracy_sec", "time/to_accuracy_train_sec", "epochs/to_accuracy", "epochs/trained"]
    assert [text.strip() for text in first] == metrics
    page.locator(".ag-center-cols-viewport").evaluate("area => area.scrollLeft = area.scrollWidth")
    for column in ("params.`gpus`", "params.`precision`", "params.`seed`", "metrics.`cost/to_accuracy_usd`"):
        expect(page.locator(COLUMN.format(column)).first).to_be_visible()
    assert in_order(page, COLUMN.format("tags.`failure`")).count("oom") == 1


def test_the_link_to_charts_begins_with_time_to_accuracy(page: Page, ui: TeamUi) -> None:
    show(page, ui, "charts", "vgg")
    expect(page.get_by_text("Time to accuracy").locator("..")).to_contain_text("(4)")
    for title in ("time/to_accuracy_sec", "throughput/samples_per_sec", "eval/accuracy", "Parallel Coordinates"):
        expect(page.get_by_role("heading", name=title)).to_be_visible()
    bars = page.locator(".js-plotly-plot").first.locator(".bars .point")
    expect(bars).to_have_count(len(times(ui, "vgg")))


def test_the_link_to_compare_has_the_fastest_first(page: Page, ui: TeamUi) -> None:
    show(page, ui, "compare", "maskrcnn")
    shown = page.locator("tr", has_text="Run Name:").locator("td")
    assert [text.strip() for text in shown.all_inner_texts()][:5] == list(times(ui, "maskrcnn"))
    assert "side by side" in ui.links("vgg")


def test_the_sweeps_page_begins_with_the_answer(page: Page, ui: TeamUi) -> None:
    show(page, ui, "answer", "vgg")
    answer = json.loads((ui.sweep("vgg") / "report.json").read_text())["answer"]
    description = page.get_by_text(answer)
    expect(description).to_be_in_viewport()
    expect(page.get_by_role("heading", name="vgg sweep precision=tf32,bf16 gpus=1,2,4 seed=1,2")).to_be_visible()
    expect(page.get_by_role("link", name=re.compile("^vgg-fashion_mnist-bf16-4gpu"))).to_have_count(2)


def test_the_link_to_the_report_shows_it_with_its_figures(page: Page, ui: TeamUi) -> None:
    show(page, ui, "report", "vgg")
    frame = page.frame_locator("iframe")
    (headline,) = json.loads((ui.sweep("vgg") / "report.json").read_text())["headlines"]
    expect(frame.locator(".answer")).to_have_text(headline)
    figures = frame.get_by_role("img")
    assert figures.count() == len(list(ui.sweep("vgg").glob("report-*.png"))) >= 5
    assert min(figures.evaluate_all("all => all.map(one => one.complete ? one.naturalWidth : 0)")) > 500
    assert max(figures.evaluate_all("all => all.map(one => one.getBoundingClientRect().right - innerWidth)")) <= 0


def test_the_link_to_all_runs_opens_on_them_and_not_on_traces(page: Page, ui: TeamUi) -> None:
    visit(page, ui.links("vgg")["all runs"])
    total = page.get_by_text(re.compile("matching runs")).locator("..")
    expect(total).to_contain_text(f"{team_runs.NUM_RUNS} matching runs")


def test_the_experiment_has_sweeps_with_their_jobs_below_them(page: Page, ui: TeamUi) -> None:
    show(page, ui, "experiment", "vgg")
    total = page.get_by_text(re.compile("matching runs")).locator("..")
    expect(total).to_contain_text(f"{team_runs.NUM_RUNS} matching runs")
    names = in_order(page, NAMES, len(team_runs.SWEEPS) + 5)
    for model in ("vgg", "maskrcnn"):
        assert [name for name in names if name.startswith(f"{model} sweep ")]
    row = page.locator(".ag-pinned-left-cols-container .ag-row", has_text="maskrcnn sweep")
    row.get_by_role("button").first.click()
    expect(page.locator(NAMES, has_text="maskrcnn-shapes-bf16")).to_have_count(6)


def test_runs_on_a_driver_are_found_by_the_search_box(page: Page, ui: TeamUi) -> None:
    """MLflow keeps what was searched for, so no later test may ask for all runs."""
    show(page, ui, "experiment", "vgg")
    box = page.get_by_placeholder(re.compile("metrics.rmse"))
    total = page.get_by_text(re.compile("matching runs")).locator("..")
    box.fill(f"tags.`env.driver` = '{team_runs.OLD_DRIVER}'")
    box.press("Enter")
    expect(total).to_contain_text("5 matching runs")
    assert {name.partition("-seed")[0] for name in in_order(page, NAMES, 5)} == {"vgg-fashion_mnist-bf16-1gpu"}


def test_a_runs_page_says_what_it_came_to_from_what_and_on_which_data(page: Page, ui: TeamUi) -> None:
    folder = ui.run("maskrcnn", "4gpu-seed1")
    visit(page, ui.page(folder))
    result = run_folder.read_result(folder)
    assert result
    expect(page.get_by_text(headline(result))).to_be_visible()
    expect(page.get_by_text(re.compile("launch.py")).first).to_be_visible()
    expect(page.get_by_text(re.compile(r"shapes \(generated\)")).first).to_be_visible()


@pytest.mark.parametrize(
    ("tab", "title", "drawn"),
    [
        ("model-metrics", "to_accuracy_usd", ".bars .point"),  # one figure of the whole run: a bar, no curve of one dot
        ("system-metrics", "gpu_3_utilization_percentage", ".scatterlayer .lines"),
    ],
)
def test_a_runs_page_draws_its_metrics(page: Page, ui: TeamUi, tab: str, title: str, drawn: str) -> None:
    visit(page, ui.page(ui.run("maskrcnn", "4gpu-seed1"), tab))
    expect(page.get_by_text(title, exact=True).first).to_be_visible()
    expect(page.locator(f".js-plotly-plot {drawn}").first).to_be_visible()


@pytest.mark.parametrize("name", mlflow_screenshots.PICTURES)
def test_every_picture_is_in_the_docs_and_small(name: str) -> None:
    picture = mlflow_screenshots.IMAGES / f"mlflow_{name}.png"
    assert picture.stat().st_size < 300_000
    assert f"images/{picture.name}" in (mlflow_screenshots.IMAGES.parent / "mlflow_ui.md").read_text(encoding="utf-8")
