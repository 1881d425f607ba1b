"""Why a probe that agrees proves nothing: kinks, jumps, edges, noise, randomness."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gradproof.engine.asking import FEW
from gradproof.engine.bisection import search
from gradproof.engine.ladder import ROUNDING, Ladder, first_step
from gradproof.engine.nearby import OWN_SIZE, wavers
from gradproof.engine.probe import MEANINGFUL, Probe, blurred
from gradproof.engine.results import Place
from gradproof.engine.slopes import RATIO, TALL
from gradproof.engine.subject import Array, Subject
from gradproof.engine.weighing import CAUTION, Sums, combine, predicted, restricted, weighed

ROUGH = 1e-6  # of the values, and of what they change by on the coarsest step: so much is no rounding and not smooth
GENTLY = 4  # rungs below that on which a slope fills the roughness, where it shows
LIKE = 2.0  # a leap up to so many times what is claimed, and no less than one part of as many, is of the claim's kind
HEIGHTS = tuple(TALL / RATIO**k for k in range(6))  # of a value: of the stairs that half precisions leave
HARDLY = 1e-2  # of what is claimed: values that first move by less do not move as claimed
GRAINS = 64.0  # units of rounding that a step has to be long to be told from another


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What stands in the way, and a way on."""

    reason: str
    advice: str


RANDOM = Obstacle(
    "random: the function gives different values at the same point, with every global generator held still",
    "Seed the generators that it makes for itself, or pass nondet_tol= if the difference is meant.",
)


NOISE = Obstacle(
    "noise: the function's values are too rough for its slope to mean anything at this size and precision",
    "Check in float64, at fewer entries, or with wrt= for one input at a time.",
)


STAIRS = Obstacle(
    "stairs: the function's values stand still on fine steps and leap on coarse ones, as rounded or quantised values "
    "do, so its slope is zero between the leaps and says nothing of what is claimed",
    "Check the function without the rounding. A backward that passes it by, a straight-through estimator, is a choice "
    "and no derivative.",
)


DEBRIS = Obstacle(
    "rounding: the values, and what is claimed of them, change by their own size when the point moves by a rounding: "
    "they are what is left of larger numbers that cancel",
    "Check at a point, or at a size, where they do not cancel: a normalisation of more than one entry, for instance.",
)


SCALE = Obstacle(
    "scale: the slope is one on fine steps and another on coarse ones, and the claim is the coarse one, as of "
    "a function with a cast or a table in it",
    "Check the function without the cast.",
)


STEEP = Obstacle(
    "scale: the function changes within the finest steps that can be taken, and the claim may be its slope there",
    "Check at a point where it changes less, or a gentler version of it: fewer iterations, lower frequencies.",
)


TIED = Obstacle(
    "kink: the slope along several inputs together is not made up of their slopes one by one, as where inputs tie for "
    "a median, so the function has no derivative at the point",
    "Check at a point where no inputs are equal.",
)


WAVERING = Obstacle(
    "rounding: what is claimed is off by no more than it changes by when the point moves by a rounding, as of a matrix "
    "that is nearly singular",
    "Check at a point that is better conditioned: there every digit counts.",
)


def roughness(probe: Probe) -> Obstacle:
    """What to call values that are too rough for a slope."""
    return STAIRS if bool(probe.ladder.stands_still().any()) else NOISE


def hardly_moves(probe: Probe) -> bool:
    """Whether the values, on the finest step on which they move, do so by next to nothing of what is claimed.

    Stairs that a claim passes by leap by at least what it says, and noise that could hide it is as large. Where they
    are nothing beside it, as where a square starts to rise, the claim is wrong, however rough the slope.
    """
    subject = probe.ladder.subject
    xp, rates = subject.arrays, subject.arrays.zeros_like(subject.centre)
    for rung in probe.ladder.rungs:
        moved = xp.maximum(abs(rung.plus - subject.centre), abs(rung.minus - subject.centre))
        rates = xp.where(rates == 0, moved / rung.t, rates)
    return float(abs(probe.cotangent) @ rates) < HARDLY * abs(probe.claim.slope)


