"""Right entries in the wrong places: of a scatter, a gather, a permutation, a flip, a shift, another dimension.

The rows of the claimed Jacobian are looked up among the rows of the right one, and columns among columns. If each
has an equal one, the map between their indices is the mistake. The whole Jacobian has to be known.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import reduce
from itertools import product
from operator import and_

from gradproof.engine.contraction import CLAIM_ACCURACY
from gradproof.engine.diagnosis.block import Block
from gradproof.engine.diagnosis.case import CERTAIN, LEAST_FIT, SAME, SMALL, Case
from gradproof.engine.parts import Part
from gradproof.engine.results import Diagnosis
from gradproof.engine.subject import Array
from gradproof.engine.thresholds import ALIKE, FEW, MANY

Table = list[list[float]]
Relations = set[tuple[int, int]]

INDICES = (
    "Look at the indices with which the backward scatters or gathers (of a sort, a top-k, a maximum, a permutation), "
    "whether they are inverted, and at strides and offsets."
)
SHIFTED = "Look at offsets: a roll in the wrong direction, a padding or a pointer that is left out."


def rearranged(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose a Jacobian whose columns, or whose rows, are right ones at other indices."""
    parts = whole_of(case, block)
    if parts is None:
        return
    output, own = parts
    tables = (block.claimed, block.right, block.slack)
    for part, (claimed, right, slack) in ((own, tuple(each.T for each in tables)), (output, tables)):
        like = _alike(claimed, right, slack)
        used = [k for k, row in enumerate((abs(claimed) > slack).tolist()) if any(row)]
        if sum(not like[k][k] for k in used) < FEW:
            continue
        what = f"{case.subject_line} is" + ("" if part is own else f" that of an {case.given} which is")
        for text, sources in _shifts(part):
            inside = [(k, sources[k]) for k in used if sources[k] >= 0]
            if len(inside) >= (1 - ALIKE) * len(used) and all(like[k][source] for k, source in inside):
                yield Diagnosis(name="shifted", message=f"{what} {text}.", fit=CERTAIN, hint=SHIFTED)
        if all(any(like[k]) for k in used) and not _crowded(like, used):
            yield _misplaced(case, sum(not like[k][k] for k in used), len(used))


