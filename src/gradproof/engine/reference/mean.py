"""A mean over draws, entry by entry."""

from __future__ import annotations

from gradproof.engine.subject import Array


class Mean:
    """The mean of the tensors added so far, entry by entry; zero before the first.

    >>> import numpy as np
    >>> mean = Mean(np.zeros(2))
    >>> mean.add(np.array([1.0, 2.0]))
    >>> mean.add(np.array([3.0, 2.0]))
    >>> mean.value, mean.count
    (array([2., 2.]), 2)
    """

    def __init__(self, zero: Array) -> None:
        self._total, self.count = zero, 0

    def add(self, values: Array) -> None:
        """Add the tensor of one draw."""
        self._total = self._total + values
        self.count += 1

    @property
    def value(self) -> Array:
        """The mean, entry by entry."""
        return self._total / max(self.count, 1)
