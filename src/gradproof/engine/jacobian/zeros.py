"""Claims of zero that agree with values that are constant on small steps alone, as after a cast.

Zeros agree wherever values are constant. Where the values are quantised, they agree with any entry that is wrongly
claimed to be zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gradproof.engine.explanations.quantisation import QUANTISED, beyond_plateaus, rises_evenly
from gradproof.engine.jacobian.columns import batches, directions_of
from gradproof.engine.jacobian.row_block import Discrepancy, RowBlock
from gradproof.engine.results import Obstacle
from gradproof.engine.subject import Array


def unverified_zeros(
    block: RowBlock, claimed: Array, doubts: Iterable[Discrepancy], direction: Array
) -> Obstacle | None:
    """Return an obstacle if a quantised output is claimed not to depend on an input, and does on longer steps."""
    rows = _quantised(block, doubts)
    if not rows.shape[0]:
        return None
    zeros = claimed[rows] == 0
    never = block.subject.arrays.where(zeros.all(0))[0].tolist()
    if never and not _rise(block, rows, zeros, [never], direction):
        zeros[:, never] = False  # all of them together move none of these outputs
    suspects = block.subject.arrays.where(zeros.any(0))[0].tolist()
    return QUANTISED if _rise(block, rows, zeros, [[column] for column in suspects], direction) else None


def _quantised(block: RowBlock, doubts: Iterable[Discrepancy]) -> Array:
    """Return the outputs of every tensor that has one which is constant on small steps though a slope is claimed."""
    found = block.noise != block.noise
    for off in {id(off): off for off in doubts}.values():
        found[off.rows[(off.slopes == 0) & (off.second_differences == 0)]] = True
    for low, high in block.subject.outputs.spans:
        part = slice(max(low - block.rows.start, 0), max(high - block.rows.start, 0))
        found[part] = bool(found[part].any())
    return block.subject.arrays.where(found)[0]


def _rise(block: RowBlock, rows: Array, zeros: Array, groups: Sequence[list[int]], direction: Array) -> bool:
    """Return True if a row rises evenly on a long step of a group of columns that are claimed not to move it."""
    subject = block.subject
    longer = beyond_plateaus(subject.numbers.precision) * direction
    for start, stop in batches(0, len(groups), 2 * max(subject.inputs.size, subject.outputs.size)):  # to either side
        slopes, second = (
            each[:, rows] for each in block.slopes(directions_of(subject.arrays, longer, list(groups[start:stop])))
        )
        claimed_zero = zeros[:, [group[0] for group in groups[start:stop]]].T
        if bool((rises_evenly(slopes + second / 2, slopes - second / 2) & claimed_zero).any()):
            return True
    return False
