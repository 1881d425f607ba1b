"""Contract: nothing outside of inputs, incoming gradients and allocated tensors is read into results, or written to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from gradproof._options import ContractName
from gradproof.frameworks.torch.contracts.allocations import EMPTY, FILLED, Allocations
from gradproof.frameworks.torch.contracts.contract import KEPT, Context, Outcome, broken
from gradproof.frameworks.torch.contracts.fresh_calls import Circumstances, Deviation, deviation, untested
from gradproof.frameworks.torch.contracts.memory_guards import FILLS, Guard, fresh_value, guarded
from gradproof.frameworks.torch.storage import memory_of, refilled
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

MARGIN = 1 << 12  # entries on either side: more than the block of a usual kernel, and a multiple of every alignment
SUSPECTS = 32  # tensors that are tried one at a time to name the one that is read beyond its bounds
ALLOCATED = "a tensor that it allocates"
READING = (
    "Look for the mask of the last block, for a size or a stride that is taken for another, and for a kernel that "
    "starts at the storage and not at the tensor's storage_offset()."
)
WRITING = "Mask the stores of the last block, and compare the sizes that the kernel is launched with."


class Guarded(Circumstances):
    """All tensors of a call inside larger allocations, or one of them alone."""

    def __init__(self, fill: int, alone: str | None = None) -> None:
        self._fill, self._alone = fill, alone
        self._guards: list[tuple[str, Guard]] = []
        self.written: str | None = None

    def copied(self, path: str, tensor: Tensor) -> Tensor:
        """Return a copy of a tensor with margins around it."""
        if self._alone not in (None, path):
            return refilled(tensor)
        copy, guards = guarded(tensor, self._fill, before=MARGIN, after=MARGIN)
        self._guards += [(path, guard) for guard in guards]
        return copy

    @contextmanager
    def around(self, part: str) -> Iterator[None]:
        """Put margins around what the function allocates, and look at all margins afterwards."""
        allocated = self._alone in (None, ALLOCATED)
        with Allocations(EMPTY | FILLED if allocated else frozenset(), self._allocated) as mode:
            yield
        kept = [(name, guard) for name, guard in self._guards if memory_of([guard.tensor]).isdisjoint(mode.resized)]
        self._guards = kept
        if self.written is None:
            places = ((name, guard.written()) for name, guard in kept)
            found = (f"The {part} writes outside of {name}: {where}." for name, where in places if where is not None)
            self.written = next(found, None)

    def _allocated(self, tensor: Tensor) -> Tensor:
        # nothing before it: a fresh tensor begins its storage, which as_strided may rely on
        guard = Guard(tensor, fresh_value(tensor, self._fill), before=0, after=MARGIN)
        self._guards.append((f"a tensor of shape {tuple(tensor.shape)} that it allocates", guard))
        return guard.tensor


def bounds(subject: TorchSubject, context: Context) -> Outcome:
    """Surround all tensors by NaN, then by large numbers; compare the results, and the surroundings."""
    if (note := untested(subject, ContractName.BOUNDS)) is not None:
        return note
    for fill in range(len(FILLS)):
        found = Guarded(fill)
        worst = deviation(subject, context, found)
        if found.written is not None:
            return broken(ContractName.BOUNDS, found.written, hint=WRITING)
        if worst is not None:
            return _read(subject, context, fill, worst)
    return KEPT


def _read(subject: TorchSubject, context: Context, fill: int, worst: Deviation) -> Outcome:
    """Return the finding, with the name of the tensor beyond whose bounds the function reads if one alone shows it."""
    incoming = [f"the incoming gradient of {part.path}" for part in subject.outputs.parts]
    suspects = [*(slot.path for slot in subject.slots), *incoming, ALLOCATED][:SUSPECTS]
    name = "its tensors"
    for suspect in suspects:
        alone = deviation(subject, context, Guarded(fill, suspect))
        if alone is not None:
            name, worst = suspect, alone
            break
    return broken(
        ContractName.BOUNDS,
        f"The function reads outside of {name}: with {FILLS[fill]} around it {worst.words}.",
        argument=worst.argument,
        hint=READING,
    )
