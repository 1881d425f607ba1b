"""Groups of input tensors that are probed by themselves: halves of all, halves of those, down to single tensors.

A kink in one of n tensors is then found in about 2·log₂(n) probes, and the others are verified in groups.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from gradproof.engine.thresholds import MANY

Span = tuple[int, int]
PATHS = 4  # from all tensors to a single one, of two groups each, that the budget is enough for at least


@dataclass(frozen=True, slots=True)
class TensorGroup:
    """Neighbouring tensors: the ranges of their coordinates."""

    spans: tuple[Span, ...]

    @property
    def span(self) -> Span:
        """The range of all coordinates."""
        return self.spans[0][0], self.spans[-1][1]

    @property
    def is_single(self) -> bool:
        """Whether it is one tensor."""
        return len(self.spans) == 1


class TensorGroups:
    """The groups to probe, in order, as far as the budget goes.

    >>> groups = TensorGroups([(0, 2), (2, 2), (2, 5), (5, 9)])
    >>> [group.span for group in groups if groups.split(group) or group.is_single]
    [(0, 2), (2, 9), (2, 5), (5, 9)]
    """

    def __init__(self, spans: list[Span]) -> None:
        self._waiting: list[TensorGroup] = []
        filled = tuple(span for span in spans if span[0] < span[1])
        self._budget = max(MANY, 2 * PATHS * math.ceil(math.log2(max(2, len(filled)))))
        self.split(TensorGroup(filled))

    def __iter__(self) -> Iterator[TensorGroup]:
        while self._waiting and self._budget:
            self._budget -= 1
            yield self._waiting.pop()

    @property
    def exhausted(self) -> bool:
        """Whether groups are left that are beyond the budget."""
        return bool(self._waiting)

    def split(self, group: TensorGroup) -> bool:
        """Let the halves of a group be probed next; return False if it is a single tensor."""
        if group.is_single:
            return False
        middle = len(group.spans) // 2
        self._waiting += [TensorGroup(half) for half in (group.spans[middle:], group.spans[:middle]) if half]
        return True
