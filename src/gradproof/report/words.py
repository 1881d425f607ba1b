"""Text that the terminal and the HTML page share."""

from __future__ import annotations

import math

from gradproof.engine.results import Checked, Culprit, Diagnosis, Entry, Finding, Report, Resolution

GIST = 240  # characters


def count(number: int, what: str) -> str:
    """Format a number of things.

    >>> count(1, "input"), count(1500, "input")
    ('1 input', '1,500 inputs')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def seconds(time: float) -> str:
    """Format a duration.

    >>> seconds(0.0123), seconds(75.0)
    ('12.3 ms', '75.0 s')
    """
    return f"{time * 1e3:.1f} ms" if time < 1 else f"{time:.1f} s"


def number(value: float) -> str:
    """Format an entry of a derivative, to ten digits; a zero has no sign.

    >>> number(-0.0), number(1 / 3)
    ('0', '0.3333333333')
    """
    return f"{value + 0.0:.10g}"


def sizes(subject: Checked) -> str:
    """Return the numbers of inputs and outputs that were checked, and what they were compared with."""
    numbers = f"{count(subject.coordinates, 'input')}, {count(subject.output_coordinates, 'output')}"
    return f"{numbers}, against {subject.reference}" if subject.reference else numbers


def how(subject: Checked) -> str:
    """Return the derivatives that were checked, unless reverse mode alone, and whether every entry was."""
    modes = "" if subject.derivatives in ((), ("reverse",)) else f"; {', '.join(subject.derivatives)}"
    return modes + ("; every entry" if subject.coverage == "full" else "")


def resolution(found: Resolution) -> str:
    """Return the resolution in a sentence: the smallest error that would have been caught."""
    if not math.isfinite(found.absolute):
        return "nothing was measured, so no error would have been caught"
    if not found.relative:
        return "there is no entry that could be wrong"
    error = f"an error of {found.absolute:.1e}" if found.absolute else "any error"
    absolute = f"{error} in one gradient entry would have been caught"
    if math.isfinite(found.relative):
        return f"{absolute} ({found.relative:.1e} of the largest)"
    return f"{absolute} (the gradient itself is zero)"


def entry_cells(finding: Finding, entry: Entry) -> tuple[str, str, str, str, str]:
    """Return a wrong entry as the cells of a table: its name, claimed, numerical, the bar, and the output."""
    return (
        entry_name(finding, entry),
        number(entry.claimed),
        number(entry.numerical),
        f"{entry.bar:.1e}",
        entry_outputs(entry),
    )


def label(report: Report) -> str:
    """Return a report in a few words, for a prompt and for lists of reports."""
    if report.findings:
        first = report.findings[0]
        said = first.kind + (f" in {first.argument}" if first.argument else "")
    elif report.reason:
        said = report.reason.value
    else:
        found = report.resolution
        said = f"resolution {found.relative if math.isfinite(found.relative) else found.absolute:.0e}"
    subject = report.subject
    return f"{report.verdict.value.upper()} {subject.name}: {count(subject.coordinates, 'input')}, {said}"


def gist(report: Report) -> str:
    """Return a report in one line."""
    if report.findings:
        first = report.findings[0]
        text = first.diagnoses[0].message if first.diagnoses else first.message
    else:
        text = f"{report.reason.value}: {report.message}" if report.reason else resolution(report.resolution)
    text = " ".join(text.split())
    return text if len(text) <= GIST else f"{text[:GIST]}…"


def cost(report: Report) -> str:
    """Return the cost of a check in one line."""
    spent = report.cost
    pushed = f"{count(spent.pushforwards, 'pushforward')}, " if spent.pushforwards else ""
    return (
        f"{count(spent.evaluations, 'evaluation')}, {count(spent.pullbacks, 'pullback')}, {pushed}"
        f"{seconds(spent.seconds)} ({seconds(spent.inside)} in your code)"
    )


def entry_name(finding: Finding, entry: Entry) -> str:
    """Return the name of an entry, such as `inputs[0][2, 3].imag`."""
    index = f"[{', '.join(map(str, entry.index))}]" if entry.index else ""
    part = (f".{entry.part}" if entry.part else "") + (" (not stored)" if entry.stored is False else "")
    return f"{finding.argument}{index}{part}"


def entry_outputs(entry: Entry) -> str:
    """Return the output that an entry is the derivative of, and the others whose derivative is wrong there too."""
    output = "a random combination of outputs" if entry.output is None else str(entry.output)
    also = ", ".join(map(str, entry.also))
    return f"{output}; also {also}" if also else output


def few_outputs(entry: Entry) -> str:
    """Return the output that an entry is the derivative of, and how many others there are."""
    output = "a random combination of outputs" if entry.output is None else str(entry.output)
    return f"{output}, {len(entry.also)} more" if entry.also else output


def place(file: str, line: int) -> str:
    """Return a place in the source such that terminals and editors make a link of it.

    >>> place("layers/scale.py", 12), place("", 0)
    ('layers/scale.py:12', '')
    """
    return f"{file}:{line}" if file else ""


def hint(finding: Finding) -> str:
    """Return what to look at, by the first diagnosis or by the finding itself; empty if neither says so."""
    return next((diagnosis.hint for diagnosis in finding.diagnoses[:1]), "") or finding.hint


def names_of(diagnosis: Diagnosis) -> str:
    """Return the names of a diagnosis that are equally true."""
    return " or ".join((diagnosis.name, *diagnosis.also))


def blame(culprit: Culprit) -> str:
    """Return which part is wrong by itself, and where it is written."""
    return ", ".join(filter(None, (culprit.name, place(culprit.file, culprit.line))))


def blame_details(culprit: Culprit) -> str:
    """Return what is wrong with a part by itself, as its diagnosis if there is one; nothing of the whole function."""
    like = next((f"{names_of(each)}: {each.message}" for each in culprit.diagnoses[:1]), culprit.message)
    return f"by itself: {like}" if culprit.message else ""
