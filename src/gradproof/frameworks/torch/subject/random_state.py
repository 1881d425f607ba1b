"""Save and restore random generators, the global ones and a function's own, so that every evaluation draws the same.

The global generators belong to all threads. A thread is alone (`Exclusion`) while a call of its may have moved them,
and leaves them as they were.
"""

from __future__ import annotations

import ctypes
import pickle
import platform
import random
import struct
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

TWISTER = 2500  # bytes of a Mersenne twister: 624 words of key, and the position


class HeldGenerators:
    """The states of the global generators of Python, NumPy and torch, and of others, at the time of construction."""

    def __init__(self, others: Iterable[Any] = ()) -> None:
        self._others = [_OwnState(generator) for generator in others]
        self._torch = torch.get_rng_state()
        self._torch_bytes = _bytes(self._torch)
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]  # torch's own
        self._python = _PythonState.now()
        self._numpy = _NumpyState.now()
        self._python_moved = self._numpy_moved = False

    def moved(self) -> bool:
        """Return True if a number has been drawn since: a draw changes the position or the key of a generator."""
        self._python_moved |= self._python.moved()
        self._numpy_moved |= self._numpy is not None and self._numpy.moved()
        moved = self._python_moved or self._numpy_moved or self._moved_in_torch()
        return moved or any(other.moved() for other in self._others)

    def now(self) -> HeldGenerators:
        """Save the present states, with the record of which generators have been used."""
        other = HeldGenerators(each.generator for each in self._others)
        other._python_moved, other._numpy_moved = self._python_moved, self._numpy_moved
        return other

    def restore(self) -> None:
        """Restore every generator that has been used."""
        torch.set_rng_state(self._torch)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)
        if self._python_moved:
            self._python.restore()
        if self._numpy_moved and self._numpy is not None:
            self._numpy.restore()
        for other in self._others:
            other.restore()

    def _moved_in_torch(self) -> bool:
        if self._torch_bytes != _bytes(torch.get_rng_state()):
            return True
        if not self._cuda:
            return False
        return not all(map(torch.equal, self._cuda, torch.cuda.get_rng_state_all()))


def _bytes(state: torch.Tensor) -> bytes:
    """Return a state as bytes, which are fast to compare."""
    try:
        return state.numpy().tobytes()
    except RuntimeError:  # without NumPy
        return bytes(state.tolist())


@dataclass(frozen=True, slots=True)
class _PythonState:
    """The state of Python's global generator.

    `random.getstate` takes about 15 µs and is needed three times a check; reading the memory takes one.
    """

    twister: bytes | None
    gauss_next: float | None
    whole: Any = None

    @classmethod
    def now(cls) -> _PythonState:
        """Save the present state."""
        if not _MEMORY_IS_KNOWN:
            return cls(None, None, random.getstate())
        return cls(_MEMORY.raw, _PYTHON.gauss_next)

    def moved(self) -> bool:
        """Return True if a number has been drawn since."""
        if self.twister is None:
            return bool(self.whole != random.getstate())
        return bool(self.twister != _MEMORY.raw or self.gauss_next != _PYTHON.gauss_next)

    def restore(self) -> None:
        """Restore the state."""
        random.setstate(self.whole if self.twister is None else (3, _numbers(self.twister), self.gauss_next))


_PYTHON: Any = getattr(random, "_inst", None)
_HEADER: int = object.__basicsize__


def _twister_at(address: int) -> Any:
    """Return a view of a Mersenne twister in memory; its `raw` bytes are always current."""
    return (ctypes.c_char * TWISTER).from_address(address)


_MEMORY = _twister_at(id(_PYTHON) + _HEADER)


def _numbers(twister: bytes) -> tuple[int, ...]:
    """Return the key and the position as `random.setstate` takes them; in memory the position comes first."""
    position, *key = struct.unpack(f"{TWISTER // 4}I", twister)
    return (*key, position)


def _memory_is_known() -> bool:
    """Return True if the memory of Python's generator has the expected layout."""
    if platform.python_implementation() != "CPython" or type(_PYTHON) is not random.Random:
        return False
    if random.Random.__basicsize__ < _HEADER + TWISTER:
        return False
    return bool(_numbers(_MEMORY.raw) == random.getstate()[1])


_MEMORY_IS_KNOWN = _memory_is_known()


class _OwnState:
    """The state of a generator object: one of torch, NumPy or Python."""

    def __init__(self, generator: Any) -> None:
        self.generator = generator
        self._read, self._write = _access(generator)
        self._state = self._read()
        self._bytes = pickle.dumps(self._state)

    def moved(self) -> bool:
        """Return True if a number has been drawn since."""
        return pickle.dumps(self._read()) != self._bytes

    def restore(self) -> None:
        """Restore the state."""
        self._write(self._state)


def _access(generator: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
    """Return the functions that read and write the state of a generator object."""
    if isinstance(generator, torch.Generator):
        return lambda: _bytes(generator.get_state()), lambda state: generator.set_state(_tensor(state))
    if isinstance(generator, random.Random):
        return generator.getstate, generator.setstate
    if hasattr(generator, "get_state"):  # NumPy's RandomState
        return partial(generator.get_state, legacy=False), generator.set_state
    bits = generator.bit_generator
    return lambda: bits.state, partial(setattr, bits, "state")


def _tensor(state: bytes) -> torch.Tensor:
    return torch.tensor(list(state), dtype=torch.uint8, device="cpu")


class _NumpyState:
    """The state of NumPy's global generator.

    `get_state` takes about 70 µs, as long as a small function takes to evaluate. So the generator's memory is compared
    with its contents at the last call, which takes 1 µs.
    """

    _last: _NumpyState | None = None

    def __init__(self, module: Any) -> None:
        self._module, self._generator = module, module.get_bit_generator()
        known = type(self._generator).__name__ == "MT19937"
        self._memory = _twister_at(self._generator.ctypes.state_address) if known else None
        self._twister = self._memory.raw if self._memory else b""
        self._state = module.get_state()

    @classmethod
    def now(cls) -> _NumpyState | None:
        """Save the present state; None if NumPy has not been imported."""
        module = getattr(sys.modules.get("numpy"), "random", None)
        if module is None:
            return None
        if cls._last is None or cls._last.moved():
            cls._last = cls(module)
        return cls._last

    def moved(self) -> bool:
        """Return True if a number has been drawn since, if the generator was replaced, or if its kind is unknown."""
        if self._memory is None or self._module.get_bit_generator() is not self._generator:
            return True
        return bool(self._twister != self._memory.raw)

    def restore(self) -> None:
        """Restore the state."""
        self._module.set_state(self._state)
