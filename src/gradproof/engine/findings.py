"""Findings in words: wrong entries, an error that no entry shows, and a derivative that raised."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gradproof.engine.options import tolerance_hint
from gradproof.engine.probe import Probe
from gradproof.engine.results import Entry, Finding
from gradproof.engine.subject import DerivativeError, Subject
from gradproof.engine.thresholds import TINY
from gradproof.engine.views import rule_of


def entry_findings(subject: Subject, entries: Iterable[tuple[int, Entry]], *, more: bool) -> Iterator[Finding]:
    """Describe wrong entries, argument by argument; `more` says that there are others."""
    rule = rule_of(subject)
    what = "gradient" if rule == "backward" else "pushforward"
    by_argument: dict[str, list[Entry]] = {}
    for coordinate, entry in entries:
        by_argument.setdefault(subject.inputs.locate(coordinate).path, []).append(entry)
    for argument, theirs in by_argument.items():
        error = max(abs(entry.claimed - entry.numerical) / max(abs(entry.numerical), TINY) for entry in theirs)
        yield Finding(
            kind="wrong-gradient",
            message=f"The {what} with respect to {argument} is wrong in {_counted(theirs, more=more)}.",
            argument=argument,
            entries=tuple(theirs),
            hint=f"Compare the {rule} with the derivative of the forward at the entries shown." + tolerance_hint(error),
        )


def _counted(entries: list[Entry], *, more: bool) -> str:
    count = f"{'at least ' if more else ''}{len(entries)} {'entry' if len(entries) == 1 else 'entries'}"
    absent = sum(entry.stored is False for entry in entries)
    if not absent:
        return count
    return count + (", where nothing is stored" if absent == len(entries) else f", {absent} where nothing is stored")


def error_without_entries(probe: Probe) -> Finding:
    """Describe a wrong slope along a random direction that no entry by itself shows."""
    return Finding(
        kind="wrong-gradient",
        message=f"The derivative predicts a slope of {probe.claim.slope:.9g} along a random direction; the function's "
        f"values give {probe.contraction.slope:.9g} ± {probe.bar:.2g}. The error is spread too thinly to single out "
        "entries.",
        hint="Compare the derivative's rule with the function.",
    )


def raised(subject: Subject, error: DerivativeError) -> Finding:
    """Describe a derivative that raised an error: there is no rule, or its result cannot be read."""
    rule = rule_of(subject)
    side, mode, given = (
        ("backward", "reverse", "incoming gradient") if rule == "backward" else ("forward", "forward", "tangent")
    )
    if error.hint:
        return Finding(kind=f"{side}-refused", message=f"The derivative raised {error}", hint=error.hint)
    if error.absent:
        return Finding(
            kind=f"no-{side}-rule",
            message=f"There is no {mode}-mode derivative to check: {error}",
            hint=f"Write the rule, or leave {mode!r} out of modes=.",
        )
    if error.malformed:
        return Finding(
            kind="malformed-gradient",
            message=f"The derivative cannot be read: {f'for {error.path}, ' if error.path else ''}{error}.",
            argument=error.path,
            hint=f"Look at how the {rule} builds the indices; to convert or print such a tensor can end the process.",
        )
    return Finding(
        kind=f"{side}-raised",
        message=f"The derivative raised {error}",
        hint=f"Look at the {rule} of the function: it did not accept an ordinary {given}.",
    )
