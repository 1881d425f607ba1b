"""A function and its arguments: nested inputs, modules, and the selection of the tensors to check."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from gradproof.errors import InputError, NotCallableError
from gradproof.frameworks.torch import trees
from gradproof.frameworks.torch.internals import mark_as_parameter
from gradproof.frameworks.torch.introspection.signatures import argument_names, name_of

Selector = int | str | Sequence[int | str]
CLOSED = (torch.jit.ScriptModule, nn.DataParallel)  # modules whose parameters cannot be replaced for a call


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor that the function receives.

    `path` is its name in the user's words, `position` its place among the inputs, such as `inputs[0]['w']`. A `private`
    tensor is the check's own, and the function writes to none, so that it may be given without a copy.
    """

    path: str
    tensor: Tensor
    buffer: bool = False
    position: str = ""
    private: bool = False

    def widened(self, *, private: bool) -> Slot:
        """Return the slot in double precision."""
        wide = torch.complex128 if self.tensor.is_complex() else torch.float64
        if not differentiable(self.tensor) or self.tensor.dtype == wide:
            return self
        tensor = self.tensor.detach().to(wide).requires_grad_(self.tensor.requires_grad)
        return replace(self, tensor=tensor, private=private)


class Call:
    """How the function is called: `slots` are its tensors, in order, and `invoke` calls it with others in their place.

    A tuple or list of inputs is spread over the positional parameters. A dict is spread over keyword parameters where
    the function has parameters of those names, and is passed as it is otherwise. A tensor that only oneDNN can read is
    held as a strided one, and given to the function in its own form; a parameter is given as one, since a function may
    put it into a module.
    """

    result = "output"  # what the paths of results begin with
    nested = False  # whether the function itself pushes tangents forward
    bypassed: frozenset[int] = frozenset()  # slots that the function ignores, since it uses the caller's own tensors
    freed: frozenset[int] = frozenset()  # slots whose memory the function frees
    in_place = False  # whether a module uses its own parameters and buffers, and not the tensors in their slots

    def __init__(self, function: Callable[..., Any], inputs: Any) -> None:
        if not callable(function):
            raise NotCallableError(
                f"func is a {type(function).__name__}, which cannot be called. Pass the function to check."
            )
        self.function = function
        self.name = name_of(function)
        self.module = function if isinstance(function, nn.Module) and not isinstance(function, CLOSED) else None
        self._spread: Any = inputs
        self._by_name = isinstance(inputs, Mapping) and _accepts(function, inputs)
        if not isinstance(inputs, (tuple, list)) and not self._by_name:
            self._spread = (inputs,)
        leaves = (leaf for _, leaf in trees.leaves(self._spread, ""))
        plain = not any(isinstance(leaf, Tensor) and _is_special(leaf) for leaf in leaves)
        self._flat = not self._by_name and plain and trees.is_flat(self._spread, Tensor)
        self.slots = list(self._slots())

    def invoke(self, tensors: Sequence[Tensor]) -> Any:
        """Call the function with these tensors in the slots."""
        if self.freed:
            tensors = [tensor.clone() if k in self.freed else tensor for k, tensor in enumerate(tensors)]
        supply = iter(tensors)
        spread: Any
        if self._flat:
            spread = [next(supply) if isinstance(leaf, Tensor) else leaf for leaf in self._spread]
        else:
            spread = trees.rebuild(
                self._spread, lambda leaf: _like(leaf, next(supply)) if isinstance(leaf, Tensor) else leaf
            )
        positional, named = ((), spread) if self._by_name else (spread, {})
        if self.module is None or self.in_place:
            return self.function(*positional, **named)
        held = list(supply)
        own = {path: held[number] for path, number in self._places}
        return torch.func.functional_call(self.module, own, tuple(positional), named, tie_weights=False)

    def holding(self, tensors: Sequence[Tensor], what: Callable[[], Any]) -> Any:
        """Return what a function returns while a module holds these tensors: a backward may evaluate it again."""
        if self.module is None or self.in_place:
            return what()
        held = tensors[len(tensors) - self._own :]
        own = {f"module.{path}": held[number] for path, number in self._places}
        return torch.func.functional_call(_Holding(self.module), own, (what,), tie_weights=False)

    def with_own_parameters(self) -> Call:
        """Return the same call of a module that is not given other parameters and buffers, but uses its own."""
        twin = copy.copy(self)
        own = range(len(self.slots) - self._own, len(self.slots))
        twin.in_place, twin.bypassed = True, self.bypassed.union(own)
        return twin

    def select(self, wrt: Selector | None) -> list[int]:
        """Return the slots to check: those that `wrt` names, or every differentiable one that requires grad."""
        if wrt is not None:
            return self._chosen(wrt)
        chosen = [
            number for number, slot in enumerate(self.slots) if slot.tensor.requires_grad and self._checkable(slot)
        ]
        if not chosen:
            raise InputError(f"{self._inventory()} Call .requires_grad_() on what to check, or name it with wrt=.")
        return chosen

    @staticmethod
    def _checkable(slot: Slot) -> bool:
        return differentiable(slot.tensor) and not slot.buffer

    def _slots(self) -> Iterator[Slot]:
        members = self._spread.items() if self._by_name else enumerate(self._spread)
        names = self._argument_names()
        for key, member in members:
            place = f"inputs[{key!r}]"
            for (rest, leaf), position in zip(trees.leaves(member, ""), trees.positions(member, place), strict=True):
                if isinstance(leaf, Tensor):
                    yield Slot(names.get(key, place) + rest, _readable(leaf), position=position)
        self._own, self._places = 0, list[tuple[str, int]]()
        if self.module is not None:
            owned: list[tuple[str, Tensor, bool]] = [
                (name, tensor, False) for name, tensor in self.module.named_parameters()
            ]
            owned += [(name, tensor, True) for name, tensor in self.module.named_buffers()]
            self._own, self._places = len(owned), _places(self.module, [tensor for _, tensor, _ in owned])
            if lazy := [name for name, tensor, _ in owned if is_lazy(tensor)]:
                raise InputError(
                    f"{', '.join(lazy[:8])} of {self.name} have no size yet, as in a lazy module before its first "
                    "call. Call it once, then check it."
                )
            yield from (Slot(name, tensor, buffer) for name, tensor, buffer in owned)

    def _argument_names(self) -> dict[int | str, str]:
        """Return the names of the arguments by position or keyword, unless the module has a parameter of that name."""
        found = (
            {name: name for name in self._spread} if self._by_name else dict(enumerate(argument_names(self.function)))
        )
        if self.module is None:
            return found
        owned = {name for name, _ in chain(self.module.named_parameters(), self.module.named_buffers())}
        return {key: name for key, name in found.items() if name not in owned}

    def _chosen(self, wrt: Selector) -> list[int]:
        wanted: Sequence[int | str] = [wrt] if isinstance(wrt, (int, str)) else wrt
        if isinstance(wanted, (bytes, Mapping)) or not isinstance(wanted, Sequence) or not wanted:
            raise InputError(f"wrt={wrt!r} names no input. Pass a position, a name or a path, or several in a list.")
        names = [_aliases(slot) for slot in self.slots]
        for number in range(len(self.slots) - self._own, len(self.slots)):
            names[number] |= self._names_of(self.slots[number].tensor)
        chosen: list[int] = []
        for name in wanted:
            found = [number for number in range(len(self.slots)) if _means(name, names[number])]
            if not found:
                known = ", ".join(slot.path for slot in self.slots[:12]) or "no tensor"
                raise InputError(f"wrt={name!r} names no tensor among the inputs. There are: {known}.")
            if len(found) > 1:  # a container: its members that cannot be differentiated are left out
                meant = [number for number in found if self._checkable(self.slots[number])]
                found = meant or found
            chosen += [number for number in found if number not in chosen]
        for number in chosen:
            slot = self.slots[number]
            if not differentiable(slot.tensor):
                raise InputError(
                    f"{slot.path} has dtype {slot.tensor.dtype}: a derivative needs a floating-point or complex "
                    "input. Pass it as .double(), or leave it out of wrt=."
                )
        return sorted(chosen)

    def _names_of(self, tensor: Tensor) -> set[str]:
        """Return all names of a tensor in the module; a shared tensor has several."""
        assert self.module is not None
        parameters = self.module.named_parameters(remove_duplicate=False)
        buffers = self.module.named_buffers(remove_duplicate=False)
        return {name for name, other in chain(parameters, buffers) if other is tensor}

    def _inventory(self) -> str:
        if not self.slots:
            return "There is no tensor among the inputs, so there is nothing to differentiate with respect to."
        kinds = ", ".join(f"{slot.path}: {str(slot.tensor.dtype).removeprefix('torch.')}" for slot in self.slots[:8])
        return f"No floating-point or complex input requires grad ({kinds}), so there is nothing to check."


