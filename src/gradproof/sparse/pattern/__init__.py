"""The one representation of stored entries: index tensors, their layouts, validation, reading and building.

`layouts` names what torch stores, `grid` numbers the cells, `validation` checks indices, `pattern` is the public type,
`reading` finds the entries of one tensor among those of another, and `values` does both ways differentiably.
"""

from gradproof.sparse.pattern.pattern import Pattern

__all__ = ["Pattern"]
