"""Render reports as one self-contained page: it opens offline, in light and dark mode, with its own script alone."""

from __future__ import annotations

import base64
import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from gradproof.engine.results import Finding, Report, Verdict
from gradproof.report import words
from gradproof.report.error_picture import ErrorPicture
from gradproof.report.geometry import BarsPicture, Picture, ScatterPicture, TaylorPicture, pictures

TEMPLATES = Path(__file__).parent / "templates"
SIGNS = {Verdict.PASS: "✓", Verdict.FAIL: "✗", Verdict.INCONCLUSIVE: "?"}
ORDER = (Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.PASS)
PICTURED = 200  # checks: in a longer page only this many get pictures, and none that pass
OPEN = 12  # checks: up to this many, those that do not pass are unfolded
FINDINGS = 6  # of one check
CULPRITS = 3  # named in a finding
# How JupyterLab, VS Code and Colab mark the theme of a notebook.
LIGHT_THEMES = ('[data-jp-theme-light="true"]', ".vscode-light", '[theme="light"]')
DARK_THEMES = ('[data-jp-theme-light="false"]', ".vscode-dark", ".vscode-high-contrast", '[theme="dark"]')
ENTRIES_WITHOUT_PICTURES = 4  # entries of a finding without pictures


@dataclass(frozen=True, slots=True, kw_only=True)
class _Card:
    """One check, as a template shows it."""

    verdict: str
    sign: str
    name: str
    sizes: str
    time: str
    gist: str
    origin: str
    reason: str
    hint: str
    findings: list[dict[str, Any]]
    more: str
    pictures: list[tuple[str, Picture]]
    several: bool
    facts: list[tuple[str, str]]
    replay: str
    resolution: str
    seconds: str
    open: bool


def page(reports: Sequence[Report], *, title: str = "") -> str:
    """Return one page for one check or for many, which can then be searched, filtered and sorted.

    >>> import torch, gradproof
    >>> report = gradproof.check(torch.exp, torch.ones(3, dtype=torch.float64, requires_grad=True), seed=1)
    >>> page([report]).startswith("<!DOCTYPE html>")
    True
    """
    from markupsafe import Markup

    drawn = _to_picture(reports)
    cards = [
        _card(report, pictured=number in drawn, open_=_opens(report, len(reports)))
        for number, report in enumerate(reports)
    ]
    tally = Counter(report.verdict for report in reports)
    script = (TEMPLATES / "script.js").read_text(encoding="utf-8")
    rendered: str = _template("page.html").render(
        cards=cards,
        counts=[(verdict.value, tally[verdict]) for verdict in ORDER],
        title=title or (f"{cards[0].name}: {cards[0].verdict}" if len(cards) == 1 else "Gradient checks"),
        subtitle=_subtitle(reports, tally),
        note="" if len(drawn) == len(reports) else f"Of {len(reports):,} checks {len(drawn):,} have pictures.",
        style=_style(in_notebook=False),
        script=Markup(script),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=version("gradproof"),
    )
    return rendered


def notebook(report: Report) -> str:
    """Return one check as a fragment of HTML without scripts, for a notebook."""
    card = _card(report, pictured=True, open_=True)
    rendered: str = _template("notebook.html").render(card=card, style=_style(in_notebook=True))
    return rendered


@cache
def _environment() -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _template(name: str) -> Any:
    return _environment().get_template(name)


@cache
def _style(*, in_notebook: bool) -> Any:
    """Return the style: dark where the reader's system is, or in a notebook where its theme is."""
    from markupsafe import Markup

    style, dark = ((TEMPLATES / name).read_text(encoding="utf-8") for name in ("style.css", "dark.css"))
    if not in_notebook:
        return Markup(f"{style}@media (prefers-color-scheme: dark) {{ .gp {{ {dark} }} }}\n")
    unknown = "".join(f":not({theme}, :has({theme}))" for theme in (*LIGHT_THEMES, *DARK_THEMES))
    within = ", ".join(f"{theme} .gp" for theme in DARK_THEMES)
    light = ", ".join(f"{theme} .gp" for theme in LIGHT_THEMES)
    by_system = f"@media (prefers-color-scheme: dark) {{ :root{unknown} .gp {{ {dark} }} }}"
    return Markup(
        f"{style}{by_system}\n{within} {{ color-scheme: dark; {dark} }}\n{light} {{ color-scheme: light; }}\n"
    )


def _to_picture(reports: Sequence[Report]) -> set[int]:
    """Return the checks that get pictures: all of a few; of many, those that do not pass, up to a limit."""
    if len(reports) <= PICTURED:
        return set(range(len(reports)))
    return set([number for number, report in enumerate(reports) if not report.passed][:PICTURED])