def may_be_finer(probe: Probe) -> bool:
    """Whether a claim that coarse steps deny is what the finest ones show, or lies beyond what steps can show.

    A function that oscillates, or a chaotic one, is rough on all steps but those that its steepness leaves it: where
    the claimed slope would not take it further than it is rough. They are asked, if they can be taken at all.
    """
    ladder, unit = probe.ladder, probe.ladder.subject.precision
    finest = combine(ladder.between(0), probe.cotangent)
    if _bears_out(finest, probe):
        return True
    rough, steep = finest.bar * ladder.rungs[0].t, max(abs(probe.claim.slope), probe.claim.largest_contribution)
    spread = float(abs(probe.cotangent) @ ladder.afar()) * ladder.rungs[-1].t
    if finest.bar <= MEANINGFUL * finest.size or rough <= ROUGH * (finest.floor / (ROUNDING * unit) + spread):
        return False  # it is smooth, or no rougher than rounding may make it
    if not (steep and 0 < rough / steep < math.inf):
        return False
    gentle = math.floor(math.log(rough / steep, RATIO)) - GENTLY
    possible = math.ceil(math.log(GRAINS * unit / first_step(unit), RATIO))
    lowest = max(gentle, possible)
    if lowest >= ladder.lowest:
        return False
    return _bears_out(combine(ladder.aside(lowest, lowest + 1), probe.cotangent), probe) or gentle < possible


def may_be_debris(probe: Probe) -> bool:
    """Whether values bear out less than is claimed, and are nothing, or move by their own size on the finest rung."""
    centre, finest = probe.ladder.subject.centre, probe.ladder.rungs[0]
    if not 0 < abs(probe.claim.slope) >= abs(probe.sums.slope):
        return False
    moved = abs(finest.plus - centre) > OWN_SIZE * abs(centre)
    return bool(moved.any()) or not bool(centre.any())


def is_wavering(probe: Probe, seed: int) -> bool:
    """Whether what a probe disagrees by may be an accident of rounding in the rule."""
    ladder, slope = probe.ladder, probe.claim.slope
    error, size = abs(slope - probe.sums.slope), max(abs(slope), probe.claim.largest_contribution)
    return wavers(ladder.subject, ladder.direction, probe.cotangent, error=error, size=size, seed=seed)


def on_long_treads(probe: Probe) -> bool:
    """Whether what is off is claimed of outputs that stand still throughout, and is less than a stair of the others.

    Where values are cast, a tread may be longer than all steps.
    """
    ladder, xp, centre = probe.ladder, probe.ladder.subject.arrays, abs(probe.ladder.subject.centre)
    stairs = ladder.stands_still()
    if not bool(stairs.any()):
        return False
    height = xp.where(stairs, math.inf, centre)
    still = xp.isfinite(centre)
    for rung in ladder.rungs:
        for side in (rung.minus, rung.plus):
            change = abs(side - ladder.subject.centre)
            height = xp.where(stairs & (change > 0) & (change < height), change, height)
            still = still & (change == 0)
    highest = 2 * float(xp.where(stairs, height / centre, math.inf).min())  # of its size a stair may be twice another's
    if not highest <= TALL:
        return False
    resting = xp.where(still, probe.cotangent, 0.0)
    claimed = predicted(ladder.subject, ladder.direction, resting)
    off = abs(probe.claim.slope - probe.sums.slope - claimed)
    return off <= probe.bar and abs(claimed) * ladder.rungs[-1].t <= highest * float(abs(resting) @ centre)


def matches_coarser(probe: Probe) -> bool:
    """Whether a claim that fine steps deny is what coarse steps show, which contradict the fine ones."""
    pairs = (probe.ladder.between(k) for k in range(1, len(probe.ladder.rungs) - 1))
    return any(_bears_out(combine(pair, probe.cotangent), probe) for pair in pairs)


def _bears_out(seen: Sums, probe: Probe) -> bool:
    """Whether what was seen on two rungs alone is what is claimed, and contradicts what was seen on all of them."""
    claimed, bar = probe.claim.slope, CAUTION * seen.bar
    telling = seen.bar <= MEANINGFUL * abs(claimed)
    return telling and abs(seen.slope - claimed) <= bar < abs(seen.slope - probe.sums.slope) - probe.sums.bar


