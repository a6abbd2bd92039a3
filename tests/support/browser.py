"""A headless Chromium from Debian, driven by Playwright: what a user sees of MLflow's pages."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, expect, sync_playwright

PACKAGES = ("chromium", "fonts-liberation")
TIMEOUT_MS = 300_000  # for something to appear: it ends what hangs, however busy the machine is
WIDTH, HEIGHT = 1480, 940
# MLflow opens a chat assistant beside the page at a browser's first visit; this is a later one.
VISITED = "localStorage.setItem('mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true')"


def installed() -> str:
    """The path of Chromium, installed where that is possible; the test is skipped where it is not."""
    for attempt in range(2):
        if path := shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome"):
            return path
        if attempt == 0 and os.geteuid() == 0 and shutil.which("apt-get"):
            environ = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
            install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", *PACKAGES]
            for command in (["apt-get", "update", "-qq"], install):
                subprocess.run(command, check=False, capture_output=True, env=environ)
    pytest.skip("there is no Chromium, and it cannot be installed here: apt-get install chromium")


@contextmanager
def opened(**options: object) -> Iterator[Page]:
    """A page of a browser without history; `options` are Playwright's for a new page."""
    path = installed()
    sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium's sandbox refuses root
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=sandbox)
        page = chromium.new_page(viewport={"width": WIDTH, "height": HEIGHT}, **options)  # type: ignore[arg-type]
        page.set_default_timeout(TIMEOUT_MS)
        expect.set_options(timeout=TIMEOUT_MS)  # The page's default does not change its own 5 s.
        page.add_init_script(VISITED)
        yield page
        chromium.close()


def visit(page: Page, link: str) -> None:
    """Open a link in an empty tab: MLflow's pages differ behind the # alone, and else would not be loaded anew."""
    page.goto("about:blank")
    page.goto(link)
