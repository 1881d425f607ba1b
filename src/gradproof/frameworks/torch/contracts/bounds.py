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

GUARD_ENTRIES = 1 << 12  # on either side: more than the block of a usual kernel, and a multiple of every alignment
SUSPECTS = 32  # tensors that are tried one at a time to name the one that is read beyond its bounds
READING = (
    "Look for the mask of the last block, for a size or a stride that is taken for another, and for a kernel that "
    "starts at the storage and not at the tensor's storage_offset()."
)
WRITING = "Mask the stores of the last block, and compare the sizes that the kernel is launched with."


class _Guarded(Circumstances):
    """Guards around tensors, and the first write to one of them in words."""

    def __init__(self, fill: int) -> None:
        self._fill = fill
        self._guards: list[tuple[str, Guard]] = []
        self.written: str | None = None

    def _look(self, part: str) -> None:
        """Look at all guards after the forward or the backward."""
        places = ((name, guard.written()) for name, guard in self._guards)
        found = (f"The {part} writes outside of {name}: {where}." for name, where in places if where is not None)
        self.written = self.written or next(found, None)


class GuardedTensors(_Guarded):
    """All inputs and incoming gradients inside larger allocations, or one of them alone."""

    def __init__(self, fill: int, alone: str | None = None) -> None:
        super().__init__(fill)
        self._alone = alone

    def copied(self, path: str, tensor: Tensor) -> Tensor:
        """Return a copy of a tensor with margins around it."""
        if self._alone not in (None, path):
            return refilled(tensor)
        copy, guards = guarded(tensor, self._fill, before=GUARD_ENTRIES, after=GUARD_ENTRIES)
        self._guards += [(path, guard) for guard in guards]
        return copy

    @contextmanager
    def around(self, part: str) -> Iterator[None]:
        """Look at the margins afterwards."""
        yield
        self._look(part)


class GuardedAllocations(_Guarded):
    """Everything that the function allocates inside larger allocations.

    These are circumstances of their own, since a function made by torch.compile runs uncompiled under them.
    """

    @contextmanager
    def around(self, part: str) -> Iterator[None]:
        """Put margins behind what is allocated, and look at them afterwards."""
        with Allocations(EMPTY | FILLED, self._allocated) as mode:
            yield
        grown = mode.resized
        self._guards = [(name, guard) for name, guard in self._guards if memory_of([guard.tensor]).isdisjoint(grown)]
        self._look(part)

    def _allocated(self, tensor: Tensor) -> Tensor:
        # nothing before it: a fresh tensor begins its storage, which as_strided may rely on
        guard = Guard(tensor, fresh_value(tensor, self._fill), before=0, after=GUARD_ENTRIES)
        self._guards.append((f"a tensor of shape {tuple(tensor.shape)} that it allocates", guard))
        return guard.tensor


def bounds(subject: TorchSubject, context: Context) -> Outcome:
    """Surround tensors by NaN, then by large numbers; compare the results, and the surroundings."""
    if (note := untested(subject, ContractName.BOUNDS)) is not None:
        return note
    trials: list[tuple[int, _Guarded]] = [(fill, GuardedTensors(fill)) for fill in range(len(FILLS))]
    for fill, circumstances in [*trials, (0, GuardedAllocations(0))]:
        worst = deviation(subject, context, circumstances)
        if circumstances.written is not None:
            return broken(ContractName.BOUNDS, circumstances.written, hint=WRITING)
        if worst is not None:
            name = "a tensor that it allocates"
            if isinstance(circumstances, GuardedTensors):
                name, worst = _alone(subject, context, fill) or ("its tensors", worst)
            return broken(
                ContractName.BOUNDS,
                f"The function reads outside of {name}: with {FILLS[fill]} around it {worst.words}.",
                argument=worst.argument,
                hint=READING,
            )
    return KEPT


def _alone(subject: TorchSubject, context: Context, fill: int) -> tuple[str, Deviation] | None:
    """Return the first tensor whose margins make a difference by themselves, with that difference."""
    incoming = [f"the incoming gradient of {part.path}" for part in subject.outputs.parts]
    for name in [*(slot.path for slot in subject.slots), *incoming][:SUSPECTS]:
        found = deviation(subject, context, GuardedTensors(fill, name))
        if found is not None:
            return name, found
    return None
