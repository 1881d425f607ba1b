"""Nested tuples, lists and dicts: their leaves, each with a path that a user can read."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any


@functools.lru_cache
def _is_mapping(kind: type) -> bool:
    return issubclass(kind, Mapping)


def leaves(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The leaves in order, each with its path.

    >>> list(leaves((1, {"w": [2, None]}), "inputs"))
    [('inputs[0]', 1), ("inputs[1]['w'][0]", 2), ("inputs[1]['w'][1]", None)]
    """
    if _is_mapping(tree.__class__):
        for key, value in tree.items():
            yield from leaves(value, f"{path}[{key!r}]")
    elif isinstance(tree, (tuple, list)):
        for position, value in enumerate(tree):
            yield from leaves(value, f"{path}[{position}]")
    else:
        yield path, tree


def is_flat(tree: tuple[Any, ...] | list[Any]) -> bool:
    """Whether every member is a leaf.

    >>> is_flat([1, None]), is_flat((1, [2]))
    (True, False)
    """
    return not any(isinstance(member, (tuple, list)) or _is_mapping(member.__class__) for member in tree)


def rebuild(tree: Any, leaf: Callable[[Any], Any]) -> Any:
    """The same nest with every leaf, in order, replaced.

    >>> rebuild((1, {"w": [2, 3]}), lambda x: 10 * x)
    (10, {'w': [20, 30]})
    """
    if _is_mapping(tree.__class__):
        items = {key: rebuild(value, leaf) for key, value in tree.items()}
        if type(tree) is dict or not isinstance(tree, MutableMapping):
            return items
        twin = copy.copy(tree)  # keeps what its kind holds besides its items, such as a default
        twin.update(items)
        return twin
    if isinstance(tree, (tuple, list)):
        members = [rebuild(value, leaf) for value in tree]
        return type(tree)(*members) if hasattr(tree, "_fields") else type(tree)(members)
    return leaf(tree)
