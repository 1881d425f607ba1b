"""Annotations on GitHub: commands that a workflow prints, and that become notes beside the lines of a change."""

from __future__ import annotations


def command(level: str, message: str, **properties: str | int) -> str:
    """Return the command for an annotation: an error, a warning or a notice.

    >>> command("error", "1/2 of the right one", file="ops.py", line=21, title="Half")
    '::error file=ops.py,line=21,title=Half::1/2 of the right one'
    """
    where = ",".join(f"{name}={_property(str(value))}" for name, value in properties.items())
    return f"::{level} {where}::{_escaped(message)}"


def _property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
