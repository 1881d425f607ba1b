"""A journal as one page: it opens offline, and draws only the visible rows of its table."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from pathlib import Path
from typing import Any

from gradproof import reports_from_json
from gradproof.audit.case import Outcome
from gradproof.audit.journal import Journal

TEMPLATES = Path(__file__).parent / "templates"
WRONG_FIRST = (
    Outcome.FAIL, Outcome.CRASH, Outcome.MEMORY, Outcome.TIMEOUT, Outcome.ERROR, Outcome.INCONCLUSIVE, Outcome.SKIPPED,
    Outcome.PASS,
)  # fmt: skip


def page(journal: Journal) -> str:
    """Return the page of a journal: counts, a table with search and filters, and the report of each case that fails."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    described, data = journal.described(), _data(journal)
    versions = ", ".join(f"{name} {text}" for name, text in described["versions"].items())
    began = time.strftime("%Y-%m-%d %H:%M", time.localtime(described["began"]))
    style, script = ((TEMPLATES / name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    rendered: str = environment.get_template("page.html").render(
        title=f"Audit of {described['source']}",
        subtitle=f"{len(data['rows']):,} cases, with {versions}, on {described['host']} since {began}",
        style=Markup(style),
        script=Markup(script),
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        data=Markup(_in_script(data)),
    )
    return rendered


def _data(journal: Journal) -> dict[str, Any]:
    """Return the rows as short lists, and the details of those that do not pass."""
    outcomes = {outcome.value: place for place, outcome in enumerate(WRONG_FIRST)}
    reasons: dict[str, int] = {}
    tags: dict[tuple[str, ...], int] = {}
    rows: list[list[Any]] = []
    details: list[tuple[int, list[str]]] = []
    for row in journal.rows():
        result = row.result
        if result.outcome is not Outcome.PASS:
            report = _text_of(result.report) if result.outcome is Outcome.FAIL else ""
            details.append((len(rows), [result.message, report, result.output]))
        rows.append(
            [
                result.name,
                outcomes[result.outcome.value],
                reasons.setdefault(result.reason, len(reasons)),
                round(result.seconds, 3),
                tags.setdefault(row.tags, len(tags)),
                round(row.finished, 1),
            ]
        )
    order = sorted(range(len(rows)), key=lambda index: rows[index][1])
    places = {index: place for place, index in enumerate(order)}
    return {
        "journal": str(journal.path),
        "outcomes": list(outcomes),
        "reasons": list(reasons),
        "tags": list(tags),
        "rows": [rows[index] for index in order],
        "details": {places[index]: detail for index, detail in details},
    }


def _text_of(report: str) -> str:
    return str(reports_from_json(report)[0])


def _in_script(data: dict[str, Any]) -> str:
    """Return JSON that ends no script element, whatever its texts contain."""
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
