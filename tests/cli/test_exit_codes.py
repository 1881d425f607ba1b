"""The exit codes: the worst verdict counts, and the document names them all."""

from __future__ import annotations

from pathlib import Path

from gradproof import Verdict
from gradproof.cli.exit_codes import ExitCode, of_verdicts


def test_the_worst_verdict_counts():
    assert of_verdicts([]) is ExitCode.PASS
    assert of_verdicts([Verdict.PASS, Verdict.INCONCLUSIVE]) is ExitCode.INCONCLUSIVE
    assert of_verdicts([Verdict.FAIL, Verdict.INCONCLUSIVE]) is ExitCode.WRONG


def test_every_code_is_documented():
    document = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text(encoding="utf-8")

    for code in ExitCode:
        assert f"\n| {code.value} |" in document
