"""Any of torch's optimizers on sparse leaves.

The optimizer steps a strided parameter that shares the memory of the leaf's stored values, so a step on the one is a
step on the other. Moments, weight decay, clipping and schedules work as for any strided parameter.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import Optimizer

from gradproof.errors import InputError
from gradproof.sparse.optim.steps import gradient_of, mark_as_written
from gradproof.sparse.pattern import Pattern
from gradproof.sparse.pattern.layouts import is_sparse, require_sparse, stored_values
from gradproof.sparse.pattern.values import accumulator


def optimizer(kind: type[Optimizer], params: Iterable[Any], **options: Any) -> Optimizer:
    """Build an optimizer of the given kind for sparse and strided parameters alike.

    It is one of torch's: `isinstance`, `state_dict`, parameter groups, schedulers, closures and hooks work as usual.
    Its parameter groups hold, for each sparse leaf, the strided parameter that is its stored values.

    >>> import torch
    >>> a = torch.eye(3).to_sparse_csc().requires_grad_()
    >>> adam = optimizer(torch.optim.AdamW, [a], lr=0.1)
    >>> isinstance(adam, torch.optim.AdamW)
    True
    >>> from gradproof.sparse import unpack
    >>> unpack(a)[0].sum().backward()
    >>> adam.step()
    >>> a.detach().values()
    tensor([0.8990, 0.8990, 0.8990])
    """
    if not (isinstance(kind, type) and issubclass(kind, Optimizer)):
        raise InputError(f"{kind!r} is not an optimizer class. Pass one such as torch.optim.AdamW, without calling it.")
    if issubclass(kind, torch.optim.SparseAdam):
        raise InputError(
            "SparseAdam is for strided parameters with sparse gradients. A sparse parameter has one value for each of "
            "its entries: pass torch.optim.Adam."
        )
    if isinstance(params, Tensor) or not isinstance(params, Iterable):
        what = "one tensor" if isinstance(params, Tensor) else f"a {type(params).__name__}"
        raise InputError(f"The parameters are {what}: pass a list of them, such as [weight].")
    given = list(params)
    wrong = next((one for one in given if not isinstance(one, (Tensor, dict, tuple))), None)
    if wrong is not None or not given:
        what = "no parameters" if not given else f"a {type(wrong).__name__}"
        raise InputError(f"The list holds {what}: pass tensors, groups of them, or pairs of a name and a tensor.")
    chosen: Any = kind
    made: Optimizer = _on_stored_entries(chosen)(given, **options)
    return made


def values_parameter(leaf: Tensor) -> Parameter:
    """Return the stored values of a sparse leaf as a strided parameter: the same memory, the same object at every call.

    The parameter follows the leaf where a state is loaded, or the leaf is moved or converted.

    >>> import torch
    >>> a = torch.eye(2).to_sparse_csr().requires_grad_()
    >>> values_parameter(a) is values_parameter(a)
    True
    """
    require_sparse(leaf, "the parameter")
    if not (leaf.is_leaf and leaf.requires_grad):
        raise InputError(
            f"A sparse tensor of shape {list(leaf.shape)} is not a leaf that requires grad: it has no gradient to step "
            "along. Pass tensor.detach().requires_grad_()."
        )
    known = accumulator(leaf)
    with known.lock:
        if known.values is None:
            known.values = Parameter(stored_values(leaf))
        else:
            _follow(known.values, leaf)
        return known.values


def _follow(values: Parameter, leaf: Tensor) -> None:
    """Have the values share the memory of a leaf's stored values, which may be other memory than before."""
    stored = stored_values(leaf)
    if values.data_ptr() != stored.data_ptr() or values.shape != stored.shape or values.dtype != stored.dtype:
        values.grad = None
        values.data = stored


