"""Nested tuples, lists, dicts and dataclasses: their leaves, each with a path such as `batch['image'][0]`."""

from __future__ import annotations

import copy
import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from gradproof.errors import InputError


@functools.lru_cache
def _is_mapping(kind: type) -> bool:
    return issubclass(kind, Mapping)


@functools.lru_cache
def _fields(kind: type) -> tuple[str, ...] | None:
    """Return the names of a dataclass's fields."""
    return tuple(field.name for field in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


@functools.lru_cache
def _members(kind: type) -> tuple[str, ...] | None:
    """Return the names of a named tuple's members, torch's own such as `torch.return_types.sort` included."""
    names = getattr(kind, "_fields", None) or (
        getattr(kind, "__match_args__", None) if hasattr(kind, "n_fields") else ()
    )
    return tuple(names) if names else None


def leaves(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the leaves in order, each with its path.

    >>> list(leaves((1, {"w": [2, None]}), "inputs"))
    [('inputs[0]', 1), ("inputs[1]['w'][0]", 2), ("inputs[1]['w'][1]", None)]
    """
    try:
        yield from _leaves(tree, path)
    except RecursionError:
        raise InputError(
            f"{path or 'A container'} contains itself, or is nested too deeply to be read. Pass its parts."
        ) from None


def _leaves(tree: Any, path: str) -> Iterator[tuple[str, Any]]:
    if _is_mapping(tree.__class__):
        for key, value in tree.items():
            yield from _leaves(value, f"{path}[{key!r}]")
    elif isinstance(tree, (tuple, list)):
        names = _members(tree.__class__)
        for position, value in enumerate(tree):
            yield from _leaves(value, f"{path}.{names[position]}" if names else f"{path}[{position}]")
    elif (names := _fields(tree.__class__)) is not None:
        for name in names:
            yield from _leaves(getattr(tree, name, None), f"{path}.{name}")
    else:
        yield path, tree


def positions(tree: Any, path: str) -> Iterator[str]:
    """Yield the paths of the leaves with the members of named tuples by position."""
    if isinstance(tree, (tuple, list)):
        for position, value in enumerate(tree):
            yield from positions(value, f"{path}[{position}]")
    else:
        yield from (place for place, _ in leaves(tree, path))


def is_flat(tree: tuple[Any, ...] | list[Any], kind: type) -> bool:
    """Return True if every leaf of a kind is a member itself, and every container a tuple, which never changes.

    >>> is_flat([1, None, (2, (3,))], int), is_flat((1, (2, 3)), str), is_flat((1, [2.0]), int)
    (False, True, False)
    """
    return all(not _is_container(member) or _is_constant(member, kind) for member in tree)


def _is_container(tree: Any) -> bool:
    known = tree.__class__
    return isinstance(tree, (tuple, list)) or _is_mapping(known) or _fields(known) is not None


def _is_constant(tree: Any, kind: type) -> bool:
    if isinstance(tree, tuple):
        return all(_is_constant(member, kind) for member in tree)
    return not isinstance(tree, kind) and not _is_container(tree)


def _row_like(tree: tuple[Any, ...] | list[Any], members: list[Any]) -> Any:
    """Return a tuple or list of the same kind with other members, also if its kind is made from other arguments."""
    if isinstance(tree, list):
        twin = copy.copy(tree)
        twin[:] = members
        return twin
    if hasattr(tree, "_fields"):
        return type(tree)(*members)
    try:
        return type(tree)(members)
    except TypeError:
        row = tuple.__new__(type(tree), members)
        vars(row).update(vars(tree))
        return row


def rebuild(tree: Any, leaf: Callable[[Any], Any]) -> Any:
    """Return the same nest with every leaf, in order, replaced.

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
        return _row_like(tree, members)
    if (names := _fields(tree.__class__)) is not None:
        twin = copy.copy(tree)
        for name in names:
            object.__setattr__(twin, name, rebuild(getattr(tree, name, None), leaf))
        return twin
    return leaf(tree)
