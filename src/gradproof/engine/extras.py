"""Extras of a check, such as a diagnosis or a picture: one that raises is left out, and the verdict is not lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from gradproof.engine.subject import DerivativeError
from gradproof.errors import MemoryExhaustedError


@contextmanager
def extra(what: str, notes: list[str]) -> Iterator[None]:
    """Run code that the verdict does not depend on; if it raises, add a note.

    A derivative that raises is evidence, and is not caught.

    >>> notes = []
    >>> with extra("The picture", notes):
    ...     raise ValueError("It has no frame.")
    >>> notes
    ['The picture was left out, since it raised ValueError: It has no frame.']
    """
    try:
        yield
    except DerivativeError:
        raise
    except (Exception, MemoryExhaustedError) as error:
        words = str(error.__cause__ if isinstance(error, MemoryExhaustedError) else error).strip()
        kind = "MemoryError" if isinstance(error, MemoryExhaustedError) else type(error).__name__
        first = f": {words.splitlines()[0]}" if words else "."
        notes.append(f"{what} was left out, since it raised {kind}{first}")
