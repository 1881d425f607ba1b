"""Is a mistake named for what it is? The gallery, and planted bugs that the diagnosis was not written against.

The first diagnosis of the first finding that has one counts. It is named right if its name is, and "as one of two"
if another name is that the diagnosis calls as true. Controls are wrong in a way that has no name: no diagnosis
is the right answer. Arguments choose among the sets: gallery, held-out, by-hand, realistic, afterwards, networks,
transforms, models, assorted, physics, kernels, cells, various, further, sundry, newest, learning, science, indices.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from benchmarks.fresh import FRESH
from benchmarks.held_out import plants
from benchmarks.realistic import REALISTIC
from benchmarks.realistic.afterwards import AFTERWARDS
from benchmarks.realistic.assorted import ASSORTED
from benchmarks.realistic.bug import Bug
from benchmarks.realistic.cells import CELLS
from benchmarks.realistic.further import FURTHER
from benchmarks.realistic.indices import INDICES
from benchmarks.realistic.kernels import KERNELS
from benchmarks.realistic.learning import LEARNING
from benchmarks.realistic.models import MODELS
from benchmarks.realistic.networks import NETWORKS
from benchmarks.realistic.newest import NEWEST
from benchmarks.realistic.physics import PHYSICS
from benchmarks.realistic.science import SCIENCE
from benchmarks.realistic.sundry import SUNDRY
from benchmarks.realistic.transforms import TRANSFORMS
from benchmarks.realistic.various import VARIOUS
from gradproof import Report, check
from gradproof.gallery import GALLERY

Case = tuple[str, str, Callable[..., Any], tuple[Any, ...], frozenset[str]]  # kind, title, function, inputs, names


def gallery() -> Iterator[Case]:
    """The gallery's planted bugs."""
    for specimen in GALLERY.values():
        due = frozenset({specimen.diagnosis})
        yield specimen.diagnosis, specimen.name, specimen.function, specimen.inputs(), due


def held_out() -> Iterator[Case]:
    """Right functions whose gradients are corrupted in known ways."""
    for plant in plants():
        yield plant.kind, plant.title, plant.function, plant.inputs, frozenset({plant.due})


def by_hand() -> Iterator[Case]:
    """Bugs that were planted by hand."""
    for specimen in FRESH:
        due = frozenset({specimen.diagnosis})
        yield specimen.diagnosis or "no pattern", specimen.name, specimen.function, specimen.inputs(), due


def of_authors(bugs: Sequence[Bug]) -> Callable[[], Iterator[Case]]:
    """Bugs that authors of custom backwards make."""
    return lambda: ((bug.family, bug.title, bug.function, bug.inputs(), bug.names) for bug in bugs)


SETS = {
    "gallery": gallery,
    "held-out": held_out,
    "by-hand": by_hand,
    "realistic": of_authors(REALISTIC),
    "afterwards": of_authors(AFTERWARDS),
    "networks": of_authors(NETWORKS),
    "transforms": of_authors(TRANSFORMS),
    "models": of_authors(MODELS),
    "assorted": of_authors(ASSORTED),
    "physics": of_authors(PHYSICS),
    "kernels": of_authors(KERNELS),
    "cells": of_authors(CELLS),
    "various": of_authors(VARIOUS),
    "further": of_authors(FURTHER),
    "sundry": of_authors(SUNDRY),
    "newest": of_authors(NEWEST),
    "learning": of_authors(LEARNING),
    "science": of_authors(SCIENCE),
    "indices": of_authors(INDICES),
}


def first_names(report: Report) -> tuple[str, ...]:
    """The name of the first diagnosis, and those that it calls as true; nothing if there is none."""
    first = next((finding.diagnoses[0] for finding in report.findings if finding.diagnoses), None)
    return (first.name, *first.also) if first else ()


def outcome_of(found: tuple[str, ...], due: frozenset[str]) -> str:
    """Whether the names of a diagnosis are those that are due."""
    if not found:
        return "no name" if due and "" not in due else "named"
    return "named" if found[0] in due else "one of two" if due.intersection(found) else "misnamed"


def main(sets: Sequence[str], seed: int = 3) -> None:
    """Print the table, and below it every bug that is not named right."""
    torch.set_num_threads(1)
    rows: dict[tuple[str, str], Counter[str]] = {}
    misses = []
    for where in sets:
        for kind, title, function, inputs, names in SETS[where]():
            found = first_names(check(function, inputs, seed=seed, contracts=()))
            outcome = outcome_of(found, names)
            for key in ((where, kind), (where, "together")):
                rows.setdefault(key, Counter())[outcome] += 1
            if outcome != "named":
                misses.append(
                    f"{where}, {title}: {' or '.join(found) or 'no name'}, not {' or '.join(sorted(names)) or 'none'}"
                )
    print(f"{'set':<10}{'kind':<20}{'planted':>8}{'named':>8}{'one of two':>12}{'misnamed':>10}{'no name':>9}")
    for (where, kind), row in sorted(rows.items(), key=lambda item: (item[0][0], item[0][1] == "together")):
        figures = f"{row['named']:>8}{row['one of two']:>12}{row['misnamed']:>10}{row['no name']:>9}"
        print(f"{where:<10}{kind:<20}{row.total():>8}{figures}")
    print(*misses, sep="\n")


if __name__ == "__main__":
    main(sys.argv[1:] or tuple(SETS))