class _StoredEntries:
    """A mixin for optimizers, some of whose parameters are the values of sparse leaves."""

    leaves: dict[Parameter, Tensor]
    patterns: dict[Parameter, Pattern]  # of the leaves, at the last step
    param_groups: list[dict[str, Any]]
    state: dict[Parameter, Any]

    def __init__(self, params: Iterable[Any], **options: Any) -> None:
        self.leaves, self.patterns = {}, {}
        super().__init__(params, **options)  # type: ignore[call-arg]  # of the optimizer that this is mixed into
        self.register_step_pre_hook(_before)  # type: ignore[attr-defined]  # likewise
        self.register_step_post_hook(_after)  # type: ignore[attr-defined]  # likewise

    def add_param_group(self, group: dict[str, Any]) -> None:
        """Add a group of parameters, of which the sparse ones are replaced by their values."""
        given = group["params"]
        params = [given] if isinstance(given, Tensor) else list(given)
        super().add_param_group({**group, "params": [self._replaced(param) for param in params]})  # type: ignore[misc]  # likewise

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Reset the gradients, those of sparse leaves too; with `set_to_none=False` to stored zeros."""
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
        accumulator(param).on_gradient = _hand_over
        return values

    def fetch(self) -> None:
        """Copy each leaf's gradient to its values, wherever these are now."""
        for values, leaf in self.leaves.items():
            _follow(values, leaf)
            self._require_same_pattern(values, leaf)
            _convert(self.state[values], values)
            values.grad = None if leaf.grad is None else gradient_of(leaf, leaf.grad, on_mismatch="error")

    def _require_same_pattern(self, values: Parameter, leaf: Tensor) -> None:
        """Raise if something was learnt for the entries of another pattern."""
        pattern, known = Pattern.of(leaf), self.patterns.get(values)
        if self.state[values] and known is not None and pattern is not known and pattern != known:
            raise InputError(
                f"A sparse parameter has got another pattern, {pattern!r}, and this optimizer has learnt moments for "
                f"the entries of {known!r}. Build a new optimizer, or train a SparseLinear, whose pattern "
                "change_pattern_ changes together with what its optimizer has learnt."
            )
        self.patterns[values] = pattern

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Copy and pickle the leaves with what was learnt for them, so that copies of both belong together."""
        kind = next(kind for kind in type(self).__mro__[1:] if kind is not _StoredEntries)
        return _rebuilt, (kind,), self.__getstate__()

    def __getstate__(self) -> dict[str, Any]:
        state: Any = super().__getstate__()
        return {**state, "leaves": list(self.leaves.items()), "patterns": self.patterns}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Take what a copy or a loaded state brings; only a copy brings leaves."""
        super().__setstate__({name: state[name] for name in state if name != "leaves"})  # type: ignore[misc]  # likewise
        if "leaves" not in state:
            return
        self.leaves = dict(state["leaves"])
        for values, leaf in self.leaves.items():
            (leaf if leaf.is_leaf else leaf.detach_()).requires_grad_()  # torch forgets this when it unpickles them
            known = accumulator(leaf)
            known.values, known.on_gradient = values, _hand_over
            _follow(values, leaf)
        self.register_step_pre_hook(_before)  # type: ignore[attr-defined]  # likewise
        self.register_step_post_hook(_after)  # type: ignore[attr-defined]  # likewise


def _convert(state: dict[str, Any], values: Parameter) -> None:
    """Convert what an optimizer learnt for each value to the dtype and device that the values have now."""
    for name, learnt in state.items():
        if isinstance(learnt, Tensor) and learnt.shape == values.shape and learnt.ndim:
            state[name] = learnt.to(device=values.device, dtype=values.dtype)


def _rebuilt(kind: Any) -> Any:
    """Return an optimizer without its state, as unpickling begins."""
    chosen: Any = _on_stored_entries(kind)
    return chosen.__new__(chosen)


def _hand_over(leaf: Tensor) -> None:
    """Give the values the leaf's gradient after a backward, for what looks at gradients before the step."""
    values = accumulator(leaf).values
    if values is not None:
        _follow(values, leaf)
    if values is not None and leaf.grad is not None and leaf.grad.layout is leaf.layout:
        values.grad = gradient_of(leaf, leaf.grad, on_mismatch="error")


def _before(optimizer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Copy gradients to the values, now and after each call of a closure."""
    optimizer.fetch()
    return tuple(_fetching(optimizer, arg) for arg in args), {k: _fetching(optimizer, arg) for k, arg in kwargs.items()}


def _fetching(optimizer: Any, closure: Any) -> Any:
    if not callable(closure):
        return closure

    @functools.wraps(closure)
    def fetched() -> Any:
        loss = closure()
        optimizer.fetch()
        return loss

    return fetched


def _after(optimizer: Any, *_: Any) -> None:
    for leaf in optimizer.leaves.values():
        mark_as_written(leaf)


@functools.cache
def _on_stored_entries(kind: Any) -> Callable[..., Optimizer]:
    return type(kind.__name__, (_StoredEntries, kind), {"__doc__": kind.__doc__, "__module__": kind.__module__})
