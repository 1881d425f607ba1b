"""A demonstration on one screen: a few scenes of each kind, and how many there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from gradproof.cli.demo import Shown
from gradproof.engine.results import Verdict
from gradproof.report.words import gist
from gradproof.report.wrapping import wrapped

SHOWN = 5  # scenes of one kind
LABEL = 15  # characters before a text, which hold the name of who says it


def screen(seen: Sequence[Shown], width: int) -> Iterator[tuple[str, bool]]:
    """Yield lines, each with whether it is a heading."""
    wrong = [shown for shown in seen if shown.report.verdict is Verdict.FAIL]
    overlooked = [shown for shown in wrong if shown.overlooked]
    undecided = [shown for shown in seen if shown.report.verdict is Verdict.INCONCLUSIVE]
    right = [shown for shown in seen if shown.report.verdict is Verdict.PASS]
    sections = (
        (f"Wrong, and torch's fast check passes it: {SHOWN} of {len(overlooked)}", overlooked[:SHOWN], False),
        ("What the mistake looks like, and what torch says", list(_distinct(wrong))[:SHOWN], True),
        ("No derivative at this point", undecided[:1], True),
        ("Right, and what would have been caught", right[-1:], True),
    )
    for heading, scenes, beside in sections:
        if scenes:
            yield heading, True
        for shown in scenes:
            yield from ((line, False) for line in _scene(shown, width, beside=beside))


def _scene(shown: Shown, width: int, *, beside: bool) -> Iterator[str]:
    yield f"  {shown.title}"
    yield from _said("gradproof", gist(shown.report), width)
    if beside:
        yield from _said("torch", shown.error or shown.torch, width)


def _said(who: str, what: str, width: int) -> Iterator[str]:
    first, *more = wrapped(what, width - LABEL)
    yield f"    {who:<{LABEL - 4}}{first}"
    yield from (f"{'':<{LABEL}}{line}" for line in more)


def _distinct(wrong: Iterable[Shown]) -> Iterator[Shown]:
    """Yield scenes that torch's check fails too, one for each diagnosis."""
    known = set()
    for shown in wrong:
        names = [diagnosis.name for finding in shown.report.findings for diagnosis in finding.diagnoses[:1]]
        if not shown.overlooked and names and names[0] not in known:
            known.add(names[0])
            yield shown
