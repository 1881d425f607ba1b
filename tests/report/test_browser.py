"""The page in a real browser: offline, without an error, on a phone too, and safe against hostile names."""

import pytest

from gradproof import reports_to_html as page
from support.reports import a_fail, diagnosed, named

HOSTILE = "<script>window.hurt=1</script><img src=x onerror=window.hurt=2><svg onload=window.hurt=3>"
SIZES = {"desktop": (1200, 900), "phone": (360, 740)}
every_size = pytest.mark.parametrize("size", SIZES)
every_scheme = pytest.mark.parametrize("scheme", ["light", "dark"])

CONTRAST = """
() => {
  const channel = (c) => (c / 255 <= 0.03928 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const color = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const back = color(getComputedStyle(element).backgroundColor);
      if (back.length < 4 || back[3] > 0) return back;
    }
    return [255, 255, 255];
  };
  let worst = [99, ""];
  for (const element of document.querySelectorAll("body *")) {
    const words = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!words || !element.checkVisibility() || /^(style|script|title)$/i.test(element.tagName)) continue;
    const style = getComputedStyle(element);
    const ink = color(element instanceof SVGElement ? style.fill : style.color);
    const [a, b] = [light(ink), light(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < worst[0]) worst = [contrast, element.outerHTML.slice(0, 120)];
  }
  return worst;
}
"""


@pytest.fixture
def shown(chromium, tmp_path):
    """Open reports in a browser without a network, and test at the end that it had no errors."""
    contexts, troubles = [], []

    def show(reports, size="desktop", scheme="light"):
        width, height = SIZES[size]
        context = chromium.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, offline=True, reduced_motion="reduce"
        )
        contexts.append(context)
        tab = context.new_page()
        tab.on("console", lambda message: troubles.append(message.text))
        tab.on("pageerror", lambda error: troubles.append(str(error)))
        tab.on("request", lambda request: request.url.startswith(("file:", "data:")) or troubles.append(request.url))
        file = tmp_path / "report.html"
        file.write_text(page(reports), encoding="utf-8")
        tab.goto(file.as_uri())
        return tab

    yield show
    for context in contexts:
        context.close()
    assert troubles == []


def names(tab):
    return tab.locator("article:visible h2 code").all_text_contents()


@pytest.fixture
def zoo(kinds):
    """Four checks of three verdicts."""
    return [
        named(kinds["pass"], "zebra", "tests/test_stripes.py::test_zebra"),
        named(kinds["fail"], "Ant"),
        named(kinds["inconclusive"], "mole"),
        named(kinds["one wrong entry"], "bee"),
    ]


@every_size
@every_scheme
def test_every_kind_of_report_opens_without_a_network_or_an_error(shown, kinds, size, scheme):
    tab = shown(list(kinds.values()), size, scheme)

    assert tab.locator("h1").inner_text() == "Gradient checks"
    assert len(names(tab)) == len(kinds)
    assert tab.locator("figure svg[role=img]:visible").count() >= 8


@every_size
def test_nothing_is_wider_than_the_screen(shown, kinds, size):
    tab = shown(list(kinds.values()), size)
    tab.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")

    assert tab.evaluate("document.documentElement.scrollWidth") <= SIZES[size][0]


@every_scheme
def test_all_text_stands_out_from_its_ground(shown, kinds, scheme):
    tab = shown(list(kinds.values()), scheme=scheme)
    tab.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    contrast, where = tab.evaluate(CONTRAST)

    assert contrast >= 4.5, where


def test_dark_is_dark_and_light_is_light(shown, kinds):
    grounds = {
        scheme: shown([kinds["pass"]], scheme=scheme).evaluate("getComputedStyle(document.body).backgroundColor")
        for scheme in ("light", "dark")
    }

    assert grounds == {"light": "rgb(246, 246, 243)", "dark": "rgb(18, 21, 24)"}


def test_a_chip_shows_the_checks_of_one_verdict(shown, zoo):
    tab = shown(zoo)
    tab.get_by_role("button", name="fail 2").click()

    assert names(tab) == ["Ant", "bee"]
    assert tab.locator("#shown").inner_text() == "2 of 4 checks shown"
    assert tab.get_by_role("button", name="fail 2").get_attribute("aria-pressed") == "true"
    tab.get_by_role("button", name="all 4").click()
    assert names(tab) == ["zebra", "Ant", "mole", "bee"]


