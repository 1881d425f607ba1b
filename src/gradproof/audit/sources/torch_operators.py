"""Cases of torch's operator database: every operator, dtype, layout, sample, order and mode that it says works."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any, NamedTuple

from gradproof.audit.case import Case, Skip
from gradproof.audit.sources.databases import database, sampling

DTYPES = ("float64", "complex128", "float32", "bfloat16")
LAYOUTS = ("strided", "sparse_coo", "sparse_csr", "sparse_csc", "sparse_bsr", "sparse_bsc")


class _Derivative(NamedTuple):
    order: int
    modes: tuple[str, ...]


def cases() -> Iterator[Case]:
    """Return the cases, one operator after the other; samples are counted here and made in the workers."""
    for key, operator in _operators().items():
        for dtype in DTYPES:
            if operator.supports_autograd and _dtype(dtype) in operator.supported_backward_dtypes("cpu"):
                for layout in LAYOUTS:
                    yield from _cases(key, operator, dtype, layout)


def subject(key: str, dtype: str, layout: str, number: int) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return a sample of an operator as a function and its inputs.

    >>> function, inputs = subject("mul", "float64", "strided", 0)
    >>> function(*inputs).shape == inputs[0].shape
    True
    """
    import torch

    operator = _operators()[key]
    with sampling():
        sample = next(each for place, each in enumerate(_samples(operator, dtype, layout)) if place == number)
    listed = isinstance(sample.input, (list, tuple))
    first = tuple(sample.input) if listed else (sample.input,)
    inputs = first + tuple(sample.args) + tuple(sample.kwargs.values())
    tensors = [value for value in inputs if isinstance(value, torch.Tensor)]
    if not any(tensor.requires_grad for tensor in tensors):
        if layout == "strided" or not isinstance(sample.input, torch.Tensor):
            raise Skip("no input of this sample requires grad")
        sample.input.requires_grad_()  # what the database converts to a sparse layout has lost it
    if layout == "strided" and any(tensor.layout != torch.strided for tensor in tensors):
        raise Skip("an input of this sample is sparse")

    def function(*values: Any) -> Any:
        head: tuple[Any, ...] = (list(values[: len(first)]),) if listed else (values[0],)
        args = values[len(first) : len(first) + len(sample.args)]
        kwargs = dict(zip(sample.kwargs, values[len(first) + len(sample.args) :], strict=True))
        return sample.output_process_fn_grad(operator.gradcheck_wrapper(operator.get_op(), *head, *args, **kwargs))

    function.__name__ = key
    return function, inputs


@cache
def _operators() -> dict[str, Any]:
    database_of = database("common_methods_invocations").op_db
    return {_key(operator): operator for operator in database_of}


def _key(operator: Any) -> str:
    return f"{operator.name}.{operator.variant_test_name}".rstrip(".")


def _dtype(name: str) -> Any:
    import torch

    return getattr(torch, name)


def _cases(key: str, operator: Any, dtype: str, layout: str) -> Iterator[Case]:
    for number in range(_count(operator, dtype, layout)):
        for order, modes in _derivatives(operator):
            mode = "+".join(modes)
            yield Case(
                f"{key}/{dtype}/{layout}/order {order}/{mode}/{number}",
                make=partial(subject, key, dtype, layout, number),
                options={
                    "order": order,
                    "modes": modes,
                    "masked": layout != "strided",
                    "contracts": (),
                    "nondet_tol": operator.gradcheck_nondet_tol,
                },
                tags=(f"op={key}", f"dtype={dtype}", f"layout={layout}", f"order={order}", f"mode={mode}"),
            )


def _derivatives(operator: Any) -> Iterator[_Derivative]:
    yield _Derivative(1, ("reverse",))
    if operator.supports_forward_ad:
        yield _Derivative(1, ("forward",))
    if operator.supports_gradgrad:
        yield _Derivative(2, ("reverse", "forward") if operator.supports_fwgrad_bwgrad else ("reverse",))


def _count(operator: Any, dtype: str, layout: str) -> int:
    """Return the number of samples; one where they cannot be made, so that its case tells why."""
    try:
        with sampling():
            return sum(1 for _ in _samples(operator, dtype, layout))
    except NotImplementedError:  # the database has no samples in this layout
        return 0
    except Exception:  # it is raised again in the worker, and recorded there
        return 1


def _samples(operator: Any, dtype: str, layout: str) -> Iterator[Any]:
    if layout == "strided":
        return iter(operator.sample_inputs("cpu", _dtype(dtype), requires_grad=True))
    if not operator.supports_sparse_layout(_dtype(layout)):
        return iter(())
    return iter(operator.sample_inputs_sparse(_dtype(layout), "cpu", _dtype(dtype), requires_grad=True))
