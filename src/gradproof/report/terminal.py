"""A report on one screen of text, as wide as the terminal: in color on a terminal, plain elsewhere."""

from __future__ import annotations

import io
import random
import shutil
import sys
from typing import TYPE_CHECKING, Any

from gradproof.engine.results import Finding, Report, Verdict
from gradproof.report import words
from gradproof.report.characters import harmless, in_encoding
from gradproof.report.entries import entry_table
from gradproof.report.error_picture import sparkline
from gradproof.report.wrapping import wrapped

if TYPE_CHECKING:
    from rich.console import Console

SHOWN = 10  # entries of the first finding
FINDINGS = 3  # shown in full
LINES = 6  # of a message
CULPRITS = 2  # named
COLORS = {Verdict.PASS: "bold green", Verdict.FAIL: "bold red", Verdict.INCONCLUSIVE: "bold yellow"}
WIDTH = 80  # where no terminal and no COLUMNS says otherwise
UNBROKEN = 10_000  # characters, which no line of a report has
INDENT = 14  # of what is said of one check of many


def plain(report: Report, *, unbroken: bool = False) -> str:
    """Return the report as text without colors, in characters that standard output can show.

    Lines fit the terminal unless they are to be `unbroken`, as in errors whose words a program looks for.

    >>> from gradproof import check
    >>> import torch
    >>> x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    >>> plain(check(torch.exp, x, seed=1)).splitlines()[0]
    'PASS  exp: 3 inputs, 3 outputs'
    """
    memory = io.StringIO()
    _render(report, _console(file=memory, color_system=None, width=UNBROKEN if unbroken else _width()))
    return in_encoding(memory.getvalue().rstrip("\n"), getattr(sys.stdout, "encoding", None))


def show(report: Report) -> None:
    """Print the report, in color if the terminal has colors."""
    console = _console(width=_width())
    if console.is_jupyter:
        _render(report, console)
        return
    with console.capture() as captured:
        _render(report, console)
    console.file.write(in_encoding(captured.get(), console.encoding))
    console.file.flush()


def brief(report: Report) -> str:
    """Return the report in a line or two, for one of many.

    >>> from gradproof import check
    >>> import torch
    >>> x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    >>> print(brief(check(torch.exp, x, seed=1)))
    PASS          exp: an error of ... in one gradient entry would have been caught (...)
    """
    report = harmless(report)
    width = _width()
    first = _wrapped(f"{report.verdict.value.upper():<12}  ", f"{report.subject.name}: {words.gist(report)}", width)
    return "\n".join([first, _wrapped(" " * INDENT, report.origin, width)] if report.origin else [first])


def _console(**options: Any) -> Console:
    """Make a console. Importing rich draws a random number, so Python's generator is restored."""
    state = random.getstate()
    try:
        from rich.console import Console
    finally:
        random.setstate(state)
    return Console(highlight=False, soft_wrap=True, **options)


def _width() -> int:
    """Return the width of the terminal, or what COLUMNS says."""
    return shutil.get_terminal_size((WIDTH, 0)).columns


def _wrapped(before: str, text: str, width: int) -> str:
    """Wrap a text to a width, each line below the start of the first."""
    return before + f"\n{' ' * len(before)}".join(wrapped(text, width - len(before)))


def _render(report: Report, console: Console) -> None:
    from rich.text import Text

    report = harmless(report)
    subject = report.subject
    before = f"{report.verdict.value.upper()}  "
    console.print(
        Text.assemble(
            (report.verdict.value.upper(), COLORS[report.verdict]),
            _wrapped(" " * len(before), f"{subject.name}: {words.sizes(subject)}", console.width)[len(before) - 2 :],
        )
    )
    if report.reason:
        _print(console, "why", f"{report.reason.value}: {_shortened(report.message)}")
    if report.hint:
        _print(console, "hint", report.hint)
    if report.verdict is not Verdict.PASS and subject.file and not any(each.culprits for each in report.findings):
        _print(console, "defined in", words.place(subject.file, subject.line))
    hints: set[str] = set()
    for number, finding in enumerate(report.findings[:FINDINGS]):
        _render_finding(finding, console, SHOWN if number == 0 else SHOWN // 5)
        blamed = number > 0 and any(each.culprits for each in report.findings)  # which says more than a hint
        if (hint := words.hint(finding)) and hint not in hints and not blamed:
            _print(console, "hint", hint)
        hints.add(hint)
    if len(report.findings) > FINDINGS:
        paths = ", ".join(finding.argument or finding.kind for finding in report.findings[FINDINGS:][:8])
        _print(console, "also", f"{len(report.findings) - FINDINGS} more findings: {paths}")
    for found in report.errors:
        if report.findings and max(map(max, found.bars)) > 1:
            _print(console, "errors", f"{found.name}: {sparkline(found)}")
    arguments = "; ".join(subject.arguments[:6]) + _more(len(subject.arguments) - 6)
    _print(console, "checked", arguments + words.how(subject))
    if report.verdict is Verdict.PASS:
        _print(console, "resolution", words.resolution(report.resolution))
    for note in report.notes:
        _print(console, "note", note)
    _print(console, "cost", words.cost(report))
    _print(console, "replay", f"seed={report.seed}")


def _render_finding(finding: Finding, console: Console, shown: int) -> None:
    from rich.text import Text

    mode = "" if finding.mode == "reverse" else f"{finding.mode}: "
    _print(console, "found", mode + _shortened(finding.message))
    for culprit in finding.culprits[:CULPRITS]:
        details = _shortened(words.blame_details(culprit))
        _print(console, "to blame", "\n".join(filter(None, (words.blame(culprit), details))))
    for line in entry_table(finding, shown, console.width):
        console.print(line)
    if len(finding.entries) > shown:
        console.print(Text(f"    and {len(finding.entries) - shown} more", style="dim"))
    if finding.diagnoses:
        first, *others = finding.diagnoses
        _print(console, "looks like", f"{words.names_of(first)}: {_shortened(first.message)}")
        if others:
            _print(console, "or", ", ".join(f"{other.name} (fit {other.fit:.2f})" for other in others))


def _shortened(text: str) -> str:
    lines = text.splitlines()
    return "\n".join(lines if len(lines) <= LINES else [*lines[: LINES - 1], f"… {len(lines)} lines"])


def _print(console: Console, name: str, text: str) -> None:
    from rich.text import Text

    before = f"  {name:<11} "
    console.print(Text.assemble((before, "dim"), _wrapped(before, text, console.width)[len(before) :]))


def _more(number: int) -> str:
    return f"; and {number} more" if number > 0 else ""
