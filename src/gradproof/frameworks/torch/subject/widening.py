"""The same function in double precision: the reference by which a function in low precision is judged."""

from __future__ import annotations

import operator

import torch

from gradproof.engine.trust import distrusted_values
from gradproof.errors import MemoryExhaustedError
from gradproof.frameworks.torch.introspection.autograd_graph import custom_functions
from gradproof.frameworks.torch.passes import apart
from gradproof.frameworks.torch.subject.calling import LARGE_TENSOR
from gradproof.frameworks.torch.subject.error_messages import describe
from gradproof.frameworks.torch.subject.sizes import largest_of
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

OWN_PRECISION = (
    "Double precision cannot serve as a reference, since {why}: the function was judged in its own precision."
)


def widened(subject: TorchSubject) -> TorchSubject | None:
    """Return the same function in double precision; None if it does not run there, or has other values."""
    private = not (any(subject.caller.written) or subject.call.freed or custom_functions(subject.results))
    slots = [slot.widened(private=private) for slot in subject.slots]
    if all(map(operator.is_, slots, subject.slots)):  # the inputs have double precision, and the function casts them
        return None
    if subject.call.bypassed:
        return None
    try:
        wide = TorchSubject(subject.call, subject.varied, slots, subject.tally, subject.semantics, subject.caller.state)
        wide.graphs.way = subject.graphs.way
    except (Exception, MemoryExhaustedError) as error:
        subject.remark(OWN_PRECISION.format(why=f"it raises there ({describe(error)})"))
        return None
    finally:
        subject.caller.restore()
    if not wide.outputs.size or wide.outputs.size != subject.outputs.size:
        return None
    if wide.numbers.precision >= subject.numbers.precision:
        return None
    if why := distrusted_values(wide, subject, _distance(wide, subject)):
        subject.remark(OWN_PRECISION.format(why=why))
        return None
    return wide


def _distance(wide: TorchSubject, subject: TorchSubject) -> float:
    """Return the largest difference of the values of two subjects; not finite where a value is not."""
    if not (wide.outputs.strided and wide.outputs.size >= LARGE_TENSOR):
        return largest_of(wide.centre - subject.centre)
    pairs = zip(wide.outputs.read(wide.results), subject.outputs.read(subject.results), strict=True)
    far = [apart(one, other).to(wide.outputs.device) for one, other in pairs if one.numel()]
    return float(torch.stack(far).max())
