"""Contracts as data: what a contract is given, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from torch import Tensor

from gradproof._options import ContractName
from gradproof.engine.results import Finding
from gradproof.frameworks.torch.storage import refilled
from gradproof.frameworks.torch.subject.calling import LARGE_TENSOR
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

T = TypeVar("T")
SPREADING = 1 << 12  # sparse inputs: from here on a contract that multiplies their memory must be asked for by name
SHOWN = 4  # tensors named in a message


@dataclass(frozen=True, slots=True, kw_only=True)
class Context:
    """What a contract is given beside the subject, and the gradient that all contracts share.

    `dtypes` includes dtypes that autograd casts, and `layouts` sparse gradients of strided inputs. `full` says that the
    check covers every entry of the Jacobian.
    """

    seed: int
    nondet_tol: float = 0.0
    dtypes: bool = True
    layouts: bool = False
    full: bool = False
    _known: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    def pulled(self, subject: TorchSubject) -> tuple[Tensor, Tensor]:
        """Return a random incoming gradient and the gradient for it, which all contracts share."""
        return self.cotangent(subject), self.gradient(subject)

    def once(self, name: str, compute: Callable[[], T]) -> T:
        """Return what `compute` returns; contracts that share a name share its result."""
        if name not in self._known:
            self._known[name] = compute()
        result: T = self._known[name]
        return result

    def cotangent(self, subject: TorchSubject) -> Tensor:
        """Return the random incoming gradient; a large one is drawn again each time, to save memory."""
        known: Tensor | None = self._known.get("cotangent")
        if known is None:
            known = subject.cotangent(self.seed)
            if subject.outputs.size < LARGE_TENSOR:
                self._known["cotangent"] = known
        return known

    def incoming(self, subject: TorchSubject) -> list[Tensor]:
        """Return the incoming gradient as tensors, each with values in memory of its own."""
        pieces = subject.outputs.tensors(self.cotangent(subject))
        alone = len(pieces) == 1 and subject.outputs.size >= LARGE_TENSOR  # drawn for it
        return pieces if alone else [refilled(piece) for piece in pieces]

    def gradient(self, subject: TorchSubject) -> Tensor:
        """Return the gradient for the random incoming gradient."""
        # a copy, since a backward may reuse memory
        return self.once("gradient", lambda: subject.pullback(self.cotangent(subject)).clone())


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of a contract: findings if it is broken, and notes.

    `absent` names a rule that the test needs and that does not exist, such as one for vmap.
    """

    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    absent: str = ""


KEPT = Outcome()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contract:
    """A law that derivatives of one mode obey whatever their values.

    `holds` tests it. `spreads` says that the test takes several times the memory of a sparse input: large sparse inputs
    are tested only if the contract is asked for by name.
    """

    name: ContractName
    mode: str
    holds: Callable[[TorchSubject, Context], Outcome]
    spreads: bool = False

    def is_usual(self, subject: TorchSubject) -> bool:
        """Return True if the contract is tested by default."""
        return not self.spreads or subject.inputs.strided or subject.inputs.size < SPREADING


def broken(kind: str, message: str, *, hint: str, argument: str | None = None) -> Outcome:
    """Return the outcome of a contract that is not kept; `kind` is its name."""
    return Outcome(findings=(Finding(kind=str(kind), message=message, argument=argument, hint=hint),))


def listed(paths: Sequence[str]) -> str:
    """Name some tensors in a message.

    >>> listed(["a", "b"]), listed("abcdef")
    ('a, b', 'a, b, c, d and 2 more')
    """
    more = f" and {len(paths) - SHOWN} more" if len(paths) > SHOWN else ""
    return f"{', '.join(paths[:SHOWN])}{more}"
