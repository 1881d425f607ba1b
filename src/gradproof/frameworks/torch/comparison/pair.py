"""A kernel and its reference at one point: which tensors each receives, and in which precision the reference runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from gradproof.errors import InputError, MismatchError
from gradproof.frameworks.torch import trees
from gradproof.frameworks.torch.comparison.implementation import (
    Evaluation,
    Implementation,
    converted,
    refuse_sparse,
)
from gradproof.frameworks.torch.storage import real_dtype
from gradproof.frameworks.torch.subject.arguments import Call, Selector, differentiable
from gradproof.frameworks.torch.subject.timing import Tally

PRECISE = (torch.float64, torch.float32)  # the precisions that a reference is evaluated in, the first that it accepts


class Pair:
    """Two implementations of one function.

    Both are given the same inputs. Parameters of modules are the same if they have the same name, and are the kernel's.
    """

    def __init__(
        self, function: Callable[..., Any], reference: Callable[..., Any], inputs: Any, wrt: Selector | None
    ) -> None:
        self.tally, self.notes = Tally(), list[str]()
        own, other = Call(function, inputs), Call(reference, inputs)
        for slot in (*own.slots, *other.slots):
            refuse_sparse(slot.path, slot.tensor)
        _refuse_devices(own)
        given = sum(isinstance(leaf, Tensor) for _, leaf in trees.leaves(inputs, "inputs"))
        named = {slot.path: number for number, slot in enumerate(own.slots[given:], given)}
        self._sources = [number if number < given else named.get(slot.path) for number, slot in enumerate(other.slots)]
        places = {source: number for number, source in enumerate(self._sources) if source is not None}
        required = any(slot.tensor.requires_grad and differentiable(slot.tensor) for slot in own.slots)
        chosen = own.select(wrt) if wrt is not None or required else []
        varied = [number for number in chosen if number in places]
        if not chosen:
            self.notes.append("No input requires grad, so the values alone were compared.")
        if missing := [own.slots[number].path for number in chosen if number not in places]:
            self.notes.append(
                f"{', '.join(missing[:8])}: {other.name} has no such parameter; its gradient was not compared."
            )
        self.kernel = Implementation(own, varied, self.tally)
        self.reference = Implementation(other, [places[number] for number in varied], self.tally)
        self.point = [slot.tensor.detach() for slot in own.slots]
        self.varied = {own.slots[number].path: own.slots[number].tensor.detach() for number in varied}
        self.results: dict[str, Tensor] = {}
        self._plain_raises = False

    @staticmethod
    def labels(tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
        """Return the path, dtype and shape of each tensor."""
        return tuple(
            f"{path}: {str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
            for path, tensor in tensors.items()
        )

    def begin(self) -> tuple[Evaluation, Evaluation]:
        """Call both at the given inputs, and raise an error if they cannot be compared."""
        kernel = self._called_kernel()
        self.reference.names = kernel.names
        self.results = {path: result.detach() for path, result in kernel.results.items()}
        dtypes = {
            real_dtype(tensor.dtype) for tensor in (*self.point, *self.results.values()) if differentiable(tensor)
        }
        self.unit = max(torch.finfo(dtype).eps / 2 for dtype in dtypes)
        self.lowered = torch.float32 if self.unit < torch.finfo(torch.float32).eps / 2 else None
        reference = self._precise_reference()
        self._refuse_mismatch(reference)
        if self.kernel.written:
            self.notes.append(f"{self.kernel.call.name} writes to {', '.join(sorted(self.kernel.written))}.")
        return kernel, reference

    def precisely(self, point: Sequence[Tensor]) -> Evaluation:
        """Call the reference at a point in the higher precision."""
        return self.reference.at(converted(self._given(point), self.wide))

    def rounded(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return tensors as the plain reference is given them: rounded, if the kernel is in double precision."""
        return list(tensors) if self.lowered is None else converted(tensors, self.lowered)

    def plainly(self, point: Sequence[Tensor]) -> Evaluation | None:
        """Call the reference in the kernel's own precision; return None if it raises there.

        Double precision has none above it. The reference is then called in single precision, and its error scaled.
        """
        if self._plain_raises:
            return None
        try:
            found = self.reference.at(self._given(point))
            if self.lowered is None:
                self._refuse_narrower(found)
        except InputError:
            raise
        except Exception as error:
            self.give_up_plain(type(error).__name__)
            return None
        return found

    def give_up_plain(self, raised: str) -> None:
        """Note that the reference or its backward raised in the kernel's precision, and do not call it there again."""
        self._plain_raises = True
        self.notes.append(
            f"{self.reference.call.name} raised {raised} in the kernel's precision: its error there is not known, and "
            "only conditioning and storage are allowed for."
        )

    def _given(self, point: Sequence[Tensor]) -> list[Tensor]:
        """Return the tensors of the reference: the kernel's, and its own parameters where the kernel has none."""
        slots = zip(self.reference.call.slots, self._sources, strict=True)
        return [slot.tensor.detach() if source is None else point[source] for slot, source in slots]

    def _called_kernel(self) -> Evaluation:
        try:
            return self.kernel.at(self.point)
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"{self.kernel.call.name} raised {type(error).__name__} at the given inputs: {error} Pass inputs "
                "that it accepts."
            ) from error

    def _precise_reference(self) -> Evaluation:
        """Return the reference at the point in double precision; in single, if it raises there and that is wider."""
        raised: list[Exception] = []
        name = self.reference.call.name
        for wide in PRECISE:
            if raised and torch.finfo(wide).eps / 2 >= self.unit:
                break
            self.wide = wide
            try:
                found = self.precisely(self.point)
            except InputError:
                raise
            except Exception as error:
                raised.append(error)
                continue
            if self.reference.written:
                raise InputError(
                    f"{name} writes to {', '.join(sorted(self.reference.written))}: a reference leaves its inputs "
                    "alone. Let it work on clones."
                )
            if raised:
                self.notes.append(f"{name} raised {type(raised[0]).__name__} in double precision; single was used.")
            return found
        raise InputError(
            f"{name} raised {type(raised[0]).__name__} in double precision: {raised[0]} A reference is evaluated in a "
            "higher precision than the kernel. Pass tensors that it captures as inputs, so that they are converted, "
            "and do not fix dtypes in it."
        ) from raised[0]

    def _refuse_mismatch(self, found: Evaluation) -> None:
        """Raise an error if the two return different numbers or shapes of tensors."""
        own, other = self.kernel.call.name, self.reference.call.name
        if list(found.results) != list(self.results):
            raise MismatchError(
                f"{own} returns {_counted(self.results)}, and {other} {_counted(found.results)}: both must return the "
                "same."
            )
        for path, result in self.results.items():
            exact = found.results[path]
            if exact.shape != result.shape:
                raise MismatchError(
                    f"{path} of {own} has shape {list(result.shape)}, and of {other} {list(exact.shape)}: both must be "
                    "alike."
                )
            if exact.is_complex() != result.is_complex():
                one, two = ("complex" if each.is_complex() else "real" for each in (result, exact))
                raise MismatchError(f"{path} of {own} is {one}, and of {other} {two}: both must be alike.")

    def _refuse_narrower(self, found: Evaluation) -> None:
        """Raise an error if the reference returns a dtype that is less precise than the kernel's."""
        for path, result in self.results.items():
            plain = found.results[path].dtype
            if torch.finfo(plain).eps > torch.finfo(result.dtype).eps:
                raise MismatchError(
                    f"{path} of {self.kernel.call.name} is {result.dtype}, and of {self.reference.call.name} {plain}, "
                    "which is less precise: a reference returns the same dtype or a wider one."
                )


def _counted(results: Mapping[str, Tensor]) -> str:
    return f"{len(results)} floating tensor{'s' * (len(results) > 1)} ({', '.join(results)})"


def _refuse_devices(call: Call) -> None:
    devices: dict[torch.device, str] = {}
    for slot in call.slots:
        if slot.tensor.dim() or differentiable(slot.tensor):
            devices.setdefault(slot.tensor.device, slot.path)
    if len(devices) > 1:
        listed = ", ".join(f"{path} on {device}" for device, path in devices.items())
        raise InputError(f"The inputs are on different devices ({listed}). Pass all of them on one.")
