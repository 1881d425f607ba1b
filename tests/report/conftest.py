"""Reports of every kind, made once, and a real browser."""

import os
import shutil

import pytest

from support import reports


@pytest.fixture(scope="session")
def kinds():
    """A report of every kind."""
    return {
        "pass": reports.a_pass(),
        "fail": reports.diagnosed(reports.a_fail(), "It is twice the truth.", "It is something else."),
        "one wrong entry": reports.one_wrong_entry(),
        "every entry": reports.a_fail(coverage="full"),
        "both modes": reports.a_pass(modes=("reverse", "forward")),
        "inconclusive": reports.an_inconclusive(),
    }


@pytest.fixture(scope="session")
def chromium():
    """Debian's Chromium, headless."""
    found = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("no Chromium here: install it (apt-get install chromium), or set CHROMIUM to where it is")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield browser
        browser.close()
