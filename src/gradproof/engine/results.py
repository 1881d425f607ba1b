"""What a check found out, as plain data."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import Any


class Verdict(enum.Enum):
    """The outcome of a check: pass, fail or inconclusive.

    >>> Verdict("pass") is Verdict.PASS
    True
    """

    PASS = "pass"
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"


class Reason(enum.Enum):
    """Why a check is inconclusive: a property of the function at this point, or of the way in which it is checked."""

    KINK = "kink"
    JUMP = "jump"
    DOMAIN = "domain"
    QUANTISED = "quantised"
    NOISE = "noise"
    CONDITIONING = "conditioning"
    CANCELLATION = "cancellation"
    NONDETERMINISTIC = "nondeterministic"
    STEP_SIZE = "step-size"
    NON_FINITE = "non-finite"
    MUTATION = "mutation"
    UNSUPPORTED = "unsupported"
    BUDGET = "budget"
    RESOLUTION = "resolution"


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a check cannot pass or fail: the reason, a message for users, and a hint what to do.

    `argument` is the input that the message names, if it names one.
    """

    reason: Reason
    message: str
    hint: str
    argument: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """One coordinate of a space, in the user's words: which tensor, which entry, which part of a complex number.

    `stored` says of a sparse input whether it stores the entry; None of any other tensor.
    """

    path: str
    index: tuple[int, ...]
    part: str | None = None
    stored: bool | None = None

    def __str__(self) -> str:
        entry = f"[{', '.join(map(str, self.index))}]" if self.index else ""
        return f"{self.path}{entry}" + (f".{self.part}" if self.part else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """One wrong entry of a derivative: what is claimed, what the function's values say, and how sure they are.

    The numbers are the derivative of `output` with respect to the entry at `index` when one output was singled out,
    and otherwise the gradient entry for the probe's random incoming gradient (`output` is then None). `also` names
    further outputs whose derivative with respect to this entry is wrong. `stored` says of an entry of a sparse input
    whether it is stored.
    """

    index: tuple[int, ...]
    claimed: float
    numerical: float
    bar: float
    part: str | None = None
    output: Place | None = None
    also: tuple[Place, ...] = ()
    stored: bool | None = None

    @classmethod
    def at(cls, place: Place, *, claimed: float, numerical: float, bar: float, output: Place | None = None) -> Entry:
        """Return the entry at a place: of one output, or for the probe's incoming gradient."""
        return cls(
            index=place.index,
            claimed=claimed,
            numerical=numerical,
            bar=bar,
            part=place.part,
            output=output,
            stored=place.stored,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What a mistake looks like: its name, in a sentence, how well it fits (0 to 1), and what to look at.

    `also` are other names that are as true of it.
    """

    name: str
    message: str
    fit: float
    hint: str = ""
    also: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Culprit:
    """A part of the function that is wrong by itself, at the inputs that it received: a module or a Function.

    `file` and `line` are where its backward, its jvp or its forward is written; empty and 0 where that is unknown.
    `message` is empty if the part is the whole function, so that the finding says it all.
    """

    name: str
    message: str = ""
    diagnoses: tuple[Diagnosis, ...] = ()
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong: what, where, how wrong, and what to look at.

    `mode` is the derivative that is wrong: "reverse", "forward", or at order two a nesting such as "forward over
    reverse"; of a contract the mode that it belongs to. `diagnoses` say what it looks like, the likeliest first;
    `culprits` which parts of the function are wrong by themselves.
    """

    kind: str
    message: str
    argument: str | None = None
    entries: tuple[Entry, ...] = ()
    hint: str = ""
    mode: str = "reverse"
    diagnoses: tuple[Diagnosis, ...] = ()
    culprits: tuple[Culprit, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TaylorPoint:
    """The length of a step, and its remainder: the change in value less the change that the claimed slope predicts.

    The remainder of a right gradient falls with the square of the step, that of a wrong one with the step itself.
    """

    step: float
    remainder: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One probe: the slope that was claimed along a random direction, beside the one that was measured.

    `steps` are the remainders of the Taylor test, at the steps that were taken, the shortest first; `rounding` is how
    much of a remainder the rounding of the values alone may leave.
    """

    seed: int
    claimed: float
    numerical: float
    bar: float
    mode: str = "reverse"
    steps: tuple[TaylorPoint, ...] = ()
    rounding: float = 0.0

    @property
    def agrees(self) -> bool:
        """Whether the claim lies within the bar."""
        return abs(self.claimed - self.numerical) <= self.bar


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """Where a Jacobian is wrong: its error in blocks of outputs (rows) by inputs (columns), each single or of many.

    `rows` and `columns` name the first entry of each block; no block spans two tensors unless there are very many.
    `errors` are what a typical entry of the block is off by, and zero where the block lies within its bar. `exact` says
    that every block is one entry.
    """

    rows: tuple[Place, ...]
    columns: tuple[Place, ...]
    errors: tuple[tuple[float, ...], ...]
    exact: bool
    mode: str = "reverse"


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorMap:
    """The errors of a value or a gradient by position, in blocks of `down` rows by `across` columns.

    All dimensions of the tensor but the last are rows. `bars` are the largest error of each block in error bars: more
    than one is wrong. `ratios` are the root mean square of the error over that of the plain reference in the same
    precision; there are none if that is not known.
    """

    name: str
    rows: int
    columns: int
    down: int
    across: int
    bars: tuple[tuple[float, ...], ...]
    ratios: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    """The smallest error in one gradient entry that the check would have caught; infinite where nothing was measured.

    `absolute` is in the gradient's own units, for an incoming gradient whose entries have size one half to one;
    `relative` compares it with the largest gradient entry, and is infinite where the gradient is zero.
    """

    absolute: float
    relative: float

    @classmethod
    def of(cls, absolute: float, largest: float) -> Resolution:
        """Return the resolution of an absolute error where the largest entry of the gradient is of this size."""
        return cls(absolute=absolute, relative=absolute / largest if largest and absolute < math.inf else math.inf)


def least_error(allowed: Any, apart: Any, step: Any = None) -> Any:
    """Return the smallest error in one entry that a comparison would have shown: the one formula of resolutions.

    Where the entry's coordinate moves by `step`, an error e changes what is claimed by e·step. Of that, part may cancel
    the distance `apart` of claim and measurement, and the rest is seen beyond what is `allowed`. Numbers or arrays; a
    step of one if none is given.
    """
    return allowed + apart if step is None else (allowed + apart) / step


UNMEASURED = Resolution(absolute=math.inf, relative=math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """What the check spent: calls of the function, calls of its derivatives, and time (`inside` is the user's code)."""

    evaluations: int
    pullbacks: int
    pushforwards: int
    seconds: float
    inside: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """What was checked: the function, its arguments and outputs as users name them, the derivatives and their sizes.

    `derivatives` are modes, or at order two nestings of them; `coverage` is "probe" or "full". `reference` is the name
    of the function that it was compared with, if any. `call` is what was called: "check", "compare" or
    "check_step". `file` and `line` are where the function is written, if that is known.
    """

    name: str
    arguments: tuple[str, ...]
    outputs: tuple[str, ...]
    coordinates: int
    output_coordinates: int
    derivatives: tuple[str, ...] = ("reverse",)
    coverage: str = "probe"
    reference: str = ""
    call: str = "check"
    file: str = ""
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The evidence of one check, as data. `gradproof.Report` adds the ways to look at it.

    `reason` says why a check is inconclusive, and is None otherwise. `message` explains it, or is that of the first
    finding; `hint` says what to do. `origin` is where the check was made, such as a test's name, if that is known.
    `errors` are those of a comparison with a reference, by position. `unsupported` names derivatives that were asked
    for and that the framework does not have.
    """

    verdict: Verdict
    reason: Reason | None = None
    message: str = ""
    hint: str = ""
    findings: tuple[Finding, ...] = ()
    notes: tuple[str, ...] = ()
    resolution: Resolution
    readings: tuple[Reading, ...] = ()
    maps: tuple[HeatMap, ...] = ()
    errors: tuple[ErrorMap, ...] = ()
    cost: Cost
    seed: int
    subject: Checked
    unsupported: tuple[str, ...] = ()
    origin: str = ""

    @property
    def passed(self) -> bool:
        """Whether the gradients were verified."""
        return self.verdict is Verdict.PASS
