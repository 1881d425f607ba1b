"""Contract: values and gradients do not depend on where in memory tensors begin."""

from __future__ import annotations

from torch import Tensor

from gradproof._options import ContractName
from gradproof.frameworks.torch.contracts.contract import KEPT, Context, Outcome, broken
from gradproof.frameworks.torch.contracts.fresh_calls import Circumstances, deviation, untested
from gradproof.frameworks.torch.contracts.memory_guards import guarded
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

ADVICE = (
    "A slice such as x[1:] begins in the middle of its storage, at an address that vector loads of several entries do "
    "not take: use data_ptr() and not the storage's, and test the address before wide loads, or copy with clone()."
)


class Misaligned(Circumstances):
    """All tensors begin one entry after the beginning of their storage."""

    def copied(self, path: str, tensor: Tensor) -> Tensor:
        """Return a copy of a tensor at a storage offset of one."""
        return guarded(tensor, 0, before=1, after=0)[0]


def alignment(subject: TorchSubject, context: Context) -> Outcome:
    """Let all inputs and incoming gradients begin one entry later in memory, and compare the results."""
    if (note := untested(subject, ContractName.ALIGNMENT)) is not None:
        return note
    worst = deviation(subject, context, Misaligned())
    if worst is None:
        return KEPT
    message = f"For tensors with a storage offset of one entry {worst.words}"
    if worst.refused:  # a function may ask for aligned inputs, as long as it says so
        return Outcome(notes=(f"Contract '{ContractName.ALIGNMENT}': {message}.",))
    return broken(ContractName.ALIGNMENT, f"{message}.", argument=worst.argument, hint=ADVICE)
