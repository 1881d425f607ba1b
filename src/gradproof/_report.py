"""Reports as users hold them: the engine's data, with the ways to look at it."""

from __future__ import annotations

import os
from pathlib import Path

from gradproof.engine import results
from gradproof.errors import InputError


class Report(results.Report):
    """The evidence of one check. `print(report)` shows it; `report.show()` shows it in colour on a terminal."""

    __slots__ = ()

    def __str__(self) -> str:
        from gradproof.report.terminal import plain

        return plain(self)

    def show(self) -> None:
        """Print the report, in colour where the terminal has colours."""
        from gradproof.report.terminal import show

        show(self)

    def to_json(self) -> str:
        """The report as one JSON object."""
        from gradproof.report.json import to_json

        return to_json(self)

    @staticmethod
    def from_json(text: str) -> Report:
        """The report that `to_json` wrote.

        >>> import torch, gradproof
        >>> report = gradproof.check(torch.exp, torch.ones(3, dtype=torch.float64, requires_grad=True))
        >>> gradproof.Report.from_json(report.to_json()) == report
        True
        """
        from gradproof.report.json import from_json

        reports = from_json(text)
        if len(reports) != 1:
            raise InputError(
                f"This JSON holds {len(reports)} reports, and from_json() reads one. Read several with "
                "`gradproof report`."
            )
        return reports[0]

    def to_html(self, path: str | os.PathLike[str]) -> None:
        """Write the report as a self-contained page, which opens offline."""
        from gradproof.report.html import page

        Path(path).write_text(page([self]), encoding="utf-8")

    def _repr_html_(self) -> str:
        from gradproof.report.html import notebook

        return notebook(self)
