"""What a contract is given, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from torch import Tensor

from gradproof.engine.results import Finding
from gradproof.frameworks.torch.storage import refilled
from gradproof.frameworks.torch.subject.calling import LARGE
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

SPREADING = 1 << 12  # sparse inputs from which on memory counts for more than a contract that small ones break as well


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """The terms on which a derivative is held to a contract.

    `dtypes`: also those that autograd casts, if asked. `apart`: values were held against one output at a time.
    """

    seed: int
    nondet_tol: float = 0.0
    dtypes: bool = True
    apart: bool = False
    _known: dict[str, Tensor] = field(default_factory=dict, repr=False, compare=False)

    def pulled(self, subject: TorchSubject) -> tuple[Tensor, Tensor]:
        """A random incoming gradient and the gradient for it, which all contracts share."""
        return self.cotangent(subject), self.gradient(subject)

    def cotangent(self, subject: TorchSubject) -> Tensor:
        """The incoming gradient; a large one is drawn again each time rather than held."""
        known = self._known.get("cotangent")
        if known is None:
            known = subject.cotangent(self.seed)
            if subject.outputs.size < LARGE:
                self._known["cotangent"] = known
        return known

    def incoming(self, subject: TorchSubject) -> list[Tensor]:
        """The same as tensors, each with memory of its own for its values."""
        pieces = subject.outputs.tensors(self.cotangent(subject))
        alone = len(pieces) == 1 and subject.outputs.size >= LARGE  # drawn for it
        return pieces if alone else [refilled(piece) for piece in pieces]

    def gradient(self, subject: TorchSubject) -> Tensor:
        """The gradient for it."""
        if "gradient" not in self._known:
            self._known["gradient"] = subject.pullback(self.cotangent(subject)).clone()  # a backward may reuse memory
        return self._known["gradient"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Whether a contract is kept: what is wrong, what to note, and which ability is absent where it cannot be asked."""

    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    absent: str = ""


KEPT = Outcome()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """A law that a derivative obeys whatever its values, and the mode of the derivatives that it is about.

    `spreads` says that asking takes several times the memory of a sparse tensor: of a large one it has to be asked for.
    """

    name: str
    mode: str
    holds: Callable[[TorchSubject, Terms], Outcome]
    spreads: bool = False

    def is_usual(self, subject: TorchSubject) -> bool:
        """Whether it is asked without being asked for."""
        return not self.spreads or subject.inputs.plain or subject.inputs.size < SPREADING


def broken(name: str, message: str, *, hint: str, argument: str | None = None) -> Outcome:
    """The outcome of a contract that is not kept."""
    return Outcome(findings=(Finding(kind=name, message=message, argument=argument, hint=hint),))