def differentiable(tensor: Tensor) -> bool:
    """Return True for a floating-point or complex tensor."""
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def tensors_in(inputs: Any) -> list[Tensor]:
    """Return the tensors among nested inputs."""
    return [leaf for _, leaf in trees.leaves(inputs, "") if isinstance(leaf, Tensor)]


def _is_opaque(tensor: Tensor) -> bool:
    """Return True if only oneDNN can read the tensor's memory."""
    return tensor.is_mkldnn


def _is_special(tensor: Tensor) -> bool:
    """Return True for a tensor that must reach the function in its own form: a parameter, or one of oneDNN's."""
    return _is_opaque(tensor) or isinstance(tensor, nn.Parameter)


def _places(module: nn.Module, owned: Sequence[Tensor]) -> list[tuple[str, int]]:
    """Return every place in a module that holds a tensor, once, with the tensor's number.

    One tensor may be held in several places, and one submodule may be reached by several paths.
    """
    numbers = {id(tensor): number for number, tensor in enumerate(owned)}
    return [
        (f"{path}.{name}" if path else name, numbers[id(tensor)])
        for path, part in module.named_modules()
        for name, tensor in (*part._parameters.items(), *part._buffers.items())
        if id(tensor) in numbers
    ]


def _readable(tensor: Tensor) -> Tensor:
    """Return the tensor, or a strided copy of one whose memory cannot be read."""
    return tensor.detach().to_dense().requires_grad_(tensor.requires_grad) if _is_opaque(tensor) else tensor


