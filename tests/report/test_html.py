"""The page of a report: what it says, what it escapes, and that it needs nothing beside itself."""

import dataclasses
import html
import itertools
import math
import re
from html.parser import HTMLParser

import pytest
import torch

import gradproof
from gradproof.report.html import PICTURED, notebook, page
from support.reports import a_fail, a_pass, blamed, diagnosed, named

VOID = {"meta", "link", "input", "br", "img", "hr"}
HOSTILE = '</style></script><script>alert(1)</script><img src=x onerror=alert(2)>" onload="alert(3)\' {{ 7 * 7 }}'


class Reader(HTMLParser):
    """Which tags are open, which headings and attributes there are."""

    def __init__(self):
        super().__init__()
        self.open, self.headings, self.tags, self.text = [], [], [], []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)
        if re.fullmatch("h[1-6]", tag):
            self.headings.append(int(tag[1]))

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, f"{tag} closes another tag, at {self.getpos()}"

    def handle_data(self, data):
        self.text.append(data)


def read(text):
    reader = Reader()
    reader.feed(text)
    assert not reader.open
    return reader


def every_kind(test):
    names = ["pass", "fail", "one wrong entry", "every entry", "both modes", "inconclusive"]
    return pytest.mark.parametrize("kind", names)(test)


@every_kind
def test_every_tag_is_closed_in_turn(kinds, kind):
    read(page([kinds[kind]]))


@every_kind
def test_the_page_names_nothing_outside_itself(kinds, kind):
    text = page([kinds[kind], kinds[kind]])

    assert not re.search(r"https?:|//[a-z]|@import|url\(", text.replace("http-equiv", ""))
    for tag, attributes in read(text).tags:
        assert "src" not in attributes, tag
        assert attributes.get("href", "data:,") == "data:,"


@every_kind
def test_every_picture_has_words_of_its_own(kinds, kind):
    pictures = [
        attributes for tag, attributes in read(page([kinds[kind]])).tags if tag == "svg" and "role" in attributes
    ]

    assert pictures or kind == "inconclusive"
    for attributes in pictures:
        assert attributes["role"] == "img"
        assert len(attributes["aria-label"]) > 20


@every_kind
def test_headings_go_down_one_level_at_a_time(kinds, kind):
    levels = read(page([kinds[kind]])).headings

    assert levels[0] == 1
    assert levels.count(1) == 1
    for before, after in itertools.pairwise(levels):
        assert after <= before + 1


def test_a_fail_shows_its_findings_entries_and_diagnoses(kinds):
    report = kinds["fail"]
    text = html.unescape(page([report]))
    (finding,) = report.findings

    assert finding.message in text
    assert "Looks like: It is twice the truth." in text
    assert "fits 90%" in text
    assert "Hint 0." in text
    assert "Or: It is something else." in text
    for entry in finding.entries:
        assert (
            f"<td>inputs[0][{entry.index[0]}]</td><td>{entry.claimed:.10g}</td><td>{entry.numerical:.10g}</td>" in text
        )


def test_a_fail_without_diagnoses_gives_the_findings_hint(kinds):
    report = kinds["one wrong entry"]

    assert "Looks like" not in page([report])
    assert report.findings[0].hint in html.unescape(page([report]))


def test_a_fail_names_the_culprit(kinds):
    text = page([blamed(kinds["one wrong entry"], "layers.3 <Tanh>", "It is wrong in 1 entry.")])

    assert "To blame: <code>layers.3 &lt;Tanh&gt;</code></strong>, by itself: It is wrong in 1 entry." in text


def test_a_pass_says_what_would_have_been_caught(kinds):
    report = kinds["pass"]

    assert f"an error of {report.resolution.absolute:.1e} in one gradient entry" in page([report])


def test_an_inconclusive_gives_its_reason_its_message_and_a_hint(kinds):
    report, text = kinds["inconclusive"], html.unescape(page([kinds["inconclusive"]]))

    assert f"{report.reason.value}: {report.message}" in text
    assert report.hint in text


def test_the_page_says_how_to_replay(kinds):
    assert "gradproof.check(sin, inputs, seed=3)" in page([kinds["pass"]])
    assert 'seed=3, coverage="full")' in html.unescape(page([kinds["every entry"]]))
    assert 'modes=("reverse", "forward"))' in html.unescape(page([kinds["both modes"]]))
    second = gradproof.check(lambda x: x**3, a_point(), seed=0, order=2)
    assert "gradproof.check(function, inputs, seed=0, order=2)" in page([second])
    module = gradproof.check(torch.nn.Softplus(), a_point(), seed=0)
    assert "gradproof.check(function, inputs, seed=0)" in page([module])


def a_point():
    return torch.linspace(0.5, 1, 3, dtype=torch.float64, requires_grad=True)


def test_pictures_are_drawn_of_what_there_is(kinds):
    drawn = {
        kind: [
            title
            for title in ("Taylor test", "in error bars", "Claimed against", "Where the Jacobian")
            if title in page([report])
        ]
        for kind, report in kinds.items()
    }

    assert drawn["pass"] == ["Taylor test", "in error bars"]
    assert drawn["fail"] == ["Taylor test", "in error bars", "Claimed against", "Where the Jacobian"]
    assert drawn["one wrong entry"] == ["Taylor test", "in error bars", "Where the Jacobian"]
    assert "Taylor test, forward" in page([kinds["both modes"]])


