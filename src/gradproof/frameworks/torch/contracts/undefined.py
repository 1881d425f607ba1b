"""Contract: a backward treats undefined incoming gradients as zeros."""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor

from gradproof._options import ContractName
from gradproof.engine.subject import DerivativeError
from gradproof.frameworks.torch.contracts.comparison import gap, gradient_gap
from gradproof.frameworks.torch.contracts.contract import KEPT, Context, Outcome, broken, listed
from gradproof.frameworks.torch.contracts.pullbacks import coordinates, gradients, left_out
from gradproof.frameworks.torch.contracts.undefined_sparse import raises_alike_for_empty_zeros
from gradproof.frameworks.torch.internals import without_gradient
from gradproof.frameworks.torch.storage import is_sparse
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject
from gradproof.sparse.pattern.layouts import BLOCKED

ADVICE = (
    "After ctx.set_materialize_grads(False) an output that was not used has None for its incoming gradient: treat it "
    "as zeros, and return None where all are."
)
SPARSE_ADVICE = "Without it, a sparse output has zeros that store nothing: read them where the output stores something."
EMPTY_ZEROS_NOTE = (
    "Contract 'undefined': a backward raises for a sparse incoming gradient that stores no entry, by which torch "
    "replaces one that is undefined."
)


def undefined(subject: TorchSubject, context: Context) -> Outcome:
    """Leave all incoming gradients undefined, then some, and compare with zeros in their place."""
    if subject.detached or any(result.layout in BLOCKED for result in subject.results):  # torch has no zeros of blocks
        return KEPT
    everything = range(len(subject.results))
    excused = KEPT
    for absent in (everything, *left_out(len(everything))):
        try:
            outcome = _as_zeros(subject, context, absent)
        except DerivativeError as error:
            outcome = _raised(subject, context, absent, error)
        if outcome.findings:
            return outcome
        excused = outcome if outcome.notes else excused
    return excused


def _raised(subject: TorchSubject, context: Context, absent: Collection[int], error: DerivativeError) -> Outcome:
    """Return the outcome of a backward that raises: a note if sparse zeros without entries are the cause."""
    if raises_alike_for_empty_zeros(
        subject,
        error,
        ordinary=lambda: _pulled(subject, context, ()),
        undefined=lambda: _pulled(subject, context, absent),
    ):
        return Outcome(notes=(EMPTY_ZEROS_NOTE,))
    hint = f"{ADVICE} {SPARSE_ADVICE}" if any(map(is_sparse, subject.results)) else ADVICE
    return broken(ContractName.UNDEFINED, f"With {_named(subject, absent)} the backward raised {error}", hint=hint)


def _as_zeros(subject: TorchSubject, context: Context, absent: Collection[int]) -> Outcome:
    """Compare the gradient for undefined incoming gradients with that for zeros in their place."""
    found = _pulled(subject, context, absent)
    if len(absent) == len(subject.results):
        nothing = _gradient_for_zeros(subject, found)
        worst = gap(nothing, found, precision=subject.numbers.precision, more=context.nondet_tol)
    else:
        zeroed = context.cotangent(subject).clone()
        for number in absent:
            start, stop = subject.outputs.spans[number]
            zeroed[start:stop] = 0.0
        worst = gradient_gap(subject, context, zeroed, subject.pullback(zeroed), found)
    if worst is None:
        return KEPT
    place = subject.inputs.locate(worst.coordinate)
    message = (
        f"With {_named(subject, absent)} the gradient with respect to {place.path} is not what zeros in their place "
        f"give ({worst} at {place})."
    )
    return broken(ContractName.UNDEFINED, message, argument=place.path, hint=ADVICE)


def _gradient_for_zeros(subject: TorchSubject, found: Tensor) -> Tensor:
    """Return zeros; NaN where the local derivative is not finite, so that zeros give NaN as well."""
    nothing = found.new_zeros(()).expand_as(found)
    if found.isfinite().all():
        return nothing
    given = subject.pullback(subject.cotangent(0).zero_())
    return torch.where(given.isfinite(), nothing, torch.nan)


def _pulled(subject: TorchSubject, context: Context, absent: Collection[int]) -> Tensor:
    own, leaves = subject.graphs.current()
    results = [without_gradient(result) if number in absent else result for number, result in enumerate(own)]
    return coordinates(subject, gradients(subject, context.incoming(subject), results=results, leaves=leaves))


def _named(subject: TorchSubject, absent: Collection[int]) -> str:
    return f"undefined incoming gradients for {listed([subject.caller.paths[number] for number in absent])}"
