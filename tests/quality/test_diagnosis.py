"""Is a mistake named for what it is, and is nothing named where there is no pattern?"""

from __future__ import annotations

import pytest
import torch
from benchmarks.fresh import FRESH
from benchmarks.held_out import FAMILIES
from benchmarks.realistic import REALISTIC

from gradproof import Verdict, check
from gradproof.gallery import GALLERY

NAMES = {
    "factor", "sign", "transposed", "conjugate", "missing-sum", "doubled-sum", "incoming-ignored", "overwritten",
    "shifted", "block", "detached", "mask", "mixed", "missing-term", "stale", "approximation", "pass-through",
    "wrong-factor", "wrong-term", "wrong-dimension", "misplaced", "flipped",
}  # fmt: skip
MISSED = {"products": 4, "by hand": 1}  # known not to be named, or named for something that they also are
REALISTIC_NAMED = 0.9  # of the bugs that authors make, at least
EVERY = 5  # of the plants that were held out: `python -m benchmarks.diagnosis` asks about all of them


def first_name(report):
    return next((finding.diagnoses[0].name for finding in report.findings if finding.diagnoses), "")


def first_names(report):
    first = next((finding.diagnoses[0] for finding in report.findings if finding.diagnoses), None)
    return (first.name, *first.also) if first else ("",)


def named(specimen, seed, **options):
    report = check(specimen.function, specimen.inputs(), seed=seed, **options)
    assert report.verdict is Verdict.FAIL, specimen.name
    return specimen.diagnosis in first_names(report)


def test_the_gallery_shows_every_kind_of_mistake():
    assert len(GALLERY) >= 40
    assert {specimen.diagnosis for specimen in GALLERY.values()} == NAMES
    assert len({specimen.title for specimen in GALLERY.values()}) == len(GALLERY)


@pytest.mark.parametrize("name", GALLERY)
def test_a_specimen_of_the_gallery_is_named_for_what_it_is(name):
    report = check(GALLERY[name].function, GALLERY[name].inputs(), seed=0)

    assert report.verdict is Verdict.FAIL
    assert first_name(report) == GALLERY[name].diagnosis
    first = next(finding for finding in report.findings if finding.diagnoses).diagnoses[0]
    assert first.message.endswith(".")
    assert first.hint
    assert 0.8 < first.fit <= 1


@pytest.mark.parametrize("name", GALLERY)
def test_a_right_function_with_the_same_values_passes_without_a_diagnosis(name):
    specimen = GALLERY[name]
    report = check(specimen.right, specimen.inputs(), seed=0)

    assert report.passed
    assert not report.findings
    values = [_flat(function(*specimen.inputs())) for function in (specimen.right, specimen.function)]
    assert all(torch.allclose(one, other) for one, other in zip(*values, strict=True))


def test_the_names_do_not_hang_on_the_seed():
    reports = {name: check(each.function, each.inputs(), seed=1, contracts=()) for name, each in GALLERY.items()}
    missed = [name for name, report in reports.items() if first_name(report) != GALLERY[name].diagnosis]
    findings = [finding for report in reports.values() for finding in report.findings]

    assert len(missed) <= 0.03 * len(GALLERY), missed
    assert {diagnosis.name for finding in findings for diagnosis in finding.diagnoses} <= NAMES


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.__name__)
def test_planted_bugs_that_were_held_out_are_named(family):
    plants, missed = list(family()), []
    for plant in plants if len(plants) < 3 * EVERY else plants[::EVERY]:
        report = check(plant.function, plant.inputs, seed=3, contracts=())
        assert report.verdict is Verdict.FAIL, plant.title
        if first_name(report) != plant.due:
            missed.append(f"{plant.title}: {first_name(report) or 'no name'}, not {plant.due or 'none'}")

    assert len(plants) >= 3
    assert len(missed) <= MISSED.get(family.__name__, 0), missed


def test_planted_bugs_by_hand_are_named():
    missed = [specimen.name for specimen in FRESH if not named(specimen, 0, contracts=())]

    assert len(missed) <= MISSED["by hand"], missed


def test_bugs_that_authors_make_are_named():
    found = {}
    for bug in REALISTIC:
        report = check(bug.function, bug.inputs(), seed=3, contracts=())
        assert report.verdict is Verdict.FAIL, bug.title
        found[bug] = first_name(report)
    misnamed = [f"{bug.title}: {name}" for bug, name in found.items() if name and name not in bug.names]

    assert sum(name in bug.names for bug, name in found.items()) >= REALISTIC_NAMED * len(REALISTIC)
    assert len(misnamed) <= 0.03 * len(REALISTIC), misnamed


def _flat(value):
    return value if isinstance(value, tuple) else (value,)
