"""What an author of a backward writes in the place of the right derivative of one operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

from gradproof.frameworks.torch.rederivation.tape import Site

Change = Callable[[Site], Tensor | None]


@dataclass(frozen=True, slots=True)
class Mistake:
    """A changed derivative of one operation, and what it is called.

    `name` is for a step that all of the gradient passes through, and `partial` for one of a term alone. `also` are
    names that are as true. `text` says what is wrong with the step. `is_another` says that another tensor stands in the
    place of one, which is a factor only where the step's gradient reaches the input on one way.
    """

    name: str
    partial: str
    text: str
    change: Change
    also: tuple[str, ...] = ()
    is_another: bool = False


Family = Callable[[Site], Iterator[Mistake]]
