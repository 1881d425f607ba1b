"""The thresholds that the engine's modules share: what counts as small, alike, clear or many.

Halving or doubling one of them changes few verdicts or none (`python -m benchmarks.sensitivity`): they separate
quantities that lie orders of magnitude apart. A constant that stands in another module has a derivation of its own.
"""

from __future__ import annotations

# relative to the quantity that is compared
NEGLIGIBLE = 1e-6  # of the largest value: a smaller one may be the rounding error of others, or have other units
ENOUGH = 3e-8  # of the largest contribution: a bar this narrow needs no refinement (single precision cannot reach it)
TRACE = 1e-3  # a smaller share counts as zero, as of a residual or a vanishing gradient
SLIGHT = 1e-2  # a smaller error belongs to a rule that is right to two digits, or to none
STEADY = 0.02  # slopes at two step sizes that differ by less are equal
COARSEST = 2.0**-5  # of a value: rounding to a half precision changes it by less
SHARE = 0.1  # of the whole: a smaller part is a minor one
ALIKE = 0.2  # quantities that differ by less are of equal size
MEANINGFUL = 0.2  # of the largest contribution: a wider bar would let large errors pass
UNRESOLVED = 0.5  # of the quantity itself: a wider bar says nothing about it

# times the noise, the rounding or the bar
MARGIN = 1.3  # times the bar, since measured standard deviations are right to about a fifth
CLEARLY = 4.0  # standard deviations, roundings or bars: chance exceeds it once in 16,000 times
ROUNDINGS = 8.0  # units of rounding by which a computed result may be off
GROSS = 20.0  # bars: an error this large needs no confirmation
TWO_DIGITS = 64.0  # units of rounding or noise: a change this large is known to two digits

# counts
SHOWN = 10  # entries of a finding, and columns examined first: enough if they are wrong
FEW = 3  # quantities that show a pattern; fewer may agree by coincidence
MANY = 16  # samples that represent all others; an error hardly spares all of them
HANDFUL = 64  # columns, blocks or evaluations that are affordable one by one
CALLS = 256  # of the rule at most, for one decision
SAMPLE = 4096  # entries in a sample that represents all

# costs
LARGE = 1 << 17  # inputs or outputs: for more, an evaluation takes about a millisecond, and checks save evaluations
WORK = 1 << 25  # numbers that may be computed or held for one decision: about a second, or 256 MiB

TINY = 1e-300  # the least divisor; sums of squares below it have underflowed
