"""Save the caller's state that a check may change, and restore it.

Input tensors are not saved: a function receives copies of them. Everything else that a call can write to is: the
members, the buffers and the `.grad` of modules within reach, captured tensors, random generators, and torch's modes.
Arguments that are no tensors, such as a module or a generator, are within reach too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gradproof.errors import InputError
from gradproof.frameworks.torch import trees
from gradproof.frameworks.torch.exclusion import DUAL_LEVEL, PROCESS, Exclusion
from gradproof.frameworks.torch.internals import (
    accumulation_hooks,
    close_dual_level,
    close_levels,
    fake_mode_is_on,
    members_of,
    open_levels,
    set_version,
    version_of,
)
from gradproof.frameworks.torch.introspection.reach import Reach, reach_of
from gradproof.frameworks.torch.storage import same_in_each
from gradproof.frameworks.torch.subject.random_state import HeldGenerators

T = TypeVar("T")
COPIED = 1 << 24  # entries of parameters, captured tensors and gradients that are copied; buffers always are


def with_state_restored(function: Any, inputs: Any, body: Callable[[CallerState], T]) -> T:
    """Return what `body` returns, and restore the caller's state however it ends, also if an interrupt ends it.

    Meanwhile other threads wait that would use the same modules, parameters or generators in a check of theirs.
    """
    if fake_mode_is_on():
        raise InputError("A FakeTensorMode is on, in which nothing has numbers. Leave it before the check.")
    if torch.compiler.is_compiling():  # no part of a check is compiled; `disable` imports what most checks do not need
        found: T = torch.compiler.disable(_with_state_restored)(function, inputs, body)  # type: ignore[no-untyped-call]  # torch's own
        return found
    return _with_state_restored(function, inputs, body)


def _with_state_restored(function: Any, inputs: Any, body: Callable[[CallerState], T]) -> T:
    given = list(trees.leaves(inputs, "inputs"))
    tensors = [leaf for _, leaf in given if isinstance(leaf, Tensor)]
    reach = reach_of(function, [(path, leaf) for path, leaf in given if not isinstance(leaf, Tensor)])
    alone = Exclusion(_shared(reach, tensors))
    with alone:
        state = CallerState(reach)
        try:
            try:
                state.leave_out_accumulation_hooks(tensors)
                return body(state)
            finally:
                state.restore()
        except BaseException:
            alone.leave_all_within()
            state.restore(interrupted=True)  # again, since an interrupt may have arrived in the midst of it
            raise


def _shared(reach: Reach, inputs: Iterable[Tensor]) -> Iterator[Any]:
    """Yield the objects that a check changes for a while."""
    for module in reach.modules.values():
        yield module
        yield from module.parameters(recurse=False)
    yield from (tensor for tensor in reach.tensors.values() if tensor.requires_grad)
    yield from (tensor for tensor in inputs if isinstance(tensor, nn.Parameter))
    yield from reach.generators.values()


class CallerState:
    """The state of the caller's objects and of torch at the time of construction."""

    def __init__(self, reach: Reach) -> None:
        self.reach = reach
        with Exclusion([PROCESS]):
            self.generators = HeldGenerators(reach.generators.values())
        self._modes = Modes()
        places = [place for module in reach.modules.values() for place in members_of(module)]
        self._members = [(place, dict(place)) for place in places]
        self._attributes = [(vars(module), dict(vars(module))) for module in reach.modules.values()]
        self._tensors: list[_Held] = []
        self._gradients: list[tuple[Tensor, Tensor | None]] = []
        self._emptied: list[tuple[dict[int, Any], dict[int, Any]]] = []
        self.unhooked: frozenset[int] = frozenset()
        self._lent: dict[int, tuple[Tensor, Tensor, int]] = {}
        self._left = COPIED
        for module in reach.modules.values():
            for buffer in module.buffers(recurse=False):
                self._hold(buffer, copied=True)
        for tensor in self._leaves():
            self._hold(tensor, copied=self._fits(tensor))
            self.hold_gradient(tensor)

    def lend(self, tensor: Tensor) -> None:
        """Remember the memory of a tensor that is about to be given other memory."""
        self._lent.setdefault(id(tensor), (tensor, tensor.detach(), version_of(tensor)))

    def leave_out_accumulation_hooks(self, inputs: Iterable[Tensor]) -> None:
        """Leave out, until all is restored, the hooks that run once `.grad` is written: they may step an optimizer."""
        leaves = (*self._leaves(), *inputs)
        self._emptied = [(hooks, dict(hooks)) for leaf in leaves if (hooks := accumulation_hooks(leaf))]
        self.unhooked = frozenset(id(leaf) for leaf in leaves if accumulation_hooks(leaf))
        for hooks, _ in self._emptied:
            hooks.clear()

    def hold_gradient(self, leaf: Tensor) -> None:
        """Hold the `.grad` of a leaf."""
        gradient = leaf.grad if leaf.is_leaf else None
        self._gradients.append((leaf, gradient))
        if gradient is not None:
            self._hold(gradient, copied=self._fits(gradient))

    def restore(self, *, interrupted: bool = False) -> None:
        """Restore everything; nothing is lost if this is interrupted and done again."""
        self._modes.restore(interrupted=interrupted)
        for place, members in self._members:
            if list(place) != list(members) or any(place[name] is not member for name, member in members.items()):
                place.clear()
                place.update(members)
        for place, attributes in self._attributes:
            _rebind(place, attributes)
        for hooks, own in self._emptied:
            hooks.update(own)
        for tensor, memory, version in self._lent.values():
            tensor.data = memory
            set_version(tensor, version)
        for held in self._tensors:
            held.restore_flag()
        if copied := [(held.tensor, held.numbers) for held in self._tensors if held.numbers is not None]:
            _write_back(copied)
        for leaf, gradient in self._gradients:
            if leaf.is_leaf and leaf.grad is not gradient:
                leaf.grad = gradient
        with Exclusion([PROCESS]):
            if self.generators.moved():
                self.generators.restore()

    def _leaves(self) -> Iterator[Tensor]:
        yield from (each for module in self.reach.modules.values() for each in module.parameters(recurse=False))
        yield from self.reach.tensors.values()

    def _fits(self, tensor: Tensor) -> bool:
        """Return True if a copy of the tensor is within the bounds of memory, of which it then takes its part."""
        if is_lazy(tensor) or tensor.numel() > self._left:
            return False
        self._left -= tensor.numel()
        return True

    def _hold(self, tensor: Tensor, *, copied: bool) -> None:
        if not is_lazy(tensor) and not tensor.is_inference() and not tensor.is_meta:
            self._tensors.append(_Held(tensor, copied=copied))


