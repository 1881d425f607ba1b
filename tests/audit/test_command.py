"""`gradproof audit`, with worker processes."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
from click.testing import CliRunner

from gradproof.audit import Journal
from gradproof.cli import main
from gradproof.cli.audit import code_of
from gradproof.cli.exit_codes import ExitCode

CASES = "support.audit_cases"


@pytest.fixture
def audit(tmp_path):
    """Run `gradproof audit` with a journal in a folder of its own; return the code and what it printed."""

    def run(*arguments, code=ExitCode.PASS):
        arguments = [
            str(tmp_path / each) if each.endswith((".db", ".html", ".json", ".xml")) else each for each in arguments
        ]
        result = CliRunner().invoke(main, ["audit", *arguments], standalone_mode=False)
        if result.exception:
            return type(result.exception).__name__, str(result.exception)
        assert result.return_value is code
        return result.output

    return run


def test_a_source_is_swept_and_counted(audit, tmp_path):
    said = audit(f"{CASES}:four", "--journal", "a.db", "--timeout", "30", "--memory", "1G", code=ExitCode.WRONG)

    assert "4 cases: 1 fail, 1 crash, 1 skipped, 1 pass" in said
    assert f"gradproof audit report {tmp_path / 'a.db'}" in said
    with Journal.to_read(tmp_path / "a.db") as journal:
        assert journal.has("crash")


def test_the_cases_of_a_selection_are_counted(audit):
    assert audit("count", f"{CASES}:four", "--tag", "op=sin") == "2 cases\n"


def test_options_may_come_first_and_select(audit):
    said = audit("--journal", "a.db", "--tag", "op=sin", "--only", "r*", f"{CASES}:four")

    assert "1 cases: 1 pass" in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("nothing", "--journal", "a.db"), "is not a source: choose torch-ops or torch-modules"),
        (("pytest:absent.py", "--journal", "a.db"), "pytest could not collect absent.py (exit code 4)"),
        (("math:absent", "--journal", "a.db"), "math has no 'absent'"),
        (("math:sin", "--journal", "a.db"), "could not be called: TypeError"),
        (("torch-ops", "--journal", "a.db", "--shard", "3"), "is not a shard"),
        (("torch-ops", "--journal", "a.db", "--shard", "4/3"), "pass a number from 1"),
        (("torch-ops", "--journal", "a.db", "--memory", "much"), "is not a size"),
        (("torch-ops", "--journal", "a.db", "--dask", "local", "--ray", "local"), "runs on one cluster"),
        (("torch-ops", "--journal", "a.db", "--timeout", "nan"), "pass a number above 0"),
        (("torch-ops", "--journal", "a.db", "--devices", "0,0"), "names no devices, or one twice"),
        (("torch-ops", "--journal", "a.db", "--devices", "0", "--ray", "local"), "a cluster assigns its devices"),
        (("torch-ops", "--journal", "a.db", "--devices", "0,1", "--workers", "3"), "Leave out --workers, or pass 2"),
        (("torch-ops",), "Missing parameter: file"),
        (("torch-ops", "--journal", "absent/folder/a.db"), "cannot be written"),
    ],
)
def test_misuse_is_reported_in_words(audit, arguments, says):
    assert says in audit(*arguments)[1]


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ((), ExitCode.PASS),
        (("pass", "skipped"), ExitCode.PASS),
        (("pass", "timeout"), ExitCode.INCONCLUSIVE),
        (("error", "fail"), ExitCode.WRONG),
    ],
)
def test_the_worst_outcome_gives_the_code(outcomes, code):
    assert code_of(outcomes) is code


def test_an_audit_is_reported_exported_replayed_and_compared(audit, tmp_path):
    audit(f"{CASES}:four", "--journal", "a.db", code=ExitCode.WRONG)

    said = audit("report", "a.db", "--html", "a.html", "--json", "a.json", "--junit", "a.xml", code=ExitCode.WRONG)
    assert "fail  wrong: The gradient" in said
    assert "crash  crash: The case ended its process (SIGABRT)." in said
    assert len(json.loads((tmp_path / "a.json").read_text())["cases"]) == 4
    suite = ElementTree.parse(tmp_path / "a.xml").getroot()
    assert [suite.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["4", "1", "1", "1"]
    assert "::error title=fail%3A wrong::The" in audit("report", "a.db", "--github", code=ExitCode.WRONG)
    assert "wrong in 3 entries" in audit("replay", "a.db", "wrong", code=ExitCode.WRONG)
    assert "inputs[0] = torch.tensor(" in audit("replay", "a.db", "wrong", "--shrink", code=ExitCode.WRONG)
    assert "a.db is the journal" in audit("report", "a.db", "--json", "a.db")[1]
    assert audit("diff", "a.db", "a.db") == "Nothing changed.\n"
    assert audit("replay", "a.db", "absent") == ("JournalError", f"{tmp_path / 'a.db'} has no case 'absent'.")
