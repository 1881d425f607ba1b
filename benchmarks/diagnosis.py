"""Is a mistake named for what it is? The gallery, and planted bugs that the diagnosis was not written against.

The first diagnosis of the first finding that has one counts. Controls are wrong in a way that has no name: no diagnosis
is the right answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch

from benchmarks.fresh import FRESH
from benchmarks.held_out import plants
from gradproof import Report, check
from gradproof.gallery import GALLERY

Case = tuple[str, str, Callable[..., Any], tuple[Any, ...], str]  # set, kind, function, inputs, diagnosis due


def cases() -> Iterator[Case]:
    """Every planted bug."""
    for specimen in GALLERY.values():
        yield "gallery", specimen.diagnosis, specimen.function, specimen.inputs(), specimen.diagnosis
    for plant in plants():
        yield "held out", plant.kind, plant.function, plant.inputs, plant.due
    for specimen in FRESH:
        yield "by hand", specimen.diagnosis or "no pattern", specimen.function, specimen.inputs(), specimen.diagnosis


def first_name(report: Report) -> str:
    """The first diagnosis, or nothing."""
    return next((finding.diagnoses[0].name for finding in report.findings if finding.diagnoses), "")


def main(seed: int = 3) -> None:
    """Print the table."""
    torch.set_num_threads(1)
    asked: Counter[tuple[str, str]] = Counter()
    named: Counter[tuple[str, str]] = Counter()
    other: Counter[tuple[str, str]] = Counter()
    for where, kind, function, inputs, due in cases():
        found = first_name(check(function, inputs, seed=seed, contracts=()))
        asked[where, kind] += 1
        named[where, kind] += found == due
        other[where, kind] += found not in ("", due)
    print(f"{'set':<10}{'kind':<20}{'planted':>8}{'named':>8}{'misnamed':>10}{'no name':>9}")
    for where in dict.fromkeys(key[0] for key in asked):
        for key in [*(key for key in asked if key[0] == where), (where, "together")]:
            rows = [key] if key[1] != "together" else [each for each in asked if each[0] == where]
            count, right, wrong = (sum(counter[row] for row in rows) for counter in (asked, named, other))
            print(f"{key[0]:<10}{key[1]:<20}{count:>8}{right:>8}{wrong:>10}{count - right - wrong:>9}")


if __name__ == "__main__":
    main()
