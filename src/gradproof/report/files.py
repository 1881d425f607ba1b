"""Write files whole or not at all, and say before a check whether that will be possible."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
from pathlib import Path


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file; if that fails at any moment, what was there before is still there.

    The text goes to a temporary file beside, which then takes the name. Characters that no encoding has, such as lone
    surrogates, are written as escapes.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_whole(Path(folder) / "report.html", "no tolerance")
    ...     (Path(folder) / "report.html").read_text()
    'no tolerance'
    """
    target, data = Path(os.path.realpath(path)), text.encode("utf-8", "backslashreplace")
    if target.exists() and not target.is_file():  # a device, such as /dev/stdout, has no content to lose
        target.write_bytes(data)
        return
    beside = target.with_name(f".{target.name[:100]}-{secrets.token_hex(8)}")
    try:
        with beside.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if target.exists():
            shutil.copymode(target, beside)
        beside.replace(target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def destination(name: str | os.PathLike[str]) -> Path:
    """Return where a report goes, whatever the working directory is later on; its folder is made.

    Raise `OSError` if no file can be written there.
    """
    path = Path(name).expanduser().absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder")
    if path.is_file() or not path.exists():
        with tempfile.TemporaryFile(dir=path.resolve().parent):
            pass
    return path