@pytest.mark.parametrize(
    ("text", "found"),
    [("ZEB", ["zebra"]), ("stripes", ["zebra"]), ("kink", ["mole"]), ("wrong be", ["bee"]), ("wrong zebra", [])],
)
def test_a_search_finds_names_tests_and_messages(shown, zoo, text, found):
    tab = shown(zoo)
    tab.get_by_role("searchbox").fill(text)

    assert names(tab) == found


def test_search_and_chip_work_together(shown, zoo):
    tab = shown(zoo)
    tab.get_by_role("searchbox").fill("e")
    tab.get_by_role("button", name="pass 1").click()

    assert names(tab) == ["zebra"]


@pytest.mark.parametrize(
    ("by", "order"),
    [
        ("as run", ["zebra", "Ant", "mole", "bee"]),
        ("worst first", ["Ant", "bee", "mole", "zebra"]),
        ("name", ["Ant", "bee", "mole", "zebra"]),
        ("weakest resolution", ["mole"]),
    ],
)
def test_checks_are_sorted(shown, zoo, by, order):
    tab = shown(zoo)
    tab.get_by_label("Sort").select_option("name")
    tab.get_by_label("Sort").select_option(label=by)

    assert names(tab)[: len(order)] == order


def test_the_slowest_come_first(shown, zoo):
    tab = shown(zoo)
    tab.get_by_label("Sort").select_option(label="slowest")
    times = {report.subject.name: report.cost.seconds for report in zoo}

    assert names(tab) == sorted(times, key=lambda name: -times[name])


def test_a_check_opens_with_the_keyboard(shown, zoo):
    tab = shown(zoo)
    tab.locator("summary").first.focus()
    assert not tab.locator("article").first.locator("figure").first.is_visible()
    tab.keyboard.press("Enter")

    assert tab.locator("article").first.locator("figure").first.is_visible()


def test_hostile_names_do_not_execute(shown, kinds):
    report = named(diagnosed(a_fail(), HOSTILE), HOSTILE, HOSTILE)
    tab = shown([report, kinds["pass"]])
    tab.get_by_role("searchbox").fill("script")

    assert tab.evaluate("window.hurt") is None
    assert names(tab) == [HOSTILE]


def test_no_script_but_the_pages_own_may_run(chromium, tmp_path, kinds):
    """Were something not escaped after all, the page's policy would still refuse it."""
    file = tmp_path / "report.html"
    file.write_text(page([kinds["pass"], kinds["fail"]]).replace("</main>", f"{HOSTILE}</main>"), encoding="utf-8")
    with chromium.new_page() as tab:
        tab.goto(file.as_uri())

        assert tab.evaluate("window.hurt") is None
        assert tab.get_by_role("searchbox").is_visible()


def test_a_notebook_cell_shows_the_pictures(chromium, kinds):
    with chromium.new_page() as tab:
        tab.set_content(f"<body><p>before</p>{kinds['fail']._repr_html_()}</body>")

        assert tab.locator("figure svg[role=img]:visible").count() == 4
        assert tab.evaluate("getComputedStyle(document.querySelector('p')).fontFamily") != tab.evaluate(
            "getComputedStyle(document.querySelector('.gp')).fontFamily"
        )


def test_a_thousand_checks_open_in_less_than_two_seconds(chromium, tmp_path, kinds):
    """Measured in processor seconds, which other work of the machine does not change."""
    many = [named(list(kinds.values())[number % 6], f"function_{number}") for number in range(1000)]
    file = tmp_path / "report.html"
    file.write_text(page(many), encoding="utf-8")
    with chromium.new_page() as tab:
        measured = tab.context.new_cdp_session(tab)
        measured.send("Performance.enable", {"timeDomain": "threadTicks"})
        tab.goto(file.as_uri(), wait_until="load")
        tab.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        metrics = {each["name"]: each["value"] for each in measured.send("Performance.getMetrics")["metrics"]}

        assert 0.01 < metrics["TaskDuration"] < 2
        assert metrics["ScriptDuration"] > 0
        tab.get_by_role("searchbox").fill("function_77")
        assert len(names(tab)) == 11
