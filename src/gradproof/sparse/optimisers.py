"""Any optimiser of torch's on sparse leaves.

An optimiser of a sparse leaf steps a strided parameter that is the leaf's stored values: the same memory, so that a
step on the one is a step on the other. Moments, weight decay, clipping and schedules follow by themselves.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer
from torch.utils.weak import WeakIdKeyDictionary

from gradproof.errors import InputError
from gradproof.frameworks.torch.layouts import stored_values
from gradproof.frameworks.torch.storage import is_sparse
from gradproof.sparse.arrivals import expect
from gradproof.sparse.layouts import require_sparse
from gradproof.sparse.steps import gradient_of, mark_as_written


def optimiser(kind: type[Optimizer], params: Iterable[Any], **options: Any) -> Optimizer:
    """An optimiser of the given kind for sparse and strided parameters alike.

    It is one of torch's: `isinstance`, `state_dict`, parameter groups, schedulers, closures and hooks work as ever. Its
    parameter groups hold, for each sparse leaf, the strided parameter that is its stored values.

    >>> import torch
    >>> a = torch.eye(3).to_sparse_csc().requires_grad_()
    >>> adam = optimiser(torch.optim.AdamW, [a], lr=0.1)
    >>> isinstance(adam, torch.optim.AdamW)
    True
    >>> from gradproof.sparse import entries
    >>> entries(a).sum().backward()
    >>> adam.step()
    >>> a.detach().values()
    tensor([0.8990, 0.8990, 0.8990])
    """
    if not (isinstance(kind, type) and issubclass(kind, Optimizer)):
        raise InputError(f"{kind!r} is no class of optimisers. Pass one such as torch.optim.AdamW, without calling it.")
    if issubclass(kind, torch.optim.SparseAdam):
        raise InputError(
            "SparseAdam is for strided parameters with sparse gradients. A sparse parameter has one value for each of "
            "its entries: pass torch.optim.Adam."
        )
    if isinstance(params, Tensor):
        raise InputError("The parameters are one tensor: pass a list of them, such as [weight].")
    chosen: Any = kind
    made: Optimizer = _on_stored_entries(chosen)(params, **options)
    return made


def values_parameter(leaf: Tensor) -> Parameter:
    """The stored values of a sparse leaf as a strided parameter: the same memory, the same one at every call.

    >>> import torch
    >>> a = torch.eye(2).to_sparse_csr().requires_grad_()
    >>> values_parameter(a) is values_parameter(a)
    True
    """
    require_sparse(leaf, "the parameter")
    if not (leaf.is_leaf and leaf.requires_grad):
        raise InputError(
            f"A sparse tensor of shape {list(leaf.shape)} is no leaf that requires grad, so that it has no gradient to "
            "step along. Pass tensor.detach().requires_grad_()."
        )
    values = stored_values(leaf)
    known: Parameter | None = _VALUES.get(leaf, None)
    if known is None or known.data_ptr() != values.data_ptr():
        known = Parameter(values)
        _VALUES[leaf] = known
    return known


class _StoredEntries:
    """What an optimiser needs beyond its own: sparse leaves behind some of its parameters."""

    leaves: dict[Parameter, Tensor]
    param_groups: list[dict[str, Any]]

    def __init__(self, params: Iterable[Any], **options: Any) -> None:
        self.leaves = {}
        super().__init__(params, **options)  # type: ignore[call-arg]  # of the optimiser that this is mixed into
        self.register_step_pre_hook(_before)  # type: ignore[attr-defined]  # likewise
        self.register_step_post_hook(_after)  # type: ignore[attr-defined]  # likewise

    def add_param_group(self, group: dict[str, Any]) -> None:
        """A group of parameters, of which the sparse ones are replaced by their values."""
        given = group["params"]
        params = [given] if isinstance(given, Tensor) else list(given)
        super().add_param_group({**group, "params": [self._replaced(param) for param in params]})  # type: ignore[misc]  # likewise

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients, those of sparse leaves too; with `set_to_none=False` they become stored zeros."""
        for values, leaf in self.leaves.items():
            if set_to_none:
                leaf.grad = None
            elif leaf.grad is not None:
                (stored_values(leaf.grad) if is_sparse(leaf.grad) else leaf.grad).zero_()
            values.grad = None
        super().zero_grad(set_to_none)  # type: ignore[misc]  # likewise

    def _replaced(self, param: Any) -> Any:
        if isinstance(param, tuple):
            name, tensor = param
            return name, self._replaced(tensor)
        if not isinstance(param, Tensor) or not is_sparse(param):
            return param
        values = values_parameter(param)
        self.leaves[values] = param
        _watch(param, values)
        return values

    def fetch(self) -> None:
        """Give each leaf's gradient to its values."""
        for values, leaf in self.leaves.items():
            values.grad = None if leaf.grad is None else gradient_of(leaf, leaf.grad, on_mismatch="error")


def _watch(leaf: Tensor, values: Parameter) -> None:
    """After every backward the values have the leaf's gradient: what looks at gradients between may look at theirs."""
    if leaf in _WATCHED:
        return
    expect(leaf)
    behind = weakref.ref(values)

    def hand_over(leaf: Tensor) -> None:
        parameter = behind()
        if parameter is not None and leaf.grad is not None and leaf.grad.layout is leaf.layout:
            parameter.grad = gradient_of(leaf, leaf.grad, on_mismatch="error")

    _WATCHED[leaf] = leaf.register_post_accumulate_grad_hook(hand_over)  # type: ignore[no-untyped-call]  # torch's own


def _before(optimiser: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Gradients to where they are looked for: now, and after each call of a closure."""
    optimiser.fetch()
    return tuple(_fetching(optimiser, arg) for arg in args), {k: _fetching(optimiser, arg) for k, arg in kwargs.items()}


def _fetching(optimiser: Any, closure: Any) -> Any:
    if not callable(closure):
        return closure

    @functools.wraps(closure)
    def fetched() -> Any:
        loss = closure()
        optimiser.fetch()
        return loss

    return fetched


def _after(optimiser: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    for leaf in optimiser.leaves.values():
        mark_as_written(leaf)


@functools.cache
def _on_stored_entries(kind: Any) -> Callable[..., Optimizer]:
    return type(kind.__name__, (_StoredEntries, kind), {"__doc__": kind.__doc__, "__module__": kind.__module__})


_VALUES: Any = WeakIdKeyDictionary()
_WATCHED: Any = WeakIdKeyDictionary()
