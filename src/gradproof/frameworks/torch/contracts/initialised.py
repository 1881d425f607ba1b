"""Contract: results do not depend on what fresh memory held."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor

from gradproof._options import ContractName
from gradproof.frameworks.torch.contracts.allocations import EMPTY, Allocations
from gradproof.frameworks.torch.contracts.contract import KEPT, Context, Outcome, broken
from gradproof.frameworks.torch.contracts.fresh_calls import Circumstances, deviation, untested
from gradproof.frameworks.torch.contracts.memory_guards import FILLS, fresh_value
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

ADVICE = (
    "Write to every entry of what torch.empty and its like return, the last block's too, or allocate by torch.zeros "
    "where a kernel adds to memory or skips entries."
)


class Poisoned(Circumstances):
    """Fresh memory holds a known value: one of FILLS, or the number one."""

    name = "call with ones in fresh memory"

    def __init__(self, fill: int | None = None) -> None:
        self._fill = fill
        self.used = False

    @contextmanager
    def around(self, part: str) -> Iterator[None]:
        """Fill what the function allocates."""
        with Allocations(EMPTY, self._filled):
            yield

    def _filled(self, tensor: Tensor) -> Tensor:
        self.used = True
        return tensor.fill_(1 if self._fill is None else fresh_value(tensor, self._fill))


def initialised(subject: TorchSubject, context: Context) -> Outcome:
    """Fill fresh memory with NaN and with large numbers, and compare the results with those for ones."""
    if (note := untested(subject, ContractName.INITIALISED)) is not None:
        return note
    for number, words in enumerate(FILLS):
        poisoned = Poisoned(number)
        worst = deviation(subject, context, poisoned, usual=Poisoned())
        if worst is not None:
            return broken(
                ContractName.INITIALISED,
                f"The result depends on what fresh memory held: with {words} and not one in it {worst.words}.",
                argument=worst.argument,
                hint=ADVICE,
            )
        if not poisoned.used:
            break
    return KEPT
