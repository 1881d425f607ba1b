"""The wrong entries of a finding as text: a table where it fits the width, a list of short lines where it does not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from gradproof.engine.results import Finding
from gradproof.report import words
from gradproof.report.wrapping import wrapped

if TYPE_CHECKING:
    from rich.text import Text

HEAD = ("entry", "claimed", "numerical", "± bar", "of")
STYLES = ("", "red", "green", "dim", "")
INDENT = 4
GAP = 2  # spaces between columns
NARROWEST = 16  # characters of the last column, below which a table is given up


def entry_table(finding: Finding, shown: int, width: int) -> Iterator[Text]:
    """Yield the lines that show the first wrong entries of a finding."""
    rows = [words.entry_cells(finding, entry) for entry in finding.entries[:shown]]
    if not rows:
        return
    widths = [max(len(row[column]) for row in (HEAD, *rows)) for column in range(4)]
    left = width - INDENT - sum(widths) - GAP * 4
    if max(len(row[4]) for row in rows) > left:  # a row of the table is one line, if that is possible
        rows = [(*row[:4], words.few_outputs(entry)) for row, entry in zip(rows, finding.entries, strict=False)]
    if left >= min(NARROWEST, max(len(row[4]) for row in rows)):
        yield from _table(rows, widths, left)
    else:
        yield from _list(rows, width)


def _table(rows: Sequence[Sequence[str]], widths: Sequence[int], left: int) -> Iterator[Text]:
    from rich.text import Text

    head = [cell.ljust(width + GAP) for cell, width in zip(HEAD, widths, strict=False)]
    yield Text(" " * INDENT + "".join(head) + HEAD[4], style="dim")
    for row in rows:
        line = Text(" " * INDENT)
        for cell, width, style in zip(row, widths, STYLES, strict=False):
            line.append(cell, style).append(" " * (width + GAP - len(cell)))
        first, *more = wrapped(row[4], left)
        yield line.append(first)
        for part in more:
            yield Text(" " * (INDENT + sum(widths) + 4 * GAP) + part)


def _list(rows: Sequence[Sequence[str]], width: int) -> Iterator[Text]:
    from rich.text import Text

    names = max(map(len, HEAD[1:])) + GAP
    before = " " * (INDENT + GAP)
    for row in rows:
        yield Text(" " * INDENT + row[0])
        for name, cell, style in zip(HEAD[1:], row[1:], STYLES[1:], strict=True):
            first, *more = wrapped(cell, width - len(before) - names)
            yield Text.assemble(before, (name.ljust(names), "dim"), (first, style))
            for part in more:
                yield Text(before + " " * names + part)
