"""What a report says, as sets and lists that a test can compare."""

from __future__ import annotations

from typing import Any

from gradproof import Entry, Reason, Report, Verdict


def arguments_of(report: Report) -> list[str]:
    """Return the paths of the arguments that were checked."""
    return [label.split(":")[0] for label in report.subject.arguments]


def blamed(report: Report) -> set[str]:
    """Return the arguments whose gradients are wrong, of a report that fails."""
    assert report.verdict is Verdict.FAIL, str(report)
    return {finding.argument for finding in report.findings}


def entries_of(report: Report) -> list[Entry]:
    """Return all wrong entries that are shown."""
    return [entry for finding in report.findings for entry in finding.entries]


def indices_of(report: Report) -> set[tuple[int, ...]]:
    """Return the indices of the wrong entries that are shown."""
    return {entry.index for entry in entries_of(report)}


def wrong_places(report: Report) -> set[tuple[Any, ...]]:
    """Return the wrong entries as (argument, index, path of the output, index in the output)."""
    return {
        (finding.argument, entry.index, entry.output and entry.output.path, entry.output and entry.output.index)
        for finding in report.findings
        for entry in finding.entries
    }


def assert_inconclusive(report: Report, reason: Reason) -> None:
    """Assert that a check proves nothing, says why, gives a hint, and blames no one."""
    assert report.verdict is Verdict.INCONCLUSIVE, str(report)
    assert report.reason is reason
    assert report.message
    assert report.hint
    assert report.findings == ()


def modes_and_arguments(report: Report) -> set[tuple[str, str]]:
    """Return which argument is wrong in which mode."""
    return {(finding.mode, finding.argument) for finding in report.findings}
