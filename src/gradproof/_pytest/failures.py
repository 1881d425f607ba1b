"""A failed check in one line, for summaries, JUnit files and the annotations of GitHub's pull requests."""

from __future__ import annotations

from typing import NamedTuple

from gradproof._report import Report
from gradproof.report.github import command


class Annotation(NamedTuple):
    """A failure and the line of the source that it belongs to."""

    file: str
    line: int
    title: str
    message: str

    def __str__(self) -> str:
        """Return the annotation as a command of GitHub Actions.

        >>> print(Annotation("ops.py", 21, "Half", "1/2 of the right one"))
        ::error file=ops.py,line=21,title=Half::1/2 of the right one
        """
        return command("error", self.message, file=self.file, line=self.line, title=self.title)


def line_of(report: Report) -> str:
    """Return a check that did not pass in one line: its diagnosis, or what was found, and the place to look at."""
    from gradproof.report.words import gist, place

    where = place(*place_of(report))
    return f"{report.verdict.value.upper()}  {report.subject.name}: {gist(report)}" + (f" ({where})" if where else "")


def place_of(report: Report) -> tuple[str, int]:
    """Return the file and line of the first part to blame, else of the function."""
    culprits = [each for finding in report.findings for each in finding.culprits if each.file]
    return (culprits[0].file, culprits[0].line) if culprits else (report.subject.file, report.subject.line)


def annotation(report: Report, test: tuple[str, int]) -> Annotation:
    """Return the annotation of a check that did not pass; at the test, if the place of the function is unknown."""
    from gradproof.report.words import gist

    file, line = place_of(report) if place_of(report)[0] else test
    return Annotation(file, line, f"gradproof: {report.subject.name}", f"{gist(report)} [{report.origin}]")
