"""What is made of a journal: the page in a browser, and the comparison of two journals."""

from __future__ import annotations

import dataclasses

import pytest

from gradproof.audit import Ended, Journal, Outcome, Result
from gradproof.audit.diff import differences
from gradproof.audit.exports import to_lines
from gradproof.audit.page import page
from support import reports

HOSTILE = "</script><script>window.hurt = 1</script><b>"


@pytest.fixture
def journal(tmp_path):
    """Make a journal of results."""
    made = []

    def make(*results, tags=("op=sin", "dtype=float64")):
        written = Journal.to_write(tmp_path / f"{len(made)}.db", source="mine")
        made.append(written)
        written.record(*(Ended(result, tags=tags) for result in results))
        return written

    yield make
    for each in made:
        each.close()


@pytest.fixture
def opened(chromium, tmp_path):
    """Open the page of a journal, without a network, and test at the end that it had no errors."""
    context = chromium.new_context(offline=True)
    tab, troubles = context.new_page(), []
    tab.on("console", lambda message: troubles.append(message.text))
    tab.on("pageerror", lambda error: troubles.append(str(error)))

    def show(shown):
        file = tmp_path / "page.html"
        file.write_text(page(shown), encoding="utf-8")
        tab.goto(file.as_uri())
        return tab

    yield show
    context.close()
    assert troubles == []


def result(name, outcome=Outcome.PASS, **fields):
    return Result(name=name, outcome=outcome, **fields)


def some():
    fail = reports.a_fail()
    return (
        result("sin", seconds=3.0),
        result("cos", Outcome.FAIL, reason="wrong-gradient", message="It is wrong.", report=fail.to_json()),
        result(HOSTILE, Outcome.CRASH, reason="SIGSEGV", message="It crashed.", output=HOSTILE),
    )


def test_the_page_searches_filters_and_shows_what_failed(opened, journal):
    tab = opened(journal(*some()))
    rows = tab.locator(".row")

    assert rows.count() == 3
    tab.get_by_role("searchbox").fill("cos")
    tab.get_by_text("1 of 3 cases").wait_for()
    rows.first.click()
    assert "wrong" in tab.locator("#detail pre").first.inner_text()
    assert "gradproof audit replay" in tab.locator("#detail").inner_text()
    tab.get_by_role("searchbox").fill("")
    tab.get_by_text("3 of 3 cases").wait_for()
    tab.get_by_role("button", name="pass 1").click()
    assert rows.count() == 1
    tab.get_by_label("Group by").select_option("op")
    assert tab.get_by_text("op=sin · 1").is_visible()


def test_nothing_that_a_case_says_is_run(opened, journal):
    tab = opened(journal(*some()))
    tab.get_by_role("button", name="crash 1").click()
    tab.locator(".row").click()

    assert tab.evaluate("window.hurt") is None
    assert HOSTILE in tab.locator("#detail").inner_text()


def test_a_hundred_thousand_cases_open_in_two_seconds(journal, chromium, tmp_path):
    """Measured in processor seconds, which other work of the machine does not change."""
    outcomes = (*[Outcome.PASS] * 18, Outcome.ERROR, Outcome.INCONCLUSIVE)
    many = (
        result(f"operator {n % 600}/{n}", outcomes[n % 20], seconds=n % 7 / 10, message="It is so. " * 9)
        for n in range(100_000)
    )
    shown = journal(*many)
    file = tmp_path / "page.html"
    file.write_text(page(shown), encoding="utf-8")
    with chromium.new_page() as tab:
        measured = tab.context.new_cdp_session(tab)
        measured.send("Performance.enable", {"timeDomain": "threadTicks"})
        tab.goto(file.as_uri(), wait_until="load")
        tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        metrics = {each["name"]: each["value"] for each in measured.send("Performance.getMetrics")["metrics"]}

        assert 0.01 < metrics["TaskDuration"] < 2
        assert tab.locator(".row").count() < 100
        assert "100,000 of 100,000" in tab.locator("#shown").inner_text()


def test_cases_that_end_alike_without_a_verdict_have_one_line(journal):
    crashes = [result(name, Outcome.CRASH, message=f"It ended.\nIn {name}.") for name in ("a", "b", "c")]
    written = journal(*crashes, result("z", Outcome.CRASH, message="Otherwise."))

    assert list(to_lines(written)) == [
        "crash  a and 2 more: It ended.",
        "crash  z: Otherwise.",
    ]


def test_two_journals_are_compared(journal):
    names = ("broken", "same", "mended", "lost", "slow", "gone")
    old = [result(name, Outcome.FAIL if name == "mended" else Outcome.PASS, seconds=1.0) for name in names]
    changes = {
        "broken": {"outcome": Outcome.FAIL, "reason": "wrong-gradient"},
        "mended": {"outcome": Outcome.PASS},
        "lost": {"outcome": Outcome.CRASH, "reason": "SIGSEGV"},
        "slow": {"seconds": 5.0},
    }
    new = [dataclasses.replace(each, **changes.get(each.name, {})) for each in old if each.name != "gone"]

    found = [str(each) for each in differences(journal(*old), journal(*new, result("fresh")))]

    assert found == [
        "newly failing: broken (pass → fail wrong-gradient)",
        "new: fresh (absent → pass)",
        "missing in the new journal: gone (pass → absent)",
        "no verdict any more: lost (pass → crash SIGSEGV)",
        "newly passing: mended (fail → pass)",
        "slower: slow (1.00 s → 5.00 s)",
    ]
