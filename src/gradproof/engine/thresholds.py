"""How much is little, alike, clear or many: the sizes that the engine's judgements share, each in one place.

Halving or doubling one of them changes few verdicts or none (`python -m benchmarks.sensitivity`): they separate
quantities that lie orders of magnitude apart. A constant that stands in another module instead has a derivation of its
own.
"""

from __future__ import annotations

# relative to the quantity that is compared
TRACE = 1e-3  # a share below it is none: a gradient that vanishes, a residual that is gone
SLIGHT = 1e-2  # an error below it may come from a rule that is right to two digits, or matters to no one
STEADY = 0.02  # slopes that differ by less on steps of different lengths are one slope
ALIKE = 0.2  # quantities that differ by less are of one kind

# times the noise, the rounding or the bar
CLEARLY = 4.0  # what is beyond it is no noise: standard deviations, roundings or bars
FELT = 64.0  # units of rounding by which a change is seen to two digits

# counts
FEW = 3  # from so many on, alike is no accident; below it, nothing is told from numbers
SAMPLE = 4096  # entries that are looked at where a look at some tells of all