def test_numbers_that_are_not_finite_are_shown_and_not_drawn():
    report = a_fail()
    (finding,) = report.findings
    entry = dataclasses.replace(finding.entries[0], claimed=math.nan, bar=math.inf)
    finding = dataclasses.replace(finding, entries=(entry,))
    reading = dataclasses.replace(report.readings[0], claimed=math.inf, steps=())
    heat = dataclasses.replace(
        report.maps[0], errors=tuple(tuple(math.inf for _ in row) for row in report.maps[0].errors)
    )
    text = page([dataclasses.replace(report, findings=(finding,), readings=(reading,), maps=(heat,))])

    assert "<td>nan</td>" in text
    assert not re.search(r'="[^"]*\b(nan|inf)\b', text)


def test_everything_from_user_code_is_escaped():
    report = named(diagnosed(a_fail(), HOSTILE), HOSTILE, HOSTILE)
    subject = dataclasses.replace(report.subject, arguments=(HOSTILE,), outputs=(HOSTILE,))
    places = tuple(dataclasses.replace(place, path=HOSTILE) for place in report.maps[0].rows)
    (finding,) = report.findings
    report = dataclasses.replace(
        report,
        subject=subject,
        notes=(HOSTILE,),
        reason=gradproof.Reason.DOMAIN,
        message=HOSTILE,
        hint=HOSTILE,
        findings=(dataclasses.replace(finding, message=HOSTILE, argument=HOSTILE, hint=HOSTILE, mode=HOSTILE),),
        maps=(dataclasses.replace(report.maps[0], rows=places, mode=HOSTILE),),
    )
    for text in (page([report, report], title=HOSTILE), notebook(report)):
        reader = read(text)
        assert "<img" not in text
        assert "alert(1)</script>" not in text
        assert [tag for tag, _ in reader.tags].count("script") == (1 if "<!DOCTYPE" in text else 0)
        for _, attributes in reader.tags:
            assert not any(name.startswith("on") for name in attributes)
        assert "{{ 7 * 7 }}" in "".join(reader.text)


def test_a_single_check_has_no_script_and_no_tools(kinds):
    text = page([kinds["pass"]])

    assert "<script" not in text
    assert 'type="search"' not in text


def test_the_title_can_be_chosen(kinds):
    assert "<title>Nightly</title>" in page(list(kinds.values()), title="Nightly")


def test_a_page_of_nothing_says_so():
    assert "0 checks" in page([])


def test_of_very_many_checks_those_that_fail_have_pictures(kinds):
    text = page([*[kinds["pass"]] * PICTURED, kinds["one wrong entry"]])

    assert text.count("Taylor test</h4>") == 1
    assert f"Of {PICTURED + 1} checks 1 have pictures" in text


def test_a_thousand_checks_take_less_than_five_megabytes(kinds):
    assert len(page([list(kinds.values())[number % 6] for number in range(1000)]).encode()) < 5e6
    assert len(page([kinds["fail"]] * 1000).encode()) < 5e6


def test_to_html_writes_the_page(tmp_path, kinds):
    file = tmp_path / "report.html"
    kinds["fail"].to_html(file)

    assert file.read_text(encoding="utf-8") == page([kinds["fail"]])


def test_a_notebook_shows_the_same_without_a_page_around_it(kinds):
    text = kinds["fail"]._repr_html_()

    read(text)
    assert "<html" not in text
    assert "Where the Jacobian is wrong" in text
    assert "It is twice the truth." in text


def test_a_pass_alone_lies_closed_among_many(kinds):
    text = page([kinds["pass"], kinds["fail"]])

    assert text.count("<details>") == 1
    assert text.count("<details open>") == 1


def test_a_lone_check_lies_open():
    assert "<details open>" in page([a_pass()])


@pytest.mark.parametrize("theme", ['[data-jp-theme-light="false"]', ".vscode-dark", '[theme="dark"]'])
def test_a_notebook_is_dark_where_its_theme_is_whatever_the_system_is(kinds, theme):
    text = notebook(kinds["fail"])
    by_theme = rf"^[^\n{{]*{re.escape(theme)} \.gp[^{{]*\{{ color-scheme: dark; --page: #"

    assert re.search(by_theme, text, re.MULTILINE)
    assert re.search(rf"prefers-color-scheme: dark\) \{{ :root[^{{]*:not\({re.escape(theme)}, :has", text)


def test_a_training_step_is_replayed_by_what_made_it(kinds):
    layer = torch.nn.Linear(3, 2).double()
    x = torch.ones(4, 3, dtype=torch.float64)
    adam = torch.optim.Adam(layer.parameters(), lr=0.01)
    report = gradproof.check_step(adam, lambda: layer(x).square().mean(), layer, seed=5)

    assert "gradproof.check_step(optimizer, loss, parameters, seed=5)" in page([report])
