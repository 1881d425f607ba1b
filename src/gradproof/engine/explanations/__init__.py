"""Why a claim outside its bar need not be wrong, and why one inside it may prove nothing: one list, one runner.

A new explanation is one class with its reason, in its place in the list; a planted case that it explains; and a wrong
gradient beside the same difficulty that it does not explain.
"""

from __future__ import annotations

from collections.abc import Sequence

from gradproof.engine.explanations.comparison import Comparison, Explanation
from gradproof.engine.explanations.conditioning import Cancellation, IllConditioned
from gradproof.engine.explanations.domain import DomainEdge, NoFiniteSlope, NonFiniteValues
from gradproof.engine.explanations.noise import NoiseOfOthers, Noisy, OneDirectionAlone
from gradproof.engine.explanations.nondeterminism import Nondeterministic
from gradproof.engine.explanations.nondifferentiable import Jump, Kink, SignedZero, Ties
from gradproof.engine.explanations.quantisation import QuantisedEntry, QuantisedInputs, QuantisedValues, ZeroOfCast
from gradproof.engine.explanations.step_size import FinerSteps, Oscillation, Sawtooth
from gradproof.engine.results import Obstacle, Reason
from gradproof.engine.thresholds import ALIKE

EXPLANATIONS: tuple[Explanation, ...] = (
    NoFiniteSlope(),
    Kink(),
    NonFiniteValues(),
    Nondeterministic(),
    DomainEdge(),
    SignedZero(),
    Jump(),
    Cancellation(),
    QuantisedValues(),
    ZeroOfCast(),
    Noisy(),
    FinerSteps(),
    Sawtooth(),
    QuantisedInputs(),
    Oscillation(),
    Ties(),
    IllConditioned(),
    NoiseOfOthers(),
    QuantisedEntry(),
    OneDirectionAlone(),
)


def explain(comparison: Comparison) -> Obstacle | None:
    """Return the first explanation that holds for a comparison; None where nothing explains it."""
    for each in EXPLANATIONS:
        if comparison.kind in each.kinds and (obstacle := each.explains(comparison)):
            return obstacle
    return None


def unexplained(entries: Sequence[Comparison]) -> tuple[list[Comparison], Obstacle | None]:
    """Return the entries, worst first, that nothing explains; and what explains the worst of the others.

    Entries share a cause. Once one is wrong, only those are examined whose relative error is far less, or that do not
    add up. Once one is constant since it is quantised, so are the others that are constant.
    """
    wrong: list[Comparison] = []
    obstacle = None
    for each in entries:
        constant = each.entry is not None and not each.entry.numerical
        if wrong and each.adds_up is not False and each.share > ALIKE * wrong[0].share:
            wrong.append(each)
        elif constant and obstacle is not None and obstacle.reason is Reason.QUANTISED:
            continue
        elif found := explain(each):
            obstacle = obstacle or found
        else:
            wrong.append(each)
    return wrong, obstacle