def on_a_tread(probe: Probe, coordinate: int) -> bool:
    """Whether values that stand still along one coordinate leap both ways, as claimed, on longer steps.

    Where a coordinate moves a value little, the treads of a cast are longer than all rungs, and a slope of zero
    on one of them says nothing. A value that is constant stands still on that step too.
    """
    subject = probe.ladder.subject
    xp, centre = subject.arrays, subject.centre
    piece = restricted(subject, probe.ladder.direction, coordinate, coordinate + 1)
    finest = probe.ladder.rungs[0].t
    ahead, behind = subject.evaluate(piece, finest), subject.evaluate(piece, -finest)
    if subject.mode != "forward":
        return bool(((ahead == centre) & (behind == centre)).all()) and _moves_as_claimed_afar(probe, piece)
    claims = xp.where((ahead == centre) & (behind == centre), subject.pushforward(piece), 0.0)
    worst = int(xp.argmax(abs(claims)))
    claim, value = float(claims[worst]), abs(float(centre[worst]))
    if not (0 < abs(claim) < math.inf and 0 < value < math.inf):
        return False
    for height in HEIGHTS:
        t = height * value / abs(claim)
        up, down = (float(subject.evaluate(piece, way * t)[worst] - centre[worst]) * way for way in (1.0, -1.0))
        if up * claim > 0 < down * claim and 1 / LIKE <= (up + down) / (2 * t * claim) <= LIKE:
            return True
    return False


def _moves_as_claimed_afar(probe: Probe, piece: Array) -> bool:
    """Whether values move, both ways, about as claimed on steps that may take them off a half precision's tread."""
    subject, claim = probe.ladder.subject, probe.predicted(piece)
    if not 0 < abs(claim) < math.inf:
        return False
    scales = [1 / first_step(subject.precision)]
    if subject.outputs.size == 1 and bool(subject.centre[0] != 0):  # then it is known whose tread it is
        scales.append(abs(float(probe.cotangent[0] * subject.centre[0]) / claim))
    for t in (height * scale for scale in scales for height in HEIGHTS):
        changes = (subject.evaluate(piece, t) - subject.centre, subject.centre - subject.evaluate(piece, -t))
        up, down = (weighed(subject, probe.cotangent, change) / (t * claim) for change in changes)
        if up and down and 1 / LIKE <= (up + down) / 2 <= LIKE:
            return True
    return False


def obstacle(probe: Probe, outputs: int) -> Obstacle | None:
    """What keeps this probe from being evidence, if anything does.

    `outputs` is the number of all outputs of which a few may be spared; none where there is to be no exception.
    """
    subject = probe.ladder.subject
    if probe.kinks:
        return kink(subject, probe)
    if beyond := _not_finite(subject, probe):
        return Obstacle(
            f"non-finite: {beyond} of {max(outputs, subject.outputs.size)} output entries are NaN or infinite at the "
            "point itself or beside it",
            "Choose a point inside the function's domain; the other entries agree.",
        )
    if probe.unresolved <= max(FEW * outputs, outputs >= 20) and not blurred(probe):  # one of twenty may be an accident
        return None
    if not probe.repeatable:
        return RANDOM
    if undefined_beside(probe):
        detail = f" ({subject.trouble})" if subject.trouble else ""
        return Obstacle(
            f"undefined: the function is not defined on both sides of the point, however small the step{detail}",
            "Choose a point inside the function's domain.",
        )
    for leaps, how in ((probe.ladder.jumps(), ""), (probe.ladder.cliffs(), ", or too steeply to tell it from one")):
        leaping = subject.arrays.where(leaps)[0]
        if probe.unresolved and leaping.shape[0]:
            return Obstacle(
                f"jump: {subject.outputs.locate(int(leaping[0]))} changes by a leap at the point itself{how}, so it "
                "has no slope there",
                "Check at a point beside it, or leave out of wrt= the inputs that only choose between cases.",
            )
    return roughness(probe)


