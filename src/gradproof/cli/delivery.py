"""Where the reports of a command go: files, which are written first, then the terminal."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gradproof._report import Report, reports_to_html, reports_to_json
from gradproof.cli.exit_codes import ExitCode, of_verdicts
from gradproof.cli.group import Failed, Misuse
from gradproof.cli.output import reader_may_leave, say, tell
from gradproof.report.files import destination, write_whole

IN_FULL = 5  # reports: up to this many are shown in full, more in a line or two each


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A JSON file, or JSON on standard output instead of text, and a page."""

    json: Path | None = None
    page: Path | None = None
    prints_json: bool = False

    @classmethod
    def to(cls, json_file: str | None, html_file: str | None) -> Delivery:
        """Return the files that are named; refuse those that cannot be written, before anything is checked."""
        return cls(
            json=None if json_file in (None, "-") else to_file(str(json_file)),
            page=None if html_file is None else to_file(html_file),
            prints_json=json_file == "-",
        )

    def deliver(self, reports: list[Report]) -> ExitCode:
        """Write the files, show the reports, and return the code of the worst verdict."""
        try:
            self.write(reports)
        finally:
            if self.prints_json:
                say(_as_json(reports))
            else:
                _show(reports)
        self.announce()
        return of_verdicts(each.verdict for each in reports)

    def announce(self) -> None:
        """Say where the page is."""
        if self.page is not None:
            tell(f"The report is in {self.page}")

    def write(self, reports: list[Report], title: str = "") -> None:
        """Write the files."""
        if self.json is not None:
            write(self.json, _as_json(reports))
        if self.page is not None:
            write(self.page, reports_to_html(reports, title=title))


def to_file(name: str) -> Path:
    """Return where a file goes; refuse one that cannot be written."""
    try:
        return destination(name)
    except (OSError, ValueError) as error:
        raise Misuse(f"{name} cannot be written: {getattr(error, 'strerror', None) or error}.") from None


def write(file: Path, text: str) -> None:
    """Write a file whole."""
    try:
        write_whole(file, text)
    except OSError as error:
        raise Failed(f"{file} could not be written: {error}") from None


def _as_json(reports: list[Report]) -> str:
    return reports[0].to_json() if len(reports) == 1 else reports_to_json(reports)


def _show(reports: list[Report]) -> None:
    from gradproof.report.terminal import brief

    for each in reports:
        if len(reports) <= IN_FULL:
            with reader_may_leave():
                each.show()
        else:
            say(brief(each))
