"""The table of a run of `benchmarks.sensitivity`, from its lines."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.sweep_diff import Line

CONTROL = "control"
CHANGES = ("halved", "doubled")
FIGURES = ("fails", "lost", "other", "named")


@dataclass(frozen=True)
class Row:
    """A constant, and the lines of its changes."""

    halved: Line | None
    doubled: Line | None

    @property
    def lines(self) -> list[Line]:
        """Those that there are."""
        return [line for line in (self.halved, self.doubled) if line is not None]

    @property
    def rank(self) -> tuple[float, ...]:
        """The effect: processes that ended, wrong verdicts, other changes, what is named, and the cost."""
        ended = sum("ended" in line for line in self.lines)
        figures = {kind: sum(line.get(kind, 0) for line in self.lines) for kind in FIGURES}
        cost = max(abs(math.log(line.get("evaluations") or 1.0)) for line in self.lines)
        return ended, figures["fails"] + figures["lost"], figures["other"], figures["named"], cost

    @property
    def is_idle(self) -> bool:
        """Whether both changes were made, and neither changes anything, not even a number of evaluations."""
        return len(self.lines) == 2 and not any(self.rank[:-1]) and not any(line["recounted"] for line in self.lines)


def show(lines: Sequence[Line]) -> None:
    """Print the table, the largest effect first, and the constants without any."""
    latest = {(line["module"], line["name"], line["change"]): line for line in lines}
    for line in latest.values():
        if line["name"] == CONTROL:
            print(f"no change, {line.get('cases')} cases:{cells(line)}")
    names = dict.fromkeys(key[:2] for key in latest if key[1] != CONTROL)
    rows = [Row(*(latest.get((*name, change)) for change in CHANGES)) for name in names]
    idle = [row for row in rows if row.is_idle]
    heads = "".join(f"{head:>6}" for head in FIGURES) + f"{'evals':>7} "
    print(f"\n{'':<60}{'halved':^32}{'doubled':^32}")
    print(f"{'constant':<16}{'module':<32}{'value':<12}{heads}{heads}  comment")
    for row in sorted(rows, key=lambda row: row.rank, reverse=True):
        if not row.is_idle:
            first = row.lines[0]
            title = (
                f"{first['name'] + '°' * bool(first.get('kept')):<16}{first['module']:<32}{shown(first['value']):<12}"
            )
            print(f"{title}{cells(row.halved)}{cells(row.doubled)}  {first['comment']}")
    print("\n° something computed from it at import keeps its value;  * cut short after a minute")
    print(f"\nno effect at all, neither halved nor doubled: {len(idle)} of {len(rows)}")
    for row in sorted(idle, key=lambda row: (row.lines[0]["module"], row.lines[0]["name"])):
        first = row.lines[0]
        print(f"  {first['module']}.{first['name']}{'°' * bool(first.get('kept'))} = {shown(first['value'])}")


def cells(line: Line | None) -> str:
    """The figures of a change, in 32 columns."""
    if line is None or "ended" in line:
        return f"{'—' if line is None else 'its process ended':^32}"
    mark = "*" if line["cases"] < line["of"] else " "
    figures = "".join(f"{line[kind] or '·':>6}" for kind in FIGURES)
    return f"{figures}{line['evaluations']:>7.3f}{mark}"


def shown(value: Any) -> str:
    """A value in eleven characters."""
    if isinstance(value, list | tuple):
        return f"{shown(value[0])}, …"[:11]
    return f"{value:.5g}"[:11]
