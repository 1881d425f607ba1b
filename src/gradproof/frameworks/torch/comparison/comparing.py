"""Evaluate a kernel and its reference at several draws, and judge every value and every gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from gradproof.engine.reference.errors import ErrorStatistics, Format
from gradproof.engine.reference.findings import Compared, judged
from gradproof.engine.results import Finding, Obstacle, Reason
from gradproof.engine.subject import DerivativeError
from gradproof.engine.verdict import Judgement
from gradproof.errors import InputError
from gradproof.frameworks.torch.comparison.implementation import Evaluation
from gradproof.frameworks.torch.comparison.intermediates import ACCUMULATOR, MovedIntermediates
from gradproof.frameworks.torch.comparison.pair import Pair
from gradproof.frameworks.torch.comparison.perturbation import incoming_like, moved
from gradproof.frameworks.torch.storage import as_real, real_dtype

CONFIRMING = 28  # further draws before an entry is called wrong: the scatter of its errors is then known to an eighth
REPEATS = 6  # further calls of a kernel that does not repeat itself
FLUSHED = 2.0**-126  # kernels that compute in single precision may flush numbers below it to zero
SINGLE = torch.finfo(ACCUMULATOR).eps / 2
BESIDE = 2.0**0.5  # where nothing is more precise than the kernel, the exact numbers err as much as it does


@dataclass(frozen=True, slots=True)
class Draw:
    """A point and incoming gradients, which are the same for the kernel and for the reference."""

    point: Sequence[Tensor]
    incoming: Mapping[str, Tensor]


class Comparing:
    """The statistics of a pair of implementations, draw by draw."""

    def __init__(self, pair: Pair, seed: int) -> None:
        self.pair, self.seed = pair, seed
        self._results, self._gradients = dict[str, Tensor](), dict[str, Tensor]()
        self._statistics: dict[str, ErrorStatistics] = {}
        self._moves = 0

    def judgement(self, draws: int) -> Judgement:
        """Evaluate both at the point and at points beside it, and judge the kernel."""
        kernel, reference = self.pair.begin()
        self._results = self.pair.results
        self.device = next(iter(self._results.values())).device
        obstacle, connected = self._connection(reference)
        self._origin = Draw(self.pair.point, self._incoming(connected))
        self._gradients = self.pair.varied if connected else {}
        exact = self._read_reference(reference)
        if random := self._unrepeated(exact):
            return Judgement(obstacle=random, notes=tuple(self.pair.notes))
        self._statistics = {
            path: ErrorStatistics(torch, exact[path], form_of(tensor), unit=self.pair.unit)
            for path, tensor in (self._results | self._gradients).items()
        }
        try:
            first = self._read(kernel, self._origin)
        except DerivativeError as error:
            return Judgement(findings=(_raised(self.pair.kernel.call.name, error),), notes=tuple(self.pair.notes))
        self._add(self._origin, exact, first)
        for number in range(1, draws):
            self._try(self._add_beside, number)
        self._repeat(first)
        found = judged(self.compared)
        if found.findings:
            for number in range(draws, draws + CONFIRMING, 2):
                self._try(self._add_beside, number)
                self._try(self._add_far, number + 1)
            found = judged(self.compared)
        notes = (*found.notes, *self.pair.notes)
        return replace(found, obstacle=found.obstacle or obstacle, notes=notes)

    def _try(self, add: Callable[[int], None], number: int) -> None:
        """Add a draw, unless a function does not accept it, as beyond the edge of its domain."""
        try:
            add(number)
        except Exception as error:
            note = f"A point beside the given one raised {type(error).__name__}, and was left out."
            self.pair.notes += [note] * (note not in self.pair.notes)

    @property
    def compared(self) -> list[Compared]:
        """The values and gradients, with their statistics."""
        return [
            Compared(
                path=path,
                is_gradient=path not in self._results,
                shape=tuple(tensor.shape),
                is_complex=tensor.is_complex(),
                statistics=self._statistics[path],
            )
            for path, tensor in (self._results | self._gradients).items()
        ]

    def _connection(self, reference: Evaluation) -> tuple[Obstacle | None, list[str]]:
        """Return the outputs that have gradients to compare, and an obstacle if none has."""
        if not self.pair.varied:
            return None, []
        connected = [path for path in self._results if path in reference.connected]
        name = self.pair.reference.call.name
        if not connected:
            return (
                Obstacle(
                    Reason.UNSUPPORTED,
                    f"{name} is not differentiable: autograd records no operation between its inputs and its outputs. "
                    "Values alone were compared, and they agree.",
                    "Write the reference with differentiable operations, or pass inputs that do not require grad.",
                ),
                [],
            )
        if detached := [path for path in self._results if path not in connected]:
            self.pair.notes.append(f"{', '.join(detached)}: detached in {name}, so its gradient was not compared.")
        return None, connected

    def _incoming(self, paths: Sequence[str]) -> dict[str, Tensor]:
        return {path: incoming_like(self._results[path], self.seed + 31 * number) for number, path in enumerate(paths)}

    def _beside(self, number: int, *, far: bool = False) -> Draw:
        """Return a draw that lies a unit in the last place from the first one, or a little farther."""
        seed, incoming = self.seed + 104_729 * number, self._origin.incoming
        shifted = moved([*incoming.values()], seed + 1, far=far)
        return Draw(moved(self._origin.point, seed, far=far), dict(zip(incoming, shifted, strict=True)))

    def _add_far(self, number: int) -> None:
        """Add the rounding errors of both at a point that is not judged."""
        draw = self._beside(number, far=True)
        exact = self._read(self.pair.precisely(draw.point), draw)
        kernel = self._read(self.pair.kernel.at(draw.point), draw)
        self._add_plain(draw, exact)
        for path, statistics in self._statistics.items():
            statistics.add_error(kernel[path], exact[path])

    def _add_beside(self, number: int) -> None:
        draw = self._beside(number)
        exact = self._read(self.pair.precisely(draw.point), draw)
        for path, statistics in self._statistics.items():
            statistics.add_perturbed(exact[path])
        self._add(draw, exact, self._read(self.pair.kernel.at(draw.point), draw))

    def _add(self, draw: Draw, exact: Mapping[str, Tensor], kernel: Mapping[str, Tensor]) -> None:
        plain = self._add_plain(draw, exact)
        for path, statistics in self._statistics.items():
            statistics.add(kernel[path], exact[path], None if plain is None else plain[path])

    def _add_plain(self, draw: Draw, exact: Mapping[str, Tensor]) -> Mapping[str, Tensor] | None:
        """Add the error of the reference in the kernel's own precision."""
        lowered = self.pair.lowered is not None
        if lowered:
            incoming = self.pair.rounded([*draw.incoming.values()])
            draw = Draw(self.pair.rounded(draw.point), dict(zip(draw.incoming, incoming, strict=True)))
            exact = self._read(self.pair.precisely(draw.point), draw)
        self._add_intermediates(draw, exact)
        evaluation = self.pair.plainly(draw.point)
        if evaluation is None:
            return None
        kinds = {path: result.dtype for path, result in evaluation.results.items()}
        kinds |= {path: self.pair.lowered or tensor.dtype for path, tensor in self._gradients.items()}
        try:
            plain = self._read(evaluation, draw)
        except DerivativeError as error:
            self.pair.give_up_plain(str(error))
            return None
        for path, statistics in self._statistics.items():
            unit = torch.finfo(kinds[path]).eps / 2
            statistics.add_plain(
                plain[path], exact[path], unit, scale=BESIDE * self.pair.unit / unit if lowered else 1.0
            )
        return None if lowered else plain

    def _add_intermediates(self, draw: Draw, exact: Mapping[str, Tensor]) -> None:
        """Add how far the exact numbers move with the intermediate numbers that lead to them."""
        if self.pair.wide is not torch.float64:
            return
        self._moves += 1
        try:
            with MovedIntermediates(self.seed + 49_979_687 * self._moves):
                values = self._read(self.pair.precisely(draw.point), draw)
        except Exception:
            return
        scale = BESIDE * self.pair.unit / SINGLE if self.pair.lowered else 1.0
        for path, statistics in self._statistics.items():
            statistics.add_intermediates(values[path], exact[path], scale=scale)

    def _repeat(self, first: Mapping[str, Tensor]) -> None:
        """Call the kernel again at the point, and more often if it does not repeat itself."""
        for _ in range(1 + REPEATS):
            again = self._read(self.pair.kernel.at(self._origin.point), self._origin)
            for path, statistics in self._statistics.items():
                statistics.add_repeated(first[path], again[path])
            if all(statistics.is_deterministic for statistics in self._statistics.values()):
                return
        self.pair.notes.append(
            f"{self.pair.kernel.call.name} is nondeterministic. The differences between its calls are allowed for."
        )

    def _unrepeated(self, exact: Mapping[str, Tensor]) -> Obstacle | None:
        """Return an obstacle if the reference gives other numbers when it is called again at the point."""
        again = self._read_reference(self.pair.precisely(self._origin.point))
        for path, numbers in exact.items():
            change = (again[path] - numbers).nan_to_num().norm()
            if change > self.pair.unit * numbers.nan_to_num().norm():
                return Obstacle(
                    Reason.NONDETERMINISTIC,
                    f"{self.pair.reference.call.name} is random: called again at the same inputs it gives other "
                    f"numbers for {path}.",
                    "Pass random numbers, such as a mask, as inputs of both functions.",
                )
        return None

    def _read_reference(self, evaluation: Evaluation) -> dict[str, Tensor]:
        try:
            return self._read(evaluation, self._origin)
        except DerivativeError as error:
            raise InputError(
                f"The backward of {self.pair.reference.call.name} raised {error} A reference is differentiated in a "
                "higher precision than the kernel. Write it with operations that allow this."
            ) from error

    def _read(self, evaluation: Evaluation, draw: Draw) -> dict[str, Tensor]:
        """Return the values and gradients of a call by path, as flat real vectors in double precision."""
        gradients = dict(zip(self.pair.varied, evaluation.gradients(draw.incoming), strict=True))
        found = evaluation.results | (gradients if draw.incoming else {})
        return {path: as_real(tensor).reshape(-1).to(self.device, torch.float64) for path, tensor in found.items()}


def form_of(tensor: Tensor) -> Format:
    """Return the number format of a tensor."""
    numbers = torch.finfo(real_dtype(tensor.dtype))
    least = numbers.smallest_normal * numbers.eps / 2
    tiny = least if numbers.bits == 64 else max(least, FLUSHED)
    return Format(unit=numbers.eps / 2, tiny=tiny, largest=numbers.max)


def _raised(name: str, error: DerivativeError) -> Finding:
    return Finding(
        kind="backward-raised",
        message=f"The backward of {name} raised {error}",
        hint="Look at the backward of the kernel: it did not accept an ordinary incoming gradient.",
    )
