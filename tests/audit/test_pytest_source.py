"""`gradproof audit pytest:TESTS`: every test is a case, which ends as its checks do."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from gradproof.audit import Journal
from gradproof.audit.sources import built_in
from gradproof.cli import main
from gradproof.cli.exit_codes import ExitCode

TESTS = """
import gradproof, pytest, torch
from support.audit_cases import Half

def x():
    return torch.ones(2, dtype=torch.float64, requires_grad=True)

@pytest.mark.parametrize("function", [torch.sin, torch.cos])
def test_right(gradproof, function):
    gradproof(function, x())

def test_wrong(gradproof):
    gradproof(torch.sin, x())
    gradproof(Half.apply, x())

def test_that_expects_a_fail():
    assert not gradproof.check(Half.apply, x()).passed

def test_without_a_check():
    pass

def test_that_breaks():
    assert 1 == 2

@pytest.mark.skip(reason="not here")
def test_skipped():
    pass
"""


@pytest.fixture
def tests(tmp_path):
    folder = tmp_path / "suite"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\naddopts = --import-mode=importlib\n")
    (folder / "test_some.py").write_text(TESTS)
    return folder / "test_some.py"


def test_every_test_of_a_suite_is_a_case(tests, tmp_path):
    file = tmp_path / "a.db"
    found = CliRunner().invoke(main, ["audit", f"pytest:{tests}", "--journal", str(file)], standalone_mode=False)

    assert found.return_value is ExitCode.WRONG
    with Journal.to_read(file) as journal:
        results = {row.result.name.partition("::")[2]: row.result for row in journal.rows()}
    assert {name: result.outcome.value for name, result in results.items()} == {
        "test_right[sin]": "pass",
        "test_right[cos]": "pass",
        "test_wrong": "fail",
        "test_that_expects_a_fail": "skipped",
        "test_without_a_check": "skipped",
        "test_that_breaks": "error",
        "test_skipped": "skipped",
    }
    assert "is wrong in 2 entries" in results["test_wrong"].message
    assert "assert 1 == 2" in results["test_that_breaks"].message


def test_a_part_of_a_file_is_a_source(tests):
    cases = list(built_in(f"pytest:{tests}::test_right")())

    assert [case.name for case in cases] == ["test_some.py::test_right[sin]", "test_some.py::test_right[cos]"]
    assert cases[0].tags == ("op=test_right", "file=test_some.py")
