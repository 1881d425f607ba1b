"""A gallery of planted bugs: functions whose derivatives are wrong in the ways that people get them wrong.

>>> from gradproof.gallery import GALLERY
>>> from gradproof import check
>>> specimen = GALLERY["cosine"]
>>> report = check(specimen.function, specimen.inputs(), seed=0)
>>> report.passed, report.findings[0].diagnoses[0].name == specimen.diagnosis
(False, True)
"""

from __future__ import annotations

from gradproof.gallery.arrangements import ARRANGEMENTS
from gradproof.gallery.places import PLACES
from gradproof.gallery.sizes import SIZES
from gradproof.gallery.specimen import Specimen, named
from gradproof.gallery.terms import TERMS

__all__ = ["GALLERY", "Specimen"]

GALLERY: dict[str, Specimen] = named((*SIZES, *ARRANGEMENTS, *PLACES, *TERMS))
