"""What two runs of the sweep have in common, and what changed between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Line = Mapping[str, Any]
DECIDED = ("pass", "fail", "inconclusive")
TROUBLE = ("raised", "timeout")


@dataclass(frozen=True)
class Pair:
    """One case in both runs."""

    before: Line
    after: Line

    @property
    def table(self) -> str:
        """Where the case is from."""
        return str(self.before["table"])

    @property
    def right(self) -> bool:
        """Whether the gradient is right."""
        return bool(self.before["expected"] == "right")

    @property
    def verdicts(self) -> tuple[str, str]:
        """Before and after."""
        return self.before["verdict"], self.after["verdict"]

    @property
    def passing(self) -> bool:
        """Whether it passes in both runs."""
        return self.verdicts == ("pass", "pass")

    @property
    def transition(self) -> str:
        """The verdicts with their reasons; empty where they are the same."""
        before, after = _said(self.before), _said(self.after)
        return "" if before == after else f"{before} → {after}"

    def __str__(self) -> str:
        return f"{self.table}: {self.before['case']}\n      {_in_full(self.before)}\n    → {_in_full(self.after)}"


def _said(line: Line) -> str:
    return f"{line['verdict']} ({line['reason']})" if line["reason"] else str(line["verdict"])


def _in_full(line: Line) -> str:
    message = line["message"] if line["message"] != line["reason"] else ""
    return f"{_said(line)} {message}".rstrip()


def newly_failing(pair: Pair) -> bool:
    """A right gradient that is now called wrong."""
    return pair.right and pair.verdicts[0] != "fail" and pair.verdicts[1] == "fail"


def lost(pair: Pair) -> bool:
    """A wrong gradient that was found, and is found no more."""
    return not pair.right and pair.verdicts[0] == "fail" and pair.verdicts[1] != "fail"


def undecided(pair: Pair) -> bool:
    """A right gradient that passed, and is now inconclusive."""
    return pair.right and pair.verdicts == ("pass", "inconclusive")


def troubled(pair: Pair) -> bool:
    """A case that now raises, or does not end, other than one that was found before."""
    return pair.verdicts[1] in TROUBLE and pair.verdicts[0] not in TROUBLE and not lost(pair)


LISTED: Mapping[str, Callable[[Pair], bool]] = {
    "right gradients that newly fail": newly_failing,
    "wrong gradients that no longer fail": lost,
    "right gradients from pass to inconclusive": undecided,
    "cases that newly raise or do not end": troubled,
}


def compare(before: Sequence[Line], after: Sequence[Line]) -> int:
    """Print what changed; 1 where a right gradient newly fails or a wrong one is lost, and 0 otherwise."""
    pairs = list(paired(before, after))
    print(f"{len(before):,} and {len(after):,} cases, {len(pairs):,} in common\n")
    show_counts(pairs)
    for title, chosen in LISTED.items():
        found = [pair for pair in pairs if chosen(pair)]
        print(f"\n{title}: {len(found)}")
        for pair in found:
            print(f"  {pair}")
    show_others([pair for pair in pairs if not any(chosen(pair) for chosen in LISTED.values())])
    return int(any(newly_failing(pair) or lost(pair) for pair in pairs))


def paired(before: Iterable[Line], after: Iterable[Line]) -> Iterator[Pair]:
    """The cases that are in both runs, by table and name."""
    later = {(line["table"], line["case"]): line for line in after}
    for line in sorted(before, key=lambda line: (line["table"], line["case"])):
        if (line["table"], line["case"]) in later:
            yield Pair(line, later[line["table"], line["case"]])


def show_counts(pairs: Sequence[Pair]) -> None:
    """A line for every table and each kind of case, right, planted and torch's own errors, and the cost."""
    print(f"{'':<38}{'cases':>7}" + "".join(f"{verdict:>16}" for verdict in (*DECIDED, "other")))
    for table in dict.fromkeys(pair.table for pair in pairs):
        here = [pair for pair in pairs if pair.table == table]
        for title in ("right", "planted", "torch's own errors"):
            show_group(f"{table}, {title}", [pair for pair in here if _kind(pair.before) == title])
        passing = [pair for pair in here if pair.passing]
        cost = ", ".join(f"{what} × {_ratio(passing, what)}" for what in ("seconds", "evaluations"))
        print(f"    {len(passing)} pass in both: {cost}")


def _kind(line: Line) -> str:
    if line["planted"]:
        return "planted"
    return "right" if line["expected"] == "right" else "torch's own errors"


def show_group(title: str, pairs: Sequence[Pair]) -> None:
    if pairs:
        counts = [Counter(pair.verdicts[k] for pair in pairs) for k in (0, 1)]
        cells = [f"{counts[0][verdict]} → {counts[1][verdict]}" for verdict in DECIDED]
        others = [len(pairs) - sum(count[verdict] for verdict in DECIDED) for count in counts]
        cells.append(f"{others[0]} → {others[1]}")
        print(f"{title:<38}{len(pairs):>7}" + "".join(f"{cell:>16}" for cell in cells))


def _ratio(pairs: Sequence[Pair], what: str) -> str:
    before, after = (sum(line[what] for line in lines) for lines in _columns(pairs))
    return f"{after / before:.3f}" if before else "—"


def _columns(pairs: Sequence[Pair]) -> tuple[list[Line], list[Line]]:
    return [pair.before for pair in pairs], [pair.after for pair in pairs]


def show_others(pairs: Iterable[Pair]) -> None:
    """All other changes, counted."""
    counted = Counter((_kind(pair.before), pair.transition) for pair in pairs if pair.transition)
    print(f"\nother changes: {counted.total()}")
    for (kind, transition), count in counted.most_common():
        print(f"  {count:>5} × {kind}: {transition}")


def show_verdicts(lines: Sequence[Line]) -> None:
    """How often each table of one run came to which verdict."""
    columns = (*DECIDED, *TROUBLE, "skipped", "seconds")
    print(f"{'':<38}" + "".join(f"{column:>14}" for column in columns))
    groups = sorted({(line["table"], _kind(line)) for line in lines})
    for table, kind in groups:
        here = [line for line in lines if (line["table"], _kind(line)) == (table, kind)]
        counts = Counter(line["verdict"] for line in here)
        cells = [str(counts[column]) for column in columns[:-1]] + [f"{sum(line['seconds'] for line in here):.1f}"]
        print(f"{f'{table}, {kind}':<38}" + "".join(f"{cell:>14}" for cell in cells))


def show_reasons(lines: Sequence[Line]) -> None:
    """Why cases were inconclusive, by table."""
    print("\ninconclusive, by reason")
    for table, kind in sorted({(line["table"], _kind(line)) for line in lines}):
        chosen = (line for line in lines if (line["table"], _kind(line)) == (table, kind))
        counted = Counter(line["reason"] for line in chosen if line["verdict"] == "inconclusive")
        if counted:
            print(f"  {table}, {kind}: " + ", ".join(f"{reason} {count}" for reason, count in counted.most_common()))
