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
_users: dict[int, weakref.ref[Exclusion]] = {}  # of objects by their ids; one that has died uses nothing


class Exclusion:
    """A context that waits until no other thread uses any of some objects. The same thread may enter several.

    All objects are taken at once, so that two threads never wait for each other's. If an interrupt leaves an exclusion
    behind, it ends with its object, or with the exclusion that it was entered in.
    """

    __slots__ = ("__weakref__", "_number", "_objects", "_over", "_taken", "_thread")

    def __init__(self, objects: Iterable[Any]) -> None:
        self._objects = {id(each): each for each in objects}  # held, so that no id is given away
        self._thread, self._number = threading.get_ident(), next(_numbers)
        self._over: threading.Event | None = None  # made by the first thread that waits
        self._taken: list[int] = []

    def __enter__(self) -> None:
        try:
            while (other_is_over := self._take()) is not None:
                other_is_over.wait(PATIENCE)
        except BaseException:
            self._leave()
            raise

    def __exit__(self, *_: object) -> None:
        self._leave()

    def leave_all_within(self) -> None:
        """Leave the exclusions of this thread that were entered after this one."""
        users = {id(user): user for reference in list(_users.values()) if (user := reference()) is not None}
        for user in users.values():
            if user._thread == self._thread and user._number > self._number:
                user._leave()

    @staticmethod
    def held_still() -> AbstractContextManager[Any]:
        """Return a context in which no thread enters or leaves an exclusion. It must be short, and enter none."""
        return _registry

    @staticmethod
    def of_another_thread(shared: object) -> bool:
        """Return True if another thread uses an object."""
        user = _user_of(id(shared))
        return user is not None and user._thread != threading.get_ident()

    def _take(self) -> threading.Event | None:
        """Take all objects, and return None; or return what is set when another thread leaves one of them."""
        with _registry:
            free = []
            for key in self._objects:
                user = _user_of(key)
                if user is None:
                    free.append(key)
                elif user._thread != self._thread:
                    user._over = user._over or threading.Event()
                    return user._over
            self._taken, reference = free, weakref.ref(self)
            for key in free:
                _users[key] = reference
        return None

    def _leave(self) -> None:
        with _registry:
            for key in self._taken:
                if _user_of(key) is self:
                    del _users[key]
            over, self._over = self._over, None
        if over is not None:
            over.set()


def _user_of(key: int) -> Exclusion | None:
    reference = _users.get(key)
    return None if reference is None else reference()


@contextmanager
def without_warnings(category: type[Warning] = Warning) -> Iterator[None]:
    """Suppress warnings, whose filters belong to all threads: one at a time replaces them and puts them back."""
    with Exclusion([PROCESS]), warnings.catch_warnings():
        warnings.simplefilter("ignore", category)
        yield
