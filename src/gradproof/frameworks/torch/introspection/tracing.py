"""Record the inputs that the parts of a function receive while it runs: its modules and its autograd Functions.

Hooks and wrappers are installed for one call and removed afterwards, also if the call raises.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from gradproof.frameworks.torch import trees
from gradproof.frameworks.torch.exclusion import Exclusion
from gradproof.frameworks.torch.introspection.reach import reach_of

KEPT_ENTRIES = 1 << 24  # entries of tensors that are kept, all together
Kind = type[torch.autograd.Function]


@dataclass(slots=True)
class Received:
    """One call of a part: its name, its inputs, and the calls of other parts inside it."""

    name: str
    part: nn.Module | Kind
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    within: str
    depth: int
    inner: list[Received] = field(default_factory=list)

    @property
    def is_function(self) -> bool:
        """Whether the call is one of an autograd Function."""
        return not isinstance(self.part, nn.Module)

    @property
    def required(self) -> bool:
        """Whether any tensor that the call received, or owns, requires grad."""
        given = (leaf for _, leaf in trees.leaves((self.args, self.kwargs), ""))
        owned = self.part.parameters() if isinstance(self.part, nn.Module) else ()
        return any(isinstance(each, Tensor) and each.requires_grad for each in (*given, *owned))


class Trace:
    """A context that records the calls of parts, in order."""

    def __init__(self, modules: dict[nn.Module, str], kinds: Sequence[Kind]) -> None:
        self.calls: list[Received] = []
        self._modules, self._kinds, self._stack = modules, kinds, ExitStack()
        self._open: list[Received] = []
        self._left = KEPT_ENTRIES

    def __enter__(self) -> Trace:
        try:
            for module in self._modules:
                before = module.register_forward_pre_hook(self._entered, prepend=True, with_kwargs=True)
                self._stack.callback(before.remove)
                after = module.register_forward_hook(self._left_module, always_call=True)
                self._stack.callback(after.remove)
            self._stack.enter_context(Exclusion(self._kinds))  # which other modules may apply too
            for kind in self._kinds:
                self._stack.enter_context(_wrapped(kind, functools.partial(self._applied, kind)))
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _entered(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        name = self._modules[module]
        self._open.append(self._record(name, module, args, kwargs))

    def _left_module(self, module: nn.Module, *_: object) -> None:
        while self._open and self._open.pop().part is not module:
            pass  # a call that raised and was caught

    def _applied(self, kind: Kind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._record(kind.__name__, kind, args, kwargs)

    def _record(self, name: str, part: nn.Module | Kind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Received:
        outer = self._open[-1] if self._open else None
        within = f"{outer.name} ({type(outer.part).__name__})" if outer else ""
        call = Received(name, part, (), {}, within, len(self._open))
        if self._open:
            self._open[-1].inner.append(call)
        size = sum(leaf.numel() for _, leaf in trees.leaves((args, kwargs), "") if isinstance(leaf, Tensor))
        if size <= self._left:
            self._left -= size
            call.args, call.kwargs = trees.rebuild(tuple(args), _kept), trees.rebuild(dict(kwargs), _kept)
            self.calls.append(call)
        return call


def modules_of(function: Any) -> dict[nn.Module, str]:
    """Return the modules inside a module, or those that a function can reach, each with its name."""
    return {module: path for path, module in reach_of(function).modules.items() if module is not function}


def _kept(leaf: Any) -> Any:
    """Return a copy of a tensor, since the function may write to it later."""
    if not isinstance(leaf, Tensor):
        return leaf
    return leaf.detach().clone().requires_grad_(leaf.requires_grad)


@contextmanager
def _wrapped(kind: Kind, record: Callable[[tuple[Any, ...], dict[str, Any]], None]) -> Iterator[None]:
    """Record the inputs of a Function's forward while the context is open; torch looks the forward up at every call."""
    own = "forward" in vars(kind)
    descriptor, forward = vars(kind).get("forward"), kind.forward
    takes_context = kind.setup_context is torch.autograd.Function.setup_context

    @functools.wraps(forward)
    def recording(*args: Any, **kwargs: Any) -> Any:
        record(args[1:] if takes_context else args, kwargs)
        return forward(*args, **kwargs)

    kind.forward = staticmethod(recording)  # type: ignore[method-assign]  # put back below
    try:
        yield
    finally:
        if own:
            kind.forward = descriptor  # type: ignore[assignment, method-assign]  # as it was
        else:
            del kind.forward
