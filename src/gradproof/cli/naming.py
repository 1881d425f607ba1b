"""Resolve `MODULE:NAME` and `FILE.py:NAME` to Python objects."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
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
    module_name, _, path = text.rpartition(":")
    if not module_name or not path:
        raise InputError(f"{text!r} names nothing: write MODULE:NAME or FILE.py:NAME, such as torch:sin.")
    found = _module(module_name)
    for part in path.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise InputError(f"{module_name} has no {path!r}. {_near(found, part)}") from None
    return found


def one_line(error: BaseException) -> str:
    """Describe an error of the user's code in one line: its type, its message, and where it was raised."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if not _ours(frame.filename)]
    where = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    text = str(error).splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}".rstrip(": ") + where


def _ours(filename: str) -> bool:
    return Path(filename).is_relative_to(OURS) or filename.startswith("<frozen")


def _module(name: str) -> Any:
    if "" not in sys.path and (here := str(Path.cwd())) not in sys.path:
        sys.path.insert(0, here)  # as `python -m` does; a script has its own folder there instead
    try:
        return _from_file(Path(name)) if name.endswith(".py") else importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or name
        if name == missing or name.startswith(f"{missing}."):
            raise InputError(f"There is no module {missing!r} here. Is its folder on PYTHONPATH?") from None
        raise InputError(f"{name} could not be imported: {one_line(error)}.") from None
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"{name} could not be imported: {one_line(error)}.") from None


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise InputError(f"There is no file {str(path)!r}.")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
    return module


def _near(thing: Any, name: str) -> str:
    names = difflib.get_close_matches(name, [each for each in dir(thing) if not each.startswith("_")], n=3)
    return f"Did you mean {', '.join(map(repr, names))}?" if names else "Look for the name in its source."
