"""Lines of text that fit a width: broken between words, never inside a word or an index such as `[2, 17]`."""

from __future__ import annotations

import re
import textwrap

GLUE = "\N{NO-BREAK SPACE}"
INDEX = re.compile(r"\[[^\[\]]{,24}\]")


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text. A word that is longer than the width has a line of its own.

    >>> wrapped("The gradient with respect to weight[2, 17] is wrong.", 40)
    ['The gradient with respect to', 'weight[2, 17] is wrong.']
    """
    return [part for line in text.splitlines() for part in _broken(line, max(width, 1))] or [""]


def _broken(line: str, width: int) -> list[str]:
    glued = INDEX.sub(lambda index: index[0].replace(" ", GLUE), line)
    parts = textwrap.wrap(glued, width, break_long_words=False, break_on_hyphens=False)
    return [part.replace(GLUE, " ") for part in parts] or [""]