def _like(given: Tensor, tensor: Tensor) -> Tensor:
    """Convert a tensor, differentiably, to the form of the one that the caller gave."""
    if isinstance(given, nn.Parameter):
        mark_as_parameter(tensor)
    return tensor.to_mkldnn() if _is_opaque(given) else tensor


def _accepts(function: Callable[..., Any], named: Mapping[Any, Any]) -> bool:
    target = function.forward if isinstance(function, nn.Module) else function
    try:
        inspect.signature(target).bind(**named)
    except (TypeError, ValueError):
        return False
    return True


def _aliases(slot: Slot) -> frozenset[str]:
    """Return the names of a tensor: `weights['w']` by parameter, `inputs[1]['w']` by position, and `w` by key alone."""
    names = {slot.path, slot.position}
    last = slot.position.rsplit("[", 1)[-1].rstrip("]")
    if last[:1] in "'\"":
        names.add(last.strip("'\""))
    return frozenset(names)


def _means(wanted: int | str, names: frozenset[str]) -> bool:
    """Return True if an item of `wrt` names the tensor with these names, or a container that holds it."""
    if isinstance(wanted, bool) or not isinstance(wanted, (int, str)):
        raise InputError(f"wrt={wanted!r} is a {type(wanted).__name__}. Pass a position, a name or a path.")
    text = f"inputs[{wanted}]" if isinstance(wanted, int) else wanted.replace('"', "'")
    return any(name == text or name.startswith((f"{text}[", f"{text}.")) for name in names)


class _Holding(nn.Module):
    """A module that runs something in place of its own forward, while it holds other tensors."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, what: Callable[[], Any]) -> Any:
        return what()
