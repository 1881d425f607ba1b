"""The private parts of torch that gradproof needs, each behind a function: the file to adapt to a release of torch."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, _efficientzerotensor, nn
from torch._C import _autograd, _functions, _functorch
from torch._C._functorch import is_functorch_wrapped_tensor
from torch._vmap_internals import _vmap
from torch.autograd import forward_ad
from torch.nn.modules._functions import BackwardHookFunction
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as dispatch_modes
from torch.utils._pytree import TreeSpec as TreeSpec
from torch.utils._pytree import tree_flatten as tree_flatten
from torch.utils._pytree import tree_unflatten as tree_unflatten

from gradproof.frameworks.torch.exclusion import DUAL_LEVEL, Exclusion


def version_of(tensor: Tensor) -> int:
    """Return how often autograd has seen a tensor being written to.

    >>> version_of(torch.zeros(2).add_(1))
    1
    """
    return tensor._version


def memory_number(tensor: Tensor) -> int:
    """Return a number that tensors share if they share memory, for as long as one of them lives.

    >>> tensor = torch.zeros(2)
    >>> memory_number(tensor) == memory_number(tensor[1:])
    True
    """
    return int(tensor.untyped_storage()._cdata)


def set_version(tensor: Tensor, version: int) -> None:
    """Set autograd's count of writes to a tensor, for one whose memory was restored.

    >>> tensor = torch.zeros(2)
    >>> set_version(tensor.add_(1), 0)
    >>> version_of(tensor)
    0
    """
    _autograd._unsafe_set_version_counter((tensor,), (version,))


def is_fake(tensor: Tensor) -> bool:
    """Return True for a tensor of a `FakeTensorMode`, which has a shape and no numbers."""
    module = sys.modules.get("torch._subclasses.fake_tensor")  # not loaded before there is one
    return module is not None and isinstance(tensor, module.FakeTensor)


def intercepts_operations(tensor: Tensor) -> bool:
    """Return True for a tensor of a class that handles every operation by itself, and refuses to show its numbers."""
    return type(tensor).__torch_dispatch__ is not Tensor.__torch_dispatch__


def fake_mode_is_on() -> bool:
    """Return True inside a `FakeTensorMode`, where operations compute shapes and no numbers."""
    module = sys.modules.get("torch._subclasses.fake_tensor")
    return module is not None and any(isinstance(mode, module.FakeTensorMode) for mode in dispatch_modes())


def has_gradient_hooks(tensor: Tensor) -> bool:
    """Return True if hooks change a tensor's gradient on its way to `.grad`, or there.

    >>> tensor = torch.zeros(2, requires_grad=True)
    >>> _ = tensor.register_hook(lambda gradient: 2 * gradient)
    >>> has_gradient_hooks(tensor)
    True
    """
    return bool(tensor._backward_hooks or accumulation_hooks(tensor))


def accumulation_hooks(tensor: Tensor) -> dict[int, Any]:
    """Return the hooks that run once `.grad` is written, as those of an optimizer that steps during the backward."""
    return tensor._post_accumulate_grad_hooks or {}


def dual_level_is_open() -> bool:
    """Return True inside a `forward_ad.dual_level`, unless another thread's check has opened it."""
    if forward_ad._current_level < 0:
        return False
    with Exclusion.held_still():  # else another thread's level may be seen, and its user be gone at the second look
        return forward_ad._current_level >= 0 and not Exclusion.of_another_thread(DUAL_LEVEL)


def is_zero_tensor(tensor: Tensor) -> bool:
    """Return True for a tensor of zeros that torch represents without memory."""
    return tensor._is_zerotensor()


def zero_tensor_like(tensor: Tensor) -> Tensor:
    """Return zeros that torch represents without memory, as it does for tangents that were never written."""
    return _efficientzerotensor(tensor.shape, dtype=tensor.dtype, device=tensor.device)


def function_class(node: Any) -> type[torch.autograd.Function] | None:
    """Return the autograd Function written in Python behind a node of the graph; None for torch's own nodes."""
    return getattr(type(node), "_forward_cls", None)


def calls_module_hooks(kind: type[torch.autograd.Function]) -> bool:
    """Return True for the Function by which torch calls the backward hooks of modules."""
    return kind is BackwardHookFunction


def gradient_metadata(node: Any, number: int) -> Any:
    """Return the shape, dtype and device that a node expects of one of its incoming gradients."""
    return node._input_metadata[number]


def without_gradient(result: Tensor) -> Tensor:
    """Return the result behind a node that passes on an undefined gradient for every incoming one."""
    passed: Tensor = _functions.UndefinedGrad()(result)  # type: ignore[assignment]  # one in, one out
    return passed


def is_transformed(tensor: Tensor) -> bool:
    """Return True for a tensor inside a transformation of `torch.func`, which has no numbers of its own."""
    return is_functorch_wrapped_tensor(tensor)


def batched_without_transforms(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a batched function by torch's older vmap, which takes Functions without `setup_context` too."""
    batched: Callable[..., Any] = _vmap(function)
    return batched


def mark_as_parameter(tensor: Tensor) -> None:
    """Make torch treat a tensor as an `nn.Parameter`, although its class is another."""
    tensor._is_param = True  # what isinstance of nn.Parameter looks at


def members_of(module: nn.Module) -> list[dict[str, Any]]:
    """Return the dicts in which a module keeps its own parameters, buffers and submodules; none for a compiled one."""
    return [place for place in (module._parameters, module._buffers, module._modules) if isinstance(place, dict)]


def open_levels() -> tuple[int, int]:
    """Return how many levels of dual numbers and of transformations of `torch.func` are open in this thread."""
    return int(dual_level_is_open()), _functorch.get_dynamic_layer_stack_depth()


def close_levels(wanted: tuple[int, int]) -> None:
    """Close the levels that were opened since there were as many as wanted."""
    duals, layers = wanted
    if dual_level_is_open() and not duals:
        close_dual_level()
    if _functorch.get_dynamic_layer_stack_depth() > layers:
        _functorch.pop_dynamic_layer_stack_and_undo_to_depth(layers)


def close_dual_level() -> None:
    """Close this thread's level of dual numbers, also where an interrupt has left it open in torch's core alone.

    Torch keeps the level in its core and in Python, one after the other. No other thread may have a level open.
    """
    with suppress(RuntimeError):  # none is open in the core
        torch._C._exit_dual_level(level=0)
    forward_ad._current_level = -1


def stall_stream(cycles: int) -> None:
    """Keep the current stream of the GPU busy for some cycles of its clock."""
    torch.cuda._sleep(cycles)  # type: ignore[no-untyped-call]  # torch's own


def argument_names_of_operator(function: Any) -> list[str]:
    """Return the names of the arguments of one of torch's operators, as its documentation has them; else none.

    >>> argument_names_of_operator(torch.linalg.norm), argument_names_of_operator(print)
    (['input', 'ord', 'dim', 'keepdim', 'dtype'], [])
    """
    schema = getattr(getattr(function, "_opoverload", function), "_schema", None)
    qualified = getattr(function, "_qualified_op_name", f"aten::{getattr(function, '__name__', '')}")
    known = [schema] if schema else torch._C._jit_get_schemas_for_operator(qualified)
    if not known or hasattr(function, "__code__"):
        return []
    return ["input" if argument.name == "self" else argument.name for argument in known[0].arguments]
