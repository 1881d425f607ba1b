"""Full coverage: every entry of the Jacobian, claimed beside measured.

The claimed Jacobian comes by rows, from pullbacks, or by columns, from pushforwards. Columns that share no row in it
are moved together, each by a step of its own, so that a wrongly claimed zero shows as well. Screening takes one step to
either side. Columns with an error beyond what is allowed, or with a kink, are measured again by themselves if they are
few; those with small errors, as where the curvature has a kink, on far finer steps too. Large errors are confirmed on a
few more steps (`Confirmation`), and the rest is judged by probes, as a subject (`Columns`) whose outputs are the
entries themselves.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from gradproof.engine.explanations.comparison import Comparison
from gradproof.engine.explanations.domain import all_undefined, some_undefined
from gradproof.engine.explanations.quantisation import cast_of
from gradproof.engine.findings import raised
from gradproof.engine.jacobian.columns import Columns, Largest, along, batches
from gradproof.engine.jacobian.confirm import Confirmation, Confirmed
from gradproof.engine.jacobian.entries import Entries
from gradproof.engine.jacobian.screening import Progress, Screened, Screening
from gradproof.engine.jacobian.zeros import unverified_zeros
from gradproof.engine.judging import Evidence, judge
from gradproof.engine.localisation.locate import WrongEntries
from gradproof.engine.options import Probing
from gradproof.engine.results import Entry, Verdict
from gradproof.engine.second_opinion import with_second_opinion
from gradproof.engine.subject import Array, DerivativeError, Subject
from gradproof.engine.thresholds import ENOUGH, HANDFUL, SHOWN, WORK
from gradproof.engine.verdict import EMPTY, Judgement, together
from gradproof.engine.views import subset


def judge_fully(
    subject: Subject, *, probes: int, seed: int, options: Probing, progress: Progress | None = None
) -> Judgement:
    """Judge every entry of the Jacobian. `probes` is for the columns that are judged by probes in the end."""
    if not subject.inputs.size or not subject.outputs.size:
        return EMPTY
    if undefined := all_undefined(subject):
        return Judgement(obstacle=undefined)
    judgements = []
    if some := some_undefined(subject):
        judgements.append(Judgement(obstacle=some))
        subject = subset(subject, subject.arrays.where(~subject.arrays.isnan(subject.centre))[0])
    try:
        coverage = _Coverage(subject, probes, seed, options, progress)
        whole = together([*judgements, *coverage.judgements(beside_undefined=bool(some))])
        return with_second_opinion(whole, subject, seed, options)
    except DerivativeError as error:
        return Judgement(findings=(raised(subject, error),))


class _Coverage:
    """The Jacobian in blocks of rows, each as large as memory allows."""

    def __init__(
        self, subject: Subject, probes: int, seed: int, options: Probing, progress: Progress | None = None
    ) -> None:
        self.subject, self.probes, self.seed, self.options = subject, probes, seed, options
        self.progress = progress or _no_progress
        self.screening = Screening(subject, seed, options, self.progress)
        self.direction = self.screening.direction
        self.rows, self.columns = subject.outputs.size, subject.inputs.size

    def judgements(self, *, beside_undefined: bool = False) -> Iterator[Judgement]:
        """Yield for each block of rows the judgements of the suspects, and then that of screening.

        If some outputs are undefined (`beside_undefined`), claims that are not finite are ignored: the incoming
        gradient of an undefined output is zero, and zero times NaN is NaN.
        """
        block = max(1, WORK // self.columns)
        largest, agrees = 0.0, True
        for first in range(0, self.rows, block):
            claimed = self._claimed(first, min(first + block, self.rows))
            screened = self.screening.screened(claimed, first)
            suspects = screened.suspects
            if beside_undefined:
                finite = self.subject.arrays.isfinite(claimed).all(0).tolist()
                suspects = [column for column in suspects if finite[column]]
            largest, agrees = max(largest, screened.largest), agrees and not suspects
            found = list(self._of_suspects(screened, claimed, suspects))
            zeros = None
            if not any(each.findings for each in found):
                zeros = unverified_zeros(screened.block, claimed, screened.doubts.values(), self.direction)
            yield from (*found, Judgement(obstacle=zeros, resolution=screened.resolution))
        if agrees and not largest and cast_of(self.subject):  # zeros agree wherever values are constant
            yield judge(self.subject, probes=1, seed=self.seed, options=self.options)

    def _of_suspects(self, screened: Screened, claimed: Array, suspects: list[int]) -> Iterator[Judgement]:
        """Yield the judgements of suspects: by confirmation, for as long as it succeeds, and by probes for the rest.

        Where a column is wrong, the other columns of its argument are not examined.
        """
        many, named, more_may_be = SHOWN, set[str | None](), True
        while suspects:
            few, suspects, many = suspects[:many], suspects[many:], HANDFUL
            seen = self._confirmed(screened, claimed, few) if more_may_be else None
            more_may_be = seen is not None
            judgements = [seen.judgement] if seen else []
            if not seen or seen.judgement.verdict is not Verdict.FAIL:
                unclear = [column for column in few if not seen or column not in seen.columns]
                judgements += [self._by_probes(screened, claimed, unclear)] if unclear else []
            yield from judgements
            wrong = {finding.argument for judgement in judgements for finding in judgement.findings}
            if wrong:
                named |= wrong
                unnamed = [column for column in few + suspects if self._argument(column) not in named]
                if len(unnamed) == len(few) + len(suspects) or len(named) > SHOWN:
                    return
                suspects, many = unnamed, SHOWN

    def _confirmed(self, screened: Screened, claimed: Array, few: list[int]) -> Confirmed | None:
        """Confirm some suspects on a few more steps; None in low precision, or if claims are not finite."""
        coarse = self.options.step is not None or self.subject.numbers.precision > ENOUGH
        if coarse or not all(map(screened.doubts.get, few)):
            return None
        discrepancies = {column: screened.doubts[column] for column in few}
        if not all(off.alone for off in discrepancies.values()):
            discrepancies = self.screening.alone(claimed, few, screened.block)
        if not discrepancies:
            return None
        entries = Entries(screened.block, claimed, screened.doubts, self.direction, self.seed, self.options)
        return Confirmation(entries, discrepancies).confirmed()

    def _by_probes(self, screened: Screened, claimed: Array, few: list[int]) -> Judgement:
        """Judge some columns by probes, each entry of them by itself."""
        largest = Largest(screened.largest, screened.block.largest)
        columns = Columns(self.subject, few, claimed[:, few], screened.block.rows.start, largest)
        known = self.subject.arrays.isfinite(claimed)
        entries = Entries(
            screened.block,
            self.subject.arrays.where(known, claimed, 0.0),
            screened.doubts,
            self.direction,
            self.seed,
            self.options,
            held=self.subject.arrays.where(~known.all(0))[0].tolist(),
        )

        def compared(disagreement: Comparison, coordinate: int, entry: Entry, _located: WrongEntries) -> Comparison:
            column, sampled = few[coordinate], columns.along(disagreement.probe.ladder, coordinate)
            off = self.screening.alone(entries.claimed, [column], screened.block).get(column)
            return entries.comparison(column, off, entry, sampled)

        evidence = Evidence(cast(Subject, columns), self.options, self.seed, compared=compared)
        try:
            return evidence.judgement(self.probes)
        except DerivativeError as error:
            return evidence.failed((raised(self.subject, error),))

    def _argument(self, column: int) -> str:
        return self.subject.inputs.locate(column).path

    def _claimed(self, low: int, high: int) -> Array:
        """Return the claimed rows in a range: from pullbacks, or cut out of all columns from pushforwards."""
        xp, subject = self.subject.arrays, self.subject
        blocks = []
        if subject.mode == "reverse":
            for start, stop in batches(low, high, max(self.rows, self.columns)):
                blocks.append(subject.pullback_many(along(xp, xp.ones_like(subject.centre), slice(start, stop))))
                self.progress(stop, 2 * self.rows)
            return xp.concatenate(blocks) if len(blocks) > 1 else blocks[0]
        unit = xp.ones_like(self.direction)
        for start, stop in batches(0, self.columns, max(self.rows, self.columns)):
            blocks.append(subject.pushforward_many(along(xp, unit, slice(start, stop)))[:, low:high])
            self.progress(stop, 2 * self.columns)
        return (xp.concatenate(blocks) if len(blocks) > 1 else blocks[0]).T


def _no_progress(_done: int, _of: int) -> None:
    """Report nothing."""
