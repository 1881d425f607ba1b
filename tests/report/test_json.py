"""Reports as JSON: what is written is read back as it was, and matches the schema."""

import dataclasses
import gc
import json
import math
import time
from pathlib import Path

import jsonschema
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import gradproof
from gradproof import reports_from_json, reports_to_json
from gradproof.report.schema import schema
from support.functions import wrong_sine
from support.points import ramp

DOCUMENTED = Path(__file__).parents[2] / "docs" / "report.schema.json"

REPORTS = {
    "pass": lambda: gradproof.check(torch.sin, ramp(3), seed=0),
    "fail": lambda: gradproof.check(wrong_sine(2.0), ramp(3), seed=0),
    "full": lambda: gradproof.check(wrong_sine(2.0), ramp(3, 2), seed=0, coverage="full"),
    "kink": lambda: gradproof.check(torch.relu, torch.zeros(3, dtype=torch.float64, requires_grad=True), seed=0),
    "zero": lambda: gradproof.check(lambda x: 0 * x, ramp(3), seed=0),
    "complex": lambda: gradproof.check(wrong_sine(2.0), ramp(3, dtype=torch.complex128), seed=0),
    "broken contract": lambda: gradproof.check(wrong_sine(2.0), ramp(3), seed=0, modes=("reverse", "forward")),
}
every_kind = pytest.mark.parametrize("kind", REPORTS)


@every_kind
def test_a_report_is_read_back_as_it_was(kind):
    report = REPORTS[kind]()

    (again,) = reports_from_json(report.to_json())

    assert again == report
    assert isinstance(again, gradproof.Report)
    assert str(again) == str(report)


def test_not_a_number_is_read_back():
    report = gradproof.check(wrong_sine(math.nan), ramp(1), seed=0)

    (again,) = reports_from_json(report.to_json())

    assert math.isnan(again.findings[0].entries[0].claimed)


def test_several_reports_travel_in_one_text():
    reports = tuple(make() for make in REPORTS.values())

    assert reports_from_json(reports_to_json(reports)) == reports


def test_diagnoses_are_read_back():
    report = REPORTS["fail"]()
    diagnosis = gradproof.Diagnosis(name="factor", message="It is twice the truth.", fit=0.99, hint="Look.")
    finding = dataclasses.replace(report.findings[0], diagnoses=(diagnosis,))
    report = dataclasses.replace(report, findings=(finding,))

    assert reports_from_json(report.to_json()) == (report,)


@every_kind
def test_a_report_has_the_documented_form(kind):
    jsonschema.validate(json.loads(REPORTS[kind]().to_json()), json.loads(DOCUMENTED.read_text()))


def test_several_reports_have_the_documented_form():
    jsonschema.validate(json.loads(reports_to_json([REPORTS["fail"]()])), json.loads(DOCUMENTED.read_text()))


def test_the_schema_refuses_what_is_no_report():
    data = json.loads(REPORTS["pass"]().to_json())
    data["verdict"] = "perhaps"

    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, schema())


def test_the_documented_schema_is_up_to_date():
    assert json.loads(DOCUMENTED.read_text()) == schema(), (
        "print it anew: python -m gradproof.report.schema > docs/report.schema.json"
    )


def test_a_field_that_is_not_known_is_left_alone():
    data = {**json.loads(REPORTS["pass"]().to_json()), "mood": "bright"}

    (report,) = reports_from_json(json.dumps(data))

    assert report.passed


def changed(**fields):
    return json.dumps({**json.loads(REPORTS["fail"]().to_json()), **fields})


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "not JSON"),
        ("[1, 2]", "no 'schema'"),
        ("{}", "no 'schema'"),
        ('{"schema": 2}', "schema 2.*reads schema 1"),
        ('{"schema": 1}', "lacks 'verdict'"),
        ('{"schema": 1, "reports": [3]}', "report is '3', where a report has an object"),
        (changed(verdict="perhaps"), "report.verdict is 'perhaps'"),
        (changed(notes="one"), "report.notes is 'one', where a report has a list"),
        (changed(seed=[1]), "report.seed"),
        (changed(reason=7), "report.reason is '7'"),
        (changed(subject={}), "report.subject lacks 'name'"),
    ],
)
def test_what_is_no_report_is_refused_in_words(text, says):
    with pytest.raises(gradproof.InputError, match=says):
        reports_from_json(text)


def test_one_report_is_read_by_the_report_itself():
    report = REPORTS["pass"]()

    assert gradproof.Report.from_json(report.to_json()) == report
    with pytest.raises(gradproof.InputError, match="holds 2 reports"):
        gradproof.Report.from_json(reports_to_json([report, report]))


def test_a_byte_order_mark_is_read_over():
    report = REPORTS["pass"]()

    assert reports_from_json("\ufeff" + report.to_json()) == (report,)


NASTY = (
    None,
    True,
    -1,
    10**400,
    1e308,
    "inf",
    "nan",
    "1_0",
    "",
    "\ud800\x1b[2J",
    [],
    [[]],
    [1],
    {},
    {"a": 1},
    [[[[[[1]]]]]],
)


def places_in(data, path=()):
    """Return the paths of all values in JSON data."""
    yield path
    items = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in items:
        yield from places_in(value, (*path, key))


def replaced(data, path, value):
    """Return JSON data with another value at a path."""
    if not path:
        return value
    copy = dict(data) if isinstance(data, dict) else list(data)
    copy[path[0]] = replaced(data[path[0]], path[1:], value)
    return copy


@pytest.fixture(scope="module")
def written():
    """A report with all that one may have, as JSON data, and the paths of its values."""
    data = json.loads(REPORTS["full"]().to_json())
    return data, list(places_in(data))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(where=st.integers(0, 10**6), value=st.sampled_from(NASTY))
def test_hostile_json_is_refused_in_words_or_shown(written, where, value):
    data, paths = written
    text = json.dumps(replaced(data, paths[where % len(paths)], value))
    try:
        (report,) = reports_from_json(text)
    except gradproof.InputError:
        return
    assert str(report)
    assert gradproof.reports_to_html([report])
    assert reports_from_json(report.to_json())


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"schema":1,"seed":' + "9" * 5000 + "}", None, b"{}", changed(maps=[{"rows": []}])]
)
def test_what_breaks_a_parser_is_an_input_error(text):
    with pytest.raises(gradproof.InputError):
        reports_from_json(text)


def test_reading_takes_little_more_than_parsing():
    text = reports_to_json([REPORTS["full"]()] * 40)

    def seconds(read):
        began = time.process_time()
        read(text)
        return time.process_time() - began

    ratios = [seconds(reports_from_json) / seconds(json.loads) for _ in range(5)]

    assert min(ratios) < 10  # it was about 50, and is about 3


def test_the_garbage_collector_runs_again_after_reading():
    with pytest.raises(gradproof.InputError):
        reports_from_json("{}")

    assert gc.isenabled()
