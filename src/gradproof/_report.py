"""Reports as users hold them: the engine's data, with the ways to look at it."""

from __future__ import annotations

from gradproof.engine import results


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

    def to_html(self, path: str) -> None:
        """Write the report as a self-contained page."""
        raise NotImplementedError("to_html() is not built yet. Use str(report) or report.to_json().")
