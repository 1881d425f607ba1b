"""Examples that are the same in every run, on busy machines too, a browser, and the modules that tests share."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

for folder in (Path(__file__).parents[1], Path(__file__).parent):
    sys.path.insert(0, str(folder))  # importlib mode puts neither `benchmarks` nor `support` on the path by itself

settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


@pytest.fixture(autouse=True)
def _wide_terminal(monkeypatch):
    """Sentences of a report stay on one line, so that tests find them whole."""
    monkeypatch.setenv("COLUMNS", "1000")


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
