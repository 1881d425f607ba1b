"""Which cases of a source are run: by tags and names, a random sample, a shard."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

from gradproof.audit.case import Case
from gradproof.errors import InputError

WHOLE = 2**64  # the number of values of a hash


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """Cases that have all `tags`, whose names fit one of the `globs`, in a `sample` and in a `shard`.

    Sample and shard depend on the name of a case alone, so that every run and every machine makes the same choice
    without knowing the other cases. `sample` is a fraction; `shard` is (3, 16) for the third of sixteen.
    """

    tags: tuple[str, ...] = ()
    globs: tuple[str, ...] = ()
    sample: float = 1.0
    seed: int = 0
    shard: tuple[int, int] = (1, 1)

    def __post_init__(self) -> None:
        if not 0 < self.sample <= 1:
            raise InputError(f"sample={self.sample!r}: pass a fraction above 0 and at most 1, such as 0.05.")
        number, count = self.shard
        if not 1 <= number <= count:
            raise InputError(f"shard={number}/{count}: pass a number from 1 to the number of shards, such as 3/16.")

    def of(self, cases: Iterable[Case]) -> Iterator[Case]:
        """Return the selected cases, in their order.

        >>> cases = [Case(str(number), make=int) for number in range(1000)]
        >>> thirds = [list(Selection(shard=(number, 3)).of(cases)) for number in (1, 2, 3)]
        >>> sum(map(len, thirds)), min(map(len, thirds)) > 280
        (1000, True)
        """
        return (case for case in cases if self._has(case))

    def _has(self, case: Case) -> bool:
        number, count = self.shard
        return (
            set(self.tags) <= set(case.tags)
            and (not self.globs or any(fnmatchcase(case.name, glob) for glob in self.globs))
            and (self.sample == 1 or _hash(f"sample {self.seed} {case.name}") < self.sample * WHOLE)
            and (count == 1 or _hash(f"shard {case.name}") % count == number - 1)
        )


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest())
