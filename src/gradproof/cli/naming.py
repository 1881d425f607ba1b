"""Resolve `MODULE:NAME` and `FILE.py:NAME` to Python objects."""

from __future__ import annotations

import difflib
import importlib
import importlib.metadata
import importlib.util
import re
import sys
import traceback
from pathlib import Path
from typing import Any

from gradproof.errors import InputError

OURS = Path(__file__).parents[1]  # the package, whose frames are not the user's


def resolve(text: str) -> Any:
    """Return the object that `module:name` or `file.py:name` names.

    >>> resolve("math:sin")(0.0)
    0.0
    """
    module_name, path = _split(text)
    found = _module(module_name)
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise InputError(f"{module_name} has no {path!r}. {_near(found, part)}") from None
    return found


def _split(text: str) -> tuple[str, str]:
    """Split a name into a module, or a file, and the path within it; `torch.relu` is `torch:relu`."""
    module, colon, path = text.rpartition(":")
    if not colon and "." in text and not text.endswith(".py"):
        module, path = text, ""
        while "." in module and not _exists(module):
            module, _, last = module.rpartition(".")
            path = f"{last}.{path}" if path else last
    if not module or not path:
        raise InputError(f"{text!r} names nothing: write MODULE:NAME or FILE.py:NAME, such as torch:sin.")
    return module, path


def _exists(module: str) -> bool:
    _look_here_last()
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # of a parent that is no package
        return False


def one_line(error: BaseException) -> str:
    """Describe an error of the user's code in one line: its type, its message, and where it was raised."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _ours(frame.filename)]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    try:
        text = str(error).splitlines()
    except Exception:  # the error's __str__ is the user's code too
        text = []
    return f"{type(error).__name__}: {text[0] if text else ''}".rstrip(": ") + where


def _ours(filename: str) -> bool:
    return Path(filename).is_relative_to(OURS) or filename.startswith("<frozen")


def _module(name: str) -> Any:
    _look_here_last()
    try:
        return _from_file(Path(name)) if name.endswith(".py") else _named(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(f"{missing}."):
            raise InputError(f"There is no module {missing!r} here. Is its folder on PYTHONPATH?") from None
        raise InputError(f"{name} could not be imported: {one_line(error)}.") from None
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"{name} could not be imported: {one_line(error)}.") from None


def _look_here_last() -> None:
    """Append the working directory to the import path, so that installed modules take precedence.

    A file called `torch.py` must not take the place of a dependency unless it is asked for.
    """
    here = str(Path.cwd())
    if "" not in sys.path and here not in sys.path:
        sys.path.append(here)


def _named(name: str) -> Any:
    """Import a module by its name; one of the working directory first, since it was asked for."""
    first, _, inside = name.partition(".")
    own = Path(f"{first}.py")
    if not inside and first not in sys.modules and not _is_needed(first) and own.is_file():
        return _from_file(own)
    return importlib.import_module(name)


def _is_needed(name: str) -> bool:
    """Return True for the name of gradproof or of something that it is built on."""
    required = importlib.metadata.requires("gradproof") or []
    return name in {"gradproof", *(re.split(r"[^\w]", each, maxsplit=1)[0] for each in required)}


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"There is no file {str(path)!r}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if sys.modules.get(path.stem) is module:
            del sys.modules[path.stem]
        raise
    return module


def _near(thing: Any, name: str) -> str:
    names = difflib.get_close_matches(name, [each for each in dir(thing) if not each.startswith("_")], n=3)
    return f"Did you mean {', '.join(map(repr, names))}?" if names else "Look for the name in its source."
