"""What a function and its arguments are called, from its signature or, for an operator of torch, from its schema."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache, partial
from itertools import takewhile
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType, NoneType
from typing import Any

from torch import nn
from torch.autograd import Function

from gradproof.frameworks.torch.internals import argument_names_of_operator

STATIC = (type, ModuleType, NoneType)  # what holds a builtin function that is no method of an object


def name_of(function: Callable[..., Any]) -> str:
    """Return the name of a function; that of its class for the `apply` of an autograd Function.

    >>> name_of(nn.functional.softplus), name_of(nn.Tanh()), name_of(partial(complex.conjugate))
    ('softplus', 'Tanh', 'conjugate')
    """
    if isinstance(function, partial):
        return name_of(function.func)
    owner = getattr(function, "__self__", None)
    if isinstance(owner, type) and hasattr(function, "__name__"):
        return owner.__name__ if function.__name__ == "apply" else f"{owner.__name__}.{function.__name__}"
    if not hasattr(function, "__code__"):
        known = getattr(function, "_qualname", type(function).__name__)  # of an operator made by torch.library
        return str(getattr(function, "__name__", known))
    return str(getattr(function, "__qualname__", function)).replace("<locals>.", "")


def argument_names(function: Callable[..., Any]) -> list[str]:
    """Return the names of the positional parameters, as far as they have any.

    >>> import torch
    >>> argument_names(lambda x, weight, *rest: x), argument_names(torch.mm), argument_names(nn.Linear(2, 2))
    (['x', 'weight'], ['input', 'mat2'], ['input'])
    >>> argument_names(partial(torch.softmax, dim=-1))
    ['input']
    """
    if isinstance(function, partial):
        names = argument_names(function.func)[len(function.args) :]
        return list(takewhile(lambda name: name not in function.keywords, names))
    if isinstance(function, BuiltinFunctionType) and isinstance(function.__self__, STATIC):
        return list(_names_of_builtin(function))
    return _names_of(function)


@cache
def _names_of_builtin(function: BuiltinFunctionType) -> tuple[str, ...]:
    """Return the same for a function that nobody changes."""
    return tuple(_names_of(function))


def _names_of(function: Callable[..., Any]) -> list[str]:
    try:
        named = _positional(_described(function))
    except (TypeError, ValueError, AttributeError):  # of a builtin, which has a schema if it is an operator
        return argument_names_of_operator(function)
    if _is_apply(function) and not _has_setup_context(function):
        named = named[1:]  # without ctx
    return named or argument_names_of_operator(function)


def _positional(function: Any) -> list[str]:
    """Return the names of the positional parameters of a function or a bound method."""
    plain = function.__func__ if isinstance(function, MethodType) else function
    if isinstance(plain, FunctionType) and not plain.__dict__ and plain.__code__.co_argcount:
        names = plain.__code__.co_varnames[: plain.__code__.co_argcount]  # a tenth of a signature's time
        return list(names if plain is function else names[1:])
    parameters = inspect.signature(function).parameters.values()
    return [each.name for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]


def _described(function: Any) -> Any:
    """Return the function whose signature has the arguments of another: a module's forward, or a Function's."""
    if _is_apply(function):
        return function.__self__.forward
    return function.forward if isinstance(function, nn.Module) else function


def _is_apply(function: Any) -> bool:
    owner = getattr(function, "__self__", None)
    return isinstance(owner, type) and issubclass(owner, Function) and function.__name__ == "apply"


def _has_setup_context(function: Any) -> bool:
    return function.__self__.setup_context is not Function.setup_context
