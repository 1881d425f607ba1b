"""A journal for a terminal and for other programs: lines, JSON, JUnit XML, and annotations of GitHub's checks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from xml.etree import ElementTree

from gradproof.audit.case import Outcome
from gradproof.audit.journal import Journal, Row
from gradproof.report.github import command

SCHEMA = 1
WIDE = 200  # characters of a message in a line
NOT_IN_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
ELEMENTS = {Outcome.FAIL: "failure", Outcome.SKIPPED: "skipped", Outcome.INCONCLUSIVE: "skipped"}
ENDED = (Outcome.CRASH, Outcome.MEMORY, Outcome.TIMEOUT, Outcome.ERROR)  # without a verdict, the worst first
ANNOTATED = {Outcome.FAIL: "error", Outcome.CRASH: "warning", Outcome.TIMEOUT: "warning", Outcome.MEMORY: "warning"}


def to_json(journal: Journal) -> str:
    """Return a journal as one JSON object."""
    cases = [_as_dict(row) for row in journal.rows()]
    return json.dumps({"schema": SCHEMA, **journal.described(), "cases": cases}, allow_nan=False)


def to_junit(journal: Journal) -> str:
    """Return a journal as JUnit XML: a fail is a failure, an inconclusive case is skipped, no verdict is an error."""
    suite = ElementTree.Element("testsuite", name=_xml(str(journal.described()["source"])))
    counts = dict.fromkeys(("tests", "failure", "error", "skipped"), 0)
    for row in journal.rows():
        result = row.result
        counts["tests"] += 1
        case = ElementTree.SubElement(suite, "testcase", name=_xml(result.name), time=f"{result.seconds:.3f}")
        if result.outcome is not Outcome.PASS:
            kind = ELEMENTS.get(result.outcome, "error")
            counts[kind] += 1
            said = ElementTree.SubElement(case, kind, type=result.outcome.value, message=_xml(result.message))
            said.text = _xml(result.output)
    for kind, name in (("tests", "tests"), ("failure", "failures"), ("error", "errors"), ("skipped", "skipped")):
        suite.set(name, str(counts[kind]))
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


def to_lines(journal: Journal) -> Iterator[str]:
    """Return a line for each case that fails, then one for all cases that ended without a verdict in the same way."""
    alike: dict[tuple[Outcome, str], list[str]] = {}
    for row in journal.rows():
        result, message = row.result, row.result.message.partition("\n")[0]
        message = message if len(message) <= WIDE else f"{message[:WIDE]}…"  # torch's dispatcher writes pages
        if result.outcome is Outcome.FAIL:
            yield f"fail  {result.name}: {message}"
        elif result.outcome in ENDED:
            alike.setdefault((result.outcome, message), []).append(result.name)
    for (outcome, message), names in sorted(alike.items(), key=lambda item: ENDED.index(item[0][0])):
        more = f" and {len(names) - 1:,} more" if len(names) > 1 else ""
        yield f"{outcome.value}  {names[0]}{more}: {message}"


def to_github(journal: Journal) -> Iterator[str]:
    """Return the lines that a workflow prints to annotate its run: fails are errors, lost processes are warnings."""
    for row in journal.rows():
        level = ANNOTATED.get(row.result.outcome)
        if level:
            yield command(level, row.result.message, title=f"{row.result.outcome.value}: {row.result.name}")


def _as_dict(row: Row) -> dict[str, object]:
    result = row.result
    return {
        "name": result.name,
        "outcome": result.outcome.value,
        "reason": result.reason,
        "message": result.message,
        "seconds": result.seconds,
        "seed": result.seed,
        "host": result.host,
        "finished": row.finished,
        "tags": row.tags,
        "output": result.output,
        "report": json.loads(result.report) if result.report else None,
    }


def _xml(text: str) -> str:
    return NOT_IN_XML.sub("�", text)
