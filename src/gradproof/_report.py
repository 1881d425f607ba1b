"""Reports as users hold them: the engine's data, and the ways to print, store and read it.

Whatever renders is imported when it is first used: rich and jinja2 take longer to import than gradproof.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from gradproof.engine import results
from gradproof.errors import InputError


class Report(results.Report):
    """The evidence of one check. `print(report)` shows it; `report.show()` shows it in color on a terminal."""

    __slots__ = ()

    def __repr__(self) -> str:
        from gradproof.report.words import label

        return f"<Report {label(self)}>"

    def __str__(self) -> str:
        from gradproof.report.terminal import plain

        return plain(self)

    def show(self) -> None:
        """Print the report, in color if the terminal has colors."""
        from gradproof.report.terminal import show

        show(self)

    def to_json(self) -> str:
        """Return the report as one JSON object."""
        from gradproof.report.json import to_json

        return to_json(self)

    @staticmethod
    def from_json(text: str) -> Report:
        """Read the report that `to_json` wrote.

        >>> import torch, gradproof
        >>> report = gradproof.check(torch.exp, torch.ones(3, dtype=torch.float64, requires_grad=True))
        >>> gradproof.Report.from_json(report.to_json()) == report
        True
        """
        reports = reports_from_json(text)
        if len(reports) != 1:
            raise InputError(
                f"This JSON holds {len(reports)} reports, and Report.from_json() reads one. Read several with "
                "gradproof.reports_from_json()."
            )
        return reports[0]

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the report as a self-contained page, which opens offline."""
        from gradproof.report.files import write_whole

        write_whole(path, reports_to_html([self]))

    def _repr_html_(self) -> str:
        from gradproof.report.html import notebook

        return notebook(self)


class GradientError(AssertionError):
    """A gradient could not be verified. `report` holds the evidence."""

    __module__ = "gradproof"  # the name that users import it by, which tracebacks then show

    def __init__(self, message: str, report: Report) -> None:
        super().__init__(message)
        self.report = report

    def __reduce__(self) -> tuple[type[GradientError], tuple[str, Report]]:
        """Return the arguments of the same error, so that it can be pickled and sent between processes."""
        return type(self), (str(self), self.report)


def reports_to_json(reports: Iterable[Report]) -> str:
    """Return several reports as one JSON object."""
    from gradproof.report.json import all_to_json

    return all_to_json(reports)


def reports_from_json(text: str) -> tuple[Report, ...]:
    """Read all reports in a JSON text, which holds one report or several.

    >>> import torch, gradproof
    >>> report = gradproof.check(torch.exp, torch.ones(3, dtype=torch.float64, requires_grad=True))
    >>> reports_from_json(reports_to_json([report, report])) == (report, report)
    True
    """
    from gradproof.report.json import from_json

    return from_json(text, Report)


def reports_to_html(reports: Iterable[Report], *, title: str = "") -> str:
    """Return one self-contained page for several reports, which can be searched, filtered and sorted.

    >>> import torch, gradproof
    >>> report = gradproof.check(torch.exp, torch.ones(3, dtype=torch.float64, requires_grad=True))
    >>> reports_to_html([report, report]).startswith("<!DOCTYPE html>")
    True
    """
    from gradproof.report.html import page

    return page(list(reports), title=title)
