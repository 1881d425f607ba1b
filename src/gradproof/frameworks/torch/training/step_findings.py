"""Findings about a step that need no slope: changed patterns, entries that must not move, non-finite numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from gradproof.engine.results import Entry, Finding
from gradproof.frameworks.torch.subject.spaces import Space
from gradproof.frameworks.torch.training.parameters import Snapshot, same_entries, values_of

SHOWN = 5  # entries of a finding


def structure_findings(
    names: Sequence[str], before: Snapshot, after: Snapshot, allowed: Mapping[str, Tensor]
) -> Iterator[Finding]:
    """Report parameters that store other entries than before, and entries that moved outside an `allowed` mask."""
    for name, old, new in zip(names, before.tensors, after.tensors, strict=True):
        if not same_entries(old, new):
            yield Finding(
                kind="pattern",
                message=f"The step changed which entries {name} stores, or its shape.",
                argument=name,
                hint="A step writes to the stored values alone: use gradproof.sparse.optimizer or apply_gradient_.",
            )
        elif name in allowed:
            outside = ((new != old) & ~allowed[name]).nonzero()
            if outside.numel():
                yield Finding(
                    kind="unstored",
                    message=f"The step changed {outside.shape[0]} entries of {name} outside its pattern.",
                    argument=name,
                    entries=tuple(_moved_entry(old, new, tuple(index.tolist())) for index in outside[:SHOWN]),
                    hint="Mask the gradient, and mind weight decay and momentum, which move entries without one.",
                )


def _moved_entry(old: Tensor, new: Tensor, index: tuple[int, ...]) -> Entry:
    """Describe an entry that had to keep its value: `claimed` is the new value, `numerical` the old one."""
    return Entry(index=index, claimed=abs(complex(new[index])), numerical=abs(complex(old[index])), bar=0.0)


def finiteness_findings(loss: float, space: Space, gradient: Tensor, after: Snapshot) -> Iterator[Finding]:
    """Report a loss before the step, gradient entries, and parameters after the step that are not finite."""
    if not math.isfinite(loss):
        yield not_finite(f"The loss is {loss} before the step.")
    for part, tensor in zip(space.parts, after.tensors, strict=True):
        gradients = gradient[part.start : part.stop]
        for what, values in (
            (f"the gradient of {part.path}", gradients),
            (f"{part.path} after the step", values_of(tensor)),
        ):
            wrong = int((~torch.isfinite(values)).sum())
            if wrong:
                yield not_finite(f"{wrong} entries of {what} are not finite.")


def not_finite(message: str) -> Finding:
    """Return the finding of a number that is not finite."""
    return Finding(kind="non-finite", message=message)
