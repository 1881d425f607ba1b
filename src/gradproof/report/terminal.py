"""A report on one screen of text: in color on a terminal, plain elsewhere."""

from __future__ import annotations

import io
import random
import sys
from typing import TYPE_CHECKING, Any

from gradproof.engine.results import Entry, Finding, Report, Verdict
from gradproof.report import words
from gradproof.report.characters import harmless, in_encoding

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

SHOWN = 10  # entries of the first finding
FINDINGS = 3  # shown in full
LINES = 6  # of a message
CULPRITS = 2  # named
COLORS = {Verdict.PASS: "bold green", Verdict.FAIL: "bold red", Verdict.INCONCLUSIVE: "bold yellow"}
WIDTH = 100


def plain(report: Report) -> str:
    """Return the report as text without colors, in characters that standard output can show.

    >>> from gradproof import check
    >>> import torch
    >>> x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    >>> plain(check(torch.exp, x, seed=1)).splitlines()[0]
    'PASS  exp: 3 inputs, 3 outputs'
    """
    memory = io.StringIO()
    _render(report, _console(file=memory, width=WIDTH, color_system=None))
    return in_encoding(memory.getvalue().rstrip("\n"), getattr(sys.stdout, "encoding", None))


def show(report: Report) -> None:
    """Print the report, in color if the terminal has colors."""
    console = _console()
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
    lines = [f"{report.verdict.value.upper():<12}  {report.subject.name}: {words.gist(report)}"]
    if report.origin:
        lines.append(f"{'':<12}  {report.origin}")
    return "\n".join(lines)


def _console(**options: Any) -> Console:
    """Make a console. Importing rich draws a random number, so Python's generator is restored."""
    state = random.getstate()
    try:
        from rich.console import Console
    finally:
        random.setstate(state)
    return Console(highlight=False, soft_wrap=True, **options)


def _render(report: Report, console: Console) -> None:
    from rich.text import Text

    report = harmless(report)
    subject = report.subject
    console.print(
        Text.assemble(
            (report.verdict.value.upper(), COLORS[report.verdict]),
            f"  {subject.name}: {words.sizes(subject)}",
        )
    )
    if report.reason:
        console.print(_field("why", f"{report.reason.value}: {_shortened(report.message)}"))
    if report.hint:
        console.print(_field("hint", report.hint))
    for number, finding in enumerate(report.findings[:FINDINGS]):
        _render_finding(finding, console, SHOWN if number == 0 else SHOWN // 5)
    if len(report.findings) > FINDINGS:
        paths = ", ".join(finding.argument or finding.kind for finding in report.findings[FINDINGS:][:8])
        console.print(_field("also", f"{len(report.findings) - FINDINGS} more findings: {paths}"))
    arguments = "; ".join(subject.arguments[:6]) + _more(len(subject.arguments) - 6)
    console.print(_field("checked", arguments + words.how(subject)))
    if report.verdict is Verdict.PASS:
        console.print(_field("resolution", words.resolution(report.resolution)))
    for note in report.notes:
        console.print(_field("note", note))
    console.print(_field("cost", words.cost(report)))
    console.print(_field("replay", f"seed={report.seed}"))


def _render_finding(finding: Finding, console: Console, shown: int) -> None:
    from rich.text import Text

    mode = "" if finding.mode == "reverse" else f"{finding.mode}: "
    console.print(_field("found", mode + _shortened(finding.message)))
    if finding.entries:
        rows = [("entry", "claimed", "numerical", "± bar", "of")]
        rows += [_row(finding, entry) for entry in finding.entries[:shown]]
        widths = [max(len(row[column]) for row in rows) for column in range(5)]
        for number, row in enumerate(rows):
            cells = "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            console.print(Text(f"              {cells}", style="dim" if number == 0 else ""))
        if len(finding.entries) > shown:
            console.print(Text(f"              and {len(finding.entries) - shown} more", style="dim"))
    if finding.diagnoses:
        first, *others = finding.diagnoses
        console.print(_field("looks like", f"{first.name}: {_shortened(first.message)}"))
        if others:
            console.print(_field("or", ", ".join(f"{other.name} (fit {other.fit:.2f})" for other in others)))
    hint = next((diagnosis.hint for diagnosis in finding.diagnoses[:1]), "") or finding.hint
    if hint:
        console.print(_field("hint", hint))
    for culprit in finding.culprits[:CULPRITS]:
        like = f" It looks like {culprit.diagnoses[0].name}." if culprit.diagnoses else ""
        console.print(_field("to blame", f"{culprit.name}, by itself: {_shortened(culprit.message)}{like}"))


def _row(finding: Finding, entry: Entry) -> tuple[str, str, str, str, str]:
    return (
        words.entry_name(finding, entry),
        words.number(entry.claimed),
        words.number(entry.numerical),
        f"{entry.bar:.1e}",
        words.entry_outputs(entry),
    )


def _shortened(text: str) -> str:
    lines = text.splitlines()
    return "\n              ".join(lines if len(lines) <= LINES else [*lines[: LINES - 1], f"… {len(lines)} lines"])


def _field(name: str, text: str) -> Text:
    from rich.text import Text

    return Text.assemble((f"  {name:<11} ", "dim"), text)


def _more(number: int) -> str:
    return f"; and {number} more" if number > 0 else ""
