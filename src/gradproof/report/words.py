"""The words that reports share, on a terminal and on a page."""

from __future__ import annotations

import math

from gradproof.engine.results import Checked, Entry, Finding, Report, Resolution

GIST = 240  # characters


def count(number: int, what: str) -> str:
    """A number of things.

    >>> count(1, "input"), count(1500, "input")
    ('1 input', '1,500 inputs')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def seconds(time: float) -> str:
    """A time.

    >>> seconds(0.0123), seconds(75.0)
    ('12.3 ms', '75.0 s')
    """
    return f"{time * 1e3:.1f} ms" if time < 1 else f"{time:.1f} s"


def number(value: float) -> str:
    """A number of a derivative, to ten digits; a zero has no sign.

    >>> number(-0.0), number(1 / 3)
    ('0', '0.3333333333')
    """
    return f"{value + 0.0:.10g}"


def sizes(subject: Checked) -> str:
    """How much was checked."""
    return f"{count(subject.coordinates, 'input')}, {count(subject.output_coordinates, 'output')}"


def how(subject: Checked) -> str:
    """Which derivatives, where they are not the usual ones, and whether every entry."""
    modes = "" if subject.derivatives in ((), ("reverse",)) else f"; {', '.join(subject.derivatives)}"
    return modes + ("; every entry" if subject.coverage == "full" else "")


def resolution(found: Resolution) -> str:
    """What would have been caught."""
    if not math.isfinite(found.absolute):
        return "nothing was measured, so no error would have been caught"
    if not found.relative:
        return "there is no entry that could be wrong"
    error = f"an error of {found.absolute:.1e}" if found.absolute else "any error"
    absolute = f"{error} in one gradient entry would have been caught"
    if math.isfinite(found.relative):
        return f"{absolute} ({found.relative:.1e} of the largest)"
    return f"{absolute} (the gradient itself is zero)"


def gist(report: Report) -> str:
    """What there is to say in one line."""
    if report.findings:
        first = report.findings[0]
        text = first.diagnoses[0].message if first.diagnoses else first.message
    else:
        text = f"{report.reason.value}: {report.message}" if report.reason else resolution(report.resolution)
    text = " ".join(text.split())
    return text if len(text) <= GIST else f"{text[:GIST]}…"


def cost(report: Report) -> str:
    """What was spent."""
    spent = report.cost
    pushed = f"{count(spent.pushforwards, 'pushforward')}, " if spent.pushforwards else ""
    return (
        f"{count(spent.evaluations, 'evaluation')}, {count(spent.pullbacks, 'pullback')}, {pushed}"
        f"{seconds(spent.seconds)} ({seconds(spent.inside)} in your code)"
    )


def entry_name(finding: Finding, entry: Entry) -> str:
    """An entry in the user's words."""
    index = f"[{', '.join(map(str, entry.index))}]" if entry.index else ""
    part = (f".{entry.part}" if entry.part else "") + (" (not stored)" if entry.stored is False else "")
    return f"{finding.argument}{index}{part}"


def entry_outputs(entry: Entry) -> str:
    """The outputs that an entry is the derivative of."""
    outputs = "a random combination of outputs" if entry.output is None else str(entry.output)
    return outputs + "".join(f", {place}" for place in entry.also)
