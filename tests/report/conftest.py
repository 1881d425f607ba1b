"""Reports of every kind, made once, and a real browser."""

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # importlib mode puts no folder of tests on the path by itself

import checks  # found through the line above


@pytest.fixture(scope="session")
def kinds():
    """A report of every kind."""
    return {
        "pass": checks.a_pass(),
        "fail": checks.diagnosed(checks.a_fail(), "It is twice the truth.", "It is something else."),
        "one wrong entry": checks.one_wrong_entry(),
        "every entry": checks.a_fail(coverage="full"),
        "both modes": checks.a_pass(modes=("reverse", "forward")),
        "inconclusive": checks.an_inconclusive(),
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
