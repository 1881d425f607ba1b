"""Let one thread at a time use some objects: checks of one module wait for each other, others run in parallel."""

from __future__ import annotations

import itertools
import threading
import warnings
import weakref
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

PROCESS = object()  # stands for what all threads share: global generators, the level of dual numbers, warning filters
DUAL_LEVEL = object()  # stands for that level alone, and is taken together with `PROCESS`
PATIENCE = 0.1  # seconds until another look at objects whose user may have ended without releasing them

_registry = threading.Lock()
_numbers = itertools.count()
_users: weakref.WeakValueDictionary[int, Exclusion] = weakref.WeakValueDictionary()


class Exclusion:
    """A context that waits until no other thread uses any of some objects. The same thread may enter several.

    All objects are taken at once, so that two threads never wait for each other's. If an interrupt leaves an exclusion
    behind, it ends with its object, or with the exclusion that it was entered in.
    """

    def __init__(self, objects: Iterable[Any]) -> None:
        self._objects = {id(each): each for each in objects}  # held, so that no id is given away
        self._thread, self._number = threading.get_ident(), next(_numbers)
        self._over = threading.Event()
        self._taken: list[int] = []

    def __enter__(self) -> None:
        try:
            while (other := self._taken_from()) is not None:
                other._over.wait(PATIENCE)
        except BaseException:
            self._leave()
            raise

    def __exit__(self, *_: object) -> None:
        self._leave()

    def leave_all_within(self) -> None:
        """Leave the exclusions of this thread that were entered after this one."""
        within = {id(user): user for user in list(_users.values()) if user._thread == self._thread}
        for user in within.values():
            if user._number > self._number:
                user._leave()

    @staticmethod
    def held_still() -> AbstractContextManager[Any]:
        """Return a context in which no thread enters or leaves an exclusion. It must be short, and enter none."""
        return _registry

    @staticmethod
    def of_another_thread(shared: object) -> bool:
        """Return True if another thread uses an object."""
        user = _users.get(id(shared))
        return user is not None and user._thread != threading.get_ident()

    def _taken_from(self) -> Exclusion | None:
        """Take all objects, and return None; or return one that another thread uses."""
        with _registry:
            users = {key: user for key in self._objects if (user := _users.get(key)) is not None}
            for user in users.values():
                if user._thread != self._thread:
                    return user
            self._taken = [key for key in self._objects if key not in users]
            _users.update(dict.fromkeys(self._taken, self))
        return None

    def _leave(self) -> None:
        with _registry:
            for key in self._taken:
                if _users.get(key) is self:
                    del _users[key]
        self._over.set()


@contextmanager
def without_warnings(category: type[Warning] = Warning) -> Iterator[None]:
    """Suppress warnings, whose filters belong to all threads: one at a time replaces them and puts them back."""
    with Exclusion([PROCESS]), warnings.catch_warnings():
        warnings.simplefilter("ignore", category)
        yield
