"""The thresholds that the engine's modules share: what counts as small, alike, clear or many.

Halving or doubling one of them changes few verdicts or none (`python -m benchmarks.sensitivity`): they separate
quantities that lie orders of magnitude apart. A constant that stands in another module has a derivation of its own.
"""

from __future__ import annotations

# relative to the quantity that is compared
NEGLIGIBLE = 1e-6  # of the largest value: less may be in other units, or what rounding left of numbers as large
ENOUGH = 3e-8  # of the largest contribution: a narrower bar need not be refined; single precision does not reach it
TRACE = 1e-3  # a smaller share counts as zero: a vanishing gradient, a residual that is gone
SLIGHT = 1e-2  # an error below it may come from a rule that is right to two digits, or matters to no one
STEADY = 0.02  # slopes that differ by less on steps of different lengths are one
COARSEST = 2.0**-5  # of a value: no half precision rounds by more
SHARE = 0.1  # of the whole: a smaller part of it is a minor one
ALIKE = 0.2  # quantities that differ by less are of one kind
MEANINGFUL = 0.2  # a bar wider than this share of the largest contribution would let too much pass
UNRESOLVED = 0.5  # and a bar wider than this share of what it belongs to says nothing

# times the noise, the rounding or the bar
MARGIN = 1.3  # beyond the bar: standard deviations are estimates, good to a fifth or so
CLEARLY = 4.0  # standard deviations, roundings or bars: one number in 16,000 is beyond it by chance
ROUNDINGS = 8.0  # units of rounding that the result of a computation may be off
GROSS = 20.0  # an error as large needs no confirmation
FELT = 64.0  # units of rounding: a change as large is known to two digits
OUTLIER = 100.0  # times the usual size: a quantity as large has another cause

# counts
FEW = 3  # quantities from which on agreement is no coincidence; fewer show no pattern
MANY = 16  # samples that represent all others, since they hardly all have the same error
HANDFUL = 64  # columns, blocks or evaluations that are treated one by one where that helps
CALLS = 256  # of the rule, at most, for one question
SAMPLE = 4096  # entries that are examined where a sample represents all

# costs
LARGE = 1 << 17  # inputs or outputs: beyond it an evaluation takes a millisecond or so, and checks are sparing of them
WORK = 1 << 25  # numbers that may be computed, or held, for one question: about a second, or 256 MiB

TINY = 1e-300  # the least number that is divided by; sums of squares below it have lost their terms