def all_undefined(subject: Subject) -> Obstacle | None:
    """Whether the function has no finite value at the point at all."""
    if subject.finite or bool(subject.arrays.isfinite(subject.centre).any()):
        return None
    return Obstacle(
        "non-finite: every output entry is NaN or infinite at the point itself",
        "Choose a point inside the function's domain.",
    )


def some_undefined(subject: Subject) -> Obstacle | None:
    """Whether the function has no value at all at the point, in some of its outputs."""
    undefined = 0 if subject.finite else int(subject.arrays.isnan(subject.centre).sum())
    if not undefined:
        return None
    return Obstacle(
        f"non-finite: {undefined} of {subject.outputs.size} output entries are NaN at the point itself",
        "Choose a point inside the function's domain; nothing is wrong in the other entries.",
    )


def _not_finite(subject: Subject, probe: Probe) -> int:
    """The number of outputs without a finite value, not counting those that are the same infinity all around."""
    centre = subject.centre
    if subject.finite:
        return 0
    around = probe.ladder.rungs[-1]
    constant = (around.plus == centre) & (around.minus == centre)
    return int((~subject.arrays.isfinite(centre) & ~constant).sum())


def undefined_beside(probe: Probe) -> bool:
    """Whether the function has no finite value on one side of the point, or on both, on the finest rung."""
    finest = probe.ladder.rungs[0]
    return not math.isfinite(float((finest.plus - finest.minus).sum()))


def kink(subject: Subject, probe: Probe) -> Obstacle:
    """Where the kink is, and whether the claim lies between the slopes on its two sides."""
    output, direction = probe.kinks[0], probe.ladder.direction
    unit = subject.arrays.zeros_like(subject.centre)
    unit[output] = 1.0
    before, after = (float(side[output]) for side in probe.ladder.sides(probe.ladder.rungs[0]))
    claimed = predicted(subject, direction, unit)
    place = None
    coordinate = _kinked_coordinate(subject, probe)
    if coordinate is not None:
        piece = restricted(subject, direction, coordinate, coordinate + 1)
        alone = Ladder(subject, piece)
        alone.add(probe.ladder.lowest)
        step = float(direction[coordinate].sum())
        sides = [float(side[output]) / step for side in alone.sides(alone.rungs[0])]
        before, after = sides if step > 0 else reversed(sides)
        claimed = predicted(subject, piece, unit) / step
        place = subject.inputs.locate(coordinate)
    return kink_at(place, subject.outputs.locate(output), (before, after), claimed)


def kink_at(place: Place | None, output: Place, sides: tuple[float, float], claimed: float) -> Obstacle:
    """A kink at a place, if one input alone has it, with the slopes of an output before and after it."""
    before, after, claimed = sides[0] + 0.0, sides[1] + 0.0, claimed + 0.0  # no minus zero
    least, most = sorted((before, after))
    slack = 0.01 * (most - least)
    where = "between" if least - slack <= claimed <= most + slack else "outside"
    return Obstacle(
        f"kink{f' at {place}' if place else ''}: the slope of {output} is {before:.6g} before it and {after:.6g} "
        f"after it; the claimed {claimed:.6g} lies {where} them",
        "Check at a point beside the kink. At the kink itself any value between the slopes is a convention."
        if where == "between"
        else "No convention gives a value outside the slopes: look at the backward for this case.",
    )


def _kinked_coordinate(subject: Subject, probe: Probe) -> int | None:
    """The input entry that the kink lies in, by bisection on the bend; None where no single one carries it."""
    output, rung = probe.kinks[0], probe.ladder.rungs[0]
    centre = subject.centre[output]

    def bend(low: int, high: int) -> float:
        piece = restricted(subject, probe.ladder.direction, low, high)
        ahead, behind = subject.evaluate(piece, rung.t)[output], subject.evaluate(piece, -rung.t)[output]
        found = float((ahead - centre) - (centre - behind))
        return found if math.isfinite(found) else 0.0

    before, after = (float(side[output]) for side in probe.ladder.sides(rung))
    whole = (after - before) * rung.t
    found = search(
        subject.inputs.size, subject.inputs.spans, bend, threshold=0.02 * abs(whole), whole=whole, most=1
    ).found
    return found[0] if found and abs(bend(found[0], found[0] + 1)) > 0.02 * abs(whole) else None
