"""Make text safe for a terminal: escape control characters, and substitute what the encoding lacks."""

from __future__ import annotations

import dataclasses
import re
import unicodedata
from typing import Any, TypeVar

T = TypeVar("T")

CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
GAPS = re.compile("( {2,})")
SUBSTITUTES = str.maketrans({
    "±": "+-", "…": "...", "·": ".", "×": "x", "−": "-", "⁻": "-", "⟨": "<", "⟩": ">", "─": "-", "│": "|", "√": "sqrt ",
    "✓": "+", "✗": "x", "∂": "d", "Σ": "sum ", "∫": "integral ", "Δ": "D", "θ": "theta", "π": "pi", "φ": "phi",
    "µ": "u", "↦": "->", "→": "->", "≤": "<=", "≥": ">=", "≈": "~", "∞": "inf", "′": "'",
    "▁": "_", "▂": ".", "▃": ":", "▅": "+", "▇": "*", "█": "#",
    "“": '"', "”": '"', "‘": "'", "’": "'", "–": "-", "—": "-",
})  # fmt: skip


def without_controls(text: str) -> str:
    r"""Return a text whose control characters, but for line breaks and tabs, are written as escapes.

    A terminal obeys them: a report from elsewhere could clear the screen, or change what was read.

    >>> without_controls("a\x1b[2Jb")
    'a\\x1b[2Jb'
    """
    return CONTROLS.sub(lambda found: found.group().encode("unicode_escape").decode("ascii"), text)


def harmless(value: T) -> T:
    """Return a copy of frozen data whose texts have their control characters escaped."""
    if isinstance(value, str):
        return without_controls(value)  # type: ignore[return-value]  # a str is what came in
    if isinstance(value, tuple):
        return tuple(map(harmless, value))  # type: ignore[return-value]  # as above
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        texts: dict[str, Any] = {
            field.name: harmless(found)
            for field in dataclasses.fields(value)
            if isinstance(found := getattr(value, field.name), (str, tuple)) or dataclasses.is_dataclass(found)
        }
        return dataclasses.replace(value, **texts)
    return value


def in_encoding(text: str, encoding: str | None) -> str:
    """Return a text that an encoding can hold: substitutes take the place of what it lacks, and columns stay in line.

    >>> in_encoding("2 ± 1e−3 …", "ascii"), in_encoding("2 ± 1e−3 …", "cp1252")
    ('2 +- 1e-3 ...', '2 ± 1e-3 …')
    >>> print(in_encoding("± bar   of\\n1e-12   y", "ascii"))
    +- bar  of
    1e-12   y
    """
    encoding = encoding or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        return "".join(_in_line(line, encoding) for line in text.splitlines(keepends=True))
    except LookupError:
        return in_encoding(text, "ascii")
    return text


def _in_line(line: str, encoding: str) -> str:
    """Return a line that an encoding can hold. Gaps between columns give up the space that substitutes take."""
    shown, longer = [], 0
    for piece in GAPS.split(line):
        if GAPS.fullmatch(piece):
            kept = max(1, len(piece) - longer)
            shown.append(" " * kept)
            longer -= len(piece) - kept
        else:
            shown.append("".join(_shown(each, encoding) for each in piece))
            longer += len(shown[-1]) - len(piece)
    return "".join(shown)


def _shown(character: str, encoding: str) -> str:
    """Return a character, or its substitute, or its plain form, or a question mark: the first that there is."""
    plain = unicodedata.normalize("NFKD", character)
    for each in (character, character.translate(SUBSTITUTES), plain, plain.translate(SUBSTITUTES)):
        try:
            each.encode(encoding)
        except UnicodeEncodeError:
            continue
        return each
    return "?"