def wrong_dimension(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose entries that are connected with outputs of the same index along the wrong dimension."""
    parts = whole_of(case, block)
    if parts is None:
        return
    output, own = parts
    right = _relations(abs(block.right) > block.slack, output, own)
    claimed = _relations(abs(block.claimed) > block.slack, output, own)
    lost, gained = sorted(right - claimed), sorted(claimed - right)
    if not lost or not gained:
        return
    crossed = [(one[0], other[1]) for one, other in zip(lost, reversed(lost), strict=True)]
    yield Diagnosis(
        name="transposed" if len(lost) > 1 and sorted(crossed) == gained else "wrong-dimension",
        message=f"{case.subject_line} connects index i along dimension {gained[0][1]} of {own.path} with index i along "
        f"dimension {gained[0][0]} of {output.path}, where the function connects dimension {lost[0][1]} with "
        f"dimension {lost[0][0]}.",
        fit=CERTAIN,
        hint="Look for a sum, a mean, a softmax or a scatter along the wrong dimension, and for a missing transpose.",
    )


def elsewhere(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose a Jacobian in which every row, or every column, has the right entries in another order."""
    if whole_of(case, block) is None:
        return
    tables = (block.claimed, block.right, block.slack)
    for claimed, right, slack in (tables, tuple(each.T for each in tables)):
        rows = list(zip(claimed.tolist(), right.tolist(), slack.tolist(), strict=True))
        used = [row for row in rows if any(map(_beyond, row[0], [0.0] * len(row[0]), row[2]))]
        wrong = [row for row in used if any(map(_beyond, *row))]
        moved = [
            row for row in wrong if not any(map(_beyond, sorted(row[0]), sorted(row[1]), [max(row[2])] * len(row[2])))
        ]
        if len(moved) >= FEW and len(wrong) - len(moved) <= ALIKE * len(used):
            yield _misplaced(case, len(moved), len(used))
            return
    if _are_exchanged(block):
        yield _misplaced(case, int(block.wrong.sum()), int((block.wrong | (abs(block.right) > block.slack)).sum()))


def _are_exchanged(block: Block) -> bool:
    """Return True if the wrong entries are the right ones among them in another order, signs that differ aside."""
    claimed, right = sorted(block.claimed[block.wrong].tolist()), sorted(block.right[block.wrong].tolist())
    slack = float(block.slack.max())
    if any(_beyond(one, other, slack) for one, other in zip(claimed, right, strict=True)):
        return False
    turned = abs(block.claimed + block.right) <= block.slack
    values = [
        value for k, value in enumerate(right) if abs(value) > slack and (not k or _beyond(value, right[k - 1], slack))
    ]
    return len(values) >= 2 * FEW and not bool((block.wrong & turned).any())


def read_elsewhere(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose entries that are those of a tensor, as the right ones are, but of other indices of it."""
    measurements = case.measurements
    vectors = [(measurements.inputs, measurements.subject.point), (measurements.outputs, measurements.subject.centre)]
    slack, tables = float(block.slack.max()), [block.claimed, block.right]
    entries = [table[block.wrong & (abs(table) > block.slack)] for table in tables]
    for part, vector in [(part, vector) for parts, vector in vectors for part in parts]:
        if part.is_complex or not FEW < part.size <= SMALL or block.rows is None:
            continue
        values = part.of(vector)
        for sign in (1, -1):
            near = [abs(each[:, None] - sign * values[None]) <= slack + SAME * abs(each)[:, None] for each in entries]
            places = [{each for row in one.tolist() for each, there in enumerate(row) if there} for one in near]
            if all(bool(each.any(1).all()) for each in near) and min(map(len, places)) > FEW:
                yield Diagnosis(
                    name="misplaced",
                    message=f"{case.subject_line} reads {part.path} at other indices than the function.",
                    fit=LEAST_FIT,
                    hint=INDICES,
                )
                return


def read_and_put_elsewhere(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose entries of a tensor at other indices, which are put where nothing should be."""
    if not bool(((abs(block.claimed) > block.slack) & (abs(block.right) > block.slack) & block.wrong).any()):
        yield from read_elsewhere(case, block)


def found_elsewhere(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose products that are claimed for other entries: wrong ones are found, for all operands, in another place.

    This needs a few columns of the Jacobian, and all of what is claimed.
    """
    wrong = found = 0
    for column in range(len(block.columns)) if block.products else ():
        pairs = [(float(claim[column]), float(right[column])) for claim, right in block.products]
        slack = [float(block.slack.max()) + SAME * abs(right) for _, right in pairs]
        off = any(abs(claim - right) > each for (claim, right), each in zip(pairs, slack, strict=True))
        if off and all(abs(right) > each for (_, right), each in zip(pairs, slack, strict=True)):
            near = [
                abs(claim - right) <= each for claim, (_, right), each in zip(case.claims, pairs, slack, strict=True)
            ]
            wrong, found = wrong + 1, found + (int(reduce(and_, near).sum()) == 1)
    if found >= FEW and found >= (1 - ALIKE) * wrong:
        yield _misplaced(case, found, len(block.columns))


def transposed_between_factors(case: Case, block: Block) -> Iterator[Diagnosis]:
    """Diagnose a matrix that is not transposed, between factors of inputs and outputs that are right."""
    parts = whole_of(case, block)
    if parts is None or parts[0].size != parts[1].size or _factors(block, transposed=False):
        return
    if _factors(block, transposed=True):
        yield Diagnosis(
            name="transposed",
            message=f"{case.subject_line} has the transpose of the right Jacobian, but for factors of single "
            "inputs and outputs.",
            fit=CERTAIN,
            hint="A linear step of the forward is not transposed in the backward: a matrix, a convolution, a running "
            "sum, or edges whose source and target are exchanged.",
        )


def whole_of(case: Case, block: Block) -> tuple[Part, Part] | None:
    """Return the output and the input if the block is all of the Jacobian between the two, and both are real."""
    outputs = case.measurements.outputs
    output = case.output or (outputs[0] if len(outputs) == 1 else None)
    if output is None or block.rows is None or output.is_complex or case.input.is_complex:
        return None
    if (len(block.rows), len(block.columns)) != (output.size, case.input.size):
        return None
    return output, case.input


def _alike(claimed: Array, right: Array, slack: Array) -> list[list[bool]]:
    """Return for each claimed row which of the right rows it equals."""
    allowed = slack + CLAIM_ACCURACY * abs(right)
    return [(abs(row[None] - right) <= allowed).all(1).tolist() for row in claimed]


def _crowded(like: list[list[bool]], used: list[int]) -> bool:
    """Return True if many of the claimed rows are equal, and more than there are such right ones: nothing is moved."""
    together = [sum(like[other] == like[k] for other in used) for k in used]
    return sum(count > sum(like[k]) for k, count in zip(used, together, strict=True)) > ALIKE * len(used)


def _shifts(part: Part) -> Iterator[tuple[str, list[int]]]:
    """Yield shifts of a tensor: what they are in words, and for each place the one that it is from, or −1."""
    places = list(product(*(range(length) for length in part.shape)))
    number = {place: k for k, place in enumerate(places)}
    for axis, length in [(axis.number, axis.length) for axis in part.axes]:
        for offset in (*range(1, length // 2 + 1), *range(-1, -((length + 1) // 2), -1)):
            for around in (True, False):
                sources = []
                for place in places:
                    index = place[axis] - offset
                    inside = around or 0 <= index < length
                    sources.append(number[*place[:axis], index % length, *place[axis + 1 :]] if inside else -1)
                yield f"shifted by {offset} along dimension {axis}", sources


def _misplaced(case: Case, moved: int, used: int) -> Diagnosis:
    return Diagnosis(
        name="misplaced",
        message=f"{case.subject_line} has the right values in the wrong places: {moved} of {used} are moved.",
        fit=CERTAIN,
        hint=INDICES,
    )


def _relations(support: Array, output: Part, own: Part) -> Relations:
    """Return the pairs of dimensions of output and input along which connected entries have equal indices."""
    pairs = [(o, i) for o, row in enumerate(support.tolist()) for i, entry in enumerate(row) if entry]
    return {
        (one.number, other.number)
        for one in output.axes
        for other in own.axes
        if one.length == other.length >= FEW
        and all(o // one.below % one.length == i // other.below % other.length for o, i in pairs)
    }


def _beyond(one: float, other: float, slack: float) -> bool:
    return abs(one - other) > slack + CLAIM_ACCURACY * abs(other)


def _factors(block: Block, *, transposed: bool) -> bool:
    """Return True if the claimed block is the right one, or its transpose, with rows and columns multiplied by factors.

    The factors follow from some entries, along a spanning tree of them; at least as many others have to agree.
    """
    claimed, slack = block.claimed.tolist(), float(block.slack.max())
    right = (block.right.T if transposed else block.right).tolist()
    entries = [(o, i) for o, row in enumerate(right) for i, entry in enumerate(row) if abs(entry) > MANY * slack]
    if any(
        min(abs(value), abs(right[o][i])) <= slack and max(abs(value), abs(right[o][i])) > MANY * slack
        for o, row in enumerate(claimed)
        for i, value in enumerate(row)
    ):
        return False
    by_row: dict[int, list[int]] = {}
    by_column: dict[int, list[int]] = {}
    for o, i in entries:
        by_row.setdefault(o, []).append(i)
        by_column.setdefault(i, []).append(o)
    rows: dict[int, float] = {}
    columns: dict[int, float] = {}
    for first in by_row:
        if first in rows:
            continue
        rows[first], waiting = 1.0, [first]
        while waiting:
            o = waiting.pop()
            for i in by_row[o]:
                if i not in columns:
                    columns[i] = claimed[o][i] / right[o][i] / rows[o]
                    for other in by_column[i]:
                        if other not in rows:
                            rows[other] = claimed[other][i] / right[other][i] / columns[i]
                            waiting.append(other)
    surplus = len(entries) - len(rows) - len(columns)
    return surplus >= FEW and all(
        abs(claimed[o][i] - rows[o] * right[o][i] * columns[i]) <= slack + CLAIM_ACCURACY * abs(claimed[o][i])
        for o, i in entries
    )