def _rebind(place: dict[str, Any], attributes: dict[str, Any]) -> None:
    """Bind each name to the object that it had, and remove those that are new."""
    for name in place.keys() - attributes.keys():
        del place[name]
    for name, value in attributes.items():
        if name not in place or place[name] is not value:
            place[name] = value


class _Held:
    """A tensor that a call may write to. The values are compared, since some kernels write without a new version."""

    __slots__ = ("_required", "numbers", "tensor")

    def __init__(self, tensor: Tensor, *, copied: bool) -> None:
        self.tensor, self._required = tensor, tensor.requires_grad
        self.numbers = tensor.detach().clone() if copied else None

    def restore_flag(self) -> None:
        """Restore whether the tensor requires grad."""
        if self.tensor.is_leaf and self.tensor.requires_grad is not self._required:
            self.tensor.requires_grad_(self._required)


def _write_back(copied: Sequence[tuple[Tensor, Tensor]]) -> None:
    """Write copied numbers to the tensors that have others now."""
    same = same_in_each([numbers for _, numbers in copied], [tensor.detach() for tensor, _ in copied])
    with torch.no_grad():
        for (tensor, numbers), equal in zip(copied, same, strict=True):
            if not equal:
                tensor.copy_(numbers)


class Modes:
    """Torch's modes and defaults."""

    def __init__(self) -> None:
        self._grad = torch.is_grad_enabled()
        self._dtype = torch.get_default_dtype()
        self._threads = torch.get_num_threads()
        self._deterministic = torch.get_deterministic_debug_mode()
        self._levels = open_levels()

    def restore(self, *, interrupted: bool = False) -> None:
        """Restore those that have changed."""
        close_levels(self._levels)
        if interrupted and not self._levels[0]:
            with Exclusion([PROCESS, DUAL_LEVEL]):
                close_dual_level()
        if torch.is_grad_enabled() is not self._grad:
            torch.set_grad_enabled(self._grad)
        if torch.get_default_dtype() is not self._dtype:
            torch.set_default_dtype(self._dtype)
        if torch.get_num_threads() != self._threads:
            torch.set_num_threads(self._threads)
        if torch.get_deterministic_debug_mode() != self._deterministic:
            torch.set_deterministic_debug_mode(self._deterministic)