def _opens(report: Report, among: int) -> bool:
    return among == 1 or (among <= OPEN and not report.passed)


def _subtitle(reports: Sequence[Report], tally: Counter[Verdict]) -> str:
    parts = [f"{tally[verdict]:,} {verdict.value}" for verdict in ORDER if tally[verdict]]
    spent = words.seconds(sum(report.cost.seconds for report in reports))
    if len(reports) == 1:
        return f"Checked in {spent}, seed {reports[0].seed}"
    return f"{words.count(len(reports), 'check')} in {spent}: {', '.join(parts)}"


def _card(report: Report, *, pictured: bool, open_: bool) -> _Card:
    subject = report.subject
    weakest = report.resolution.relative
    return _Card(
        verdict=report.verdict.value,
        sign=SIGNS[report.verdict],
        name=subject.name,
        sizes=words.sizes(subject),
        time=words.seconds(report.cost.seconds),
        gist=words.gist(report),
        origin=report.origin,
        reason=f"{report.reason.value}: {report.message}" if report.reason else "",
        hint=report.hint,
        findings=[
            _finding(finding, None if pictured else ENTRIES_WITHOUT_PICTURES) for finding in report.findings[:FINDINGS]
        ],
        more=_more(report.findings[FINDINGS:]),
        pictures=[(_kind(picture), picture) for picture in pictures(report)] if pictured else [],
        several=len(subject.derivatives) > 1,
        facts=_facts(report),
        replay=_replay(report),
        resolution=f"{weakest:.3g}" if math.isfinite(weakest) else "Infinity",
        seconds=f"{report.cost.seconds:.4g}",
        open=open_,
    )


def _kind(picture: Picture) -> str:
    kinds = {TaylorPicture: "taylor", BarsPicture: "bars", ScatterPicture: "scatter", ErrorPicture: "errors"}
    return kinds.get(type(picture), "heat")


def _finding(finding: Finding, most: int | None) -> dict[str, Any]:
    return {
        "mode": "" if finding.mode == "reverse" else f", {finding.mode}",
        "message": finding.message,
        "hint": finding.hint,
        "diagnoses": [
            {"message": each.message, "fit": f"{each.fit:.0%}", "hint": each.hint or finding.hint}
            for each in finding.diagnoses[:3]
        ],
        "culprits": [
            (words.blame(each), " ".join([each.message, *(diagnosis.message for diagnosis in each.diagnoses[:1])]))
            for each in finding.culprits[:CULPRITS]
        ],
        "entries": [words.entry_cells(finding, entry) for entry in finding.entries[:most]],
    }


def _more(rest: tuple[Finding, ...]) -> str:
    if not rest:
        return ""
    paths = ", ".join(finding.argument or finding.kind for finding in rest[:8])
    return f"And {words.count(len(rest), 'more finding')}: {paths}"


def _facts(report: Report) -> list[tuple[str, str]]:
    subject = report.subject
    arguments = "\n".join(subject.arguments[:12])
    rest = len(subject.arguments) - 12
    facts = [("checked", arguments + (f"\nand {rest} more" if rest > 0 else ""))]
    if subject.derivatives != ("reverse",):
        facts.append(("derivatives", ", ".join(subject.derivatives)))
    if subject.coverage == "full":
        facts.append(("coverage", "every entry"))
    if subject.file:
        facts.append(("defined in", words.place(subject.file, subject.line)))
    if report.verdict is Verdict.PASS:
        facts.append(("resolution", words.resolution(report.resolution)))
    facts += [("note", note) for note in report.notes]
    return [*facts, ("cost", words.cost(report))]


def _replay(report: Report) -> str:
    subject = report.subject
    name = _callable(subject.name, "function")
    asked = [f"seed={report.seed}"]
    if subject.call == "check_step":
        return f"gradproof.check_step(optimizer, loss, parameters, {asked[0]})"
    if subject.reference:
        return f"gradproof.compare({name}, {_callable(subject.reference, 'reference')}, inputs, {asked[0]})"
    if subject.coverage == "full":
        asked.append('coverage="full"')
    modes = dict.fromkeys(mode for each in subject.derivatives for mode in each.split(" over "))
    if list(modes) != ["reverse"]:
        asked.append(f"modes={tuple(modes)!r}".replace("'", '"').replace(",)", ")"))
    if any(" over " in each for each in subject.derivatives):
        asked.append("order=2")
    return f"gradproof.check({name}, inputs, {', '.join(asked)})"


def _callable(name: str, otherwise: str) -> str:
    """Return the name of a function; a capital is that of a class, of which an instance or `apply` was called."""
    return name if name.isidentifier() and not name[0].isupper() else otherwise
