"""Pictures as places on a canvas: what lies where, and what is left out."""

import dataclasses
import math
from itertools import pairwise

import pytest

from gradproof.engine.results import Entry, Finding, HeatMap, Place, Reading, TaylorPoint
from gradproof.report.geometry import bars, pictures, scatter, taylor
from gradproof.report.heat import heat
from support.reports import a_fail, a_pass, one_wrong_entry


def reading(*remainders, rounding=1e-16, agrees=False):
    """A probe with remainders at steps 10⁻⁶, 10⁻⁵, …"""
    steps = tuple(TaylorPoint(step=10.0 ** (k - 6), remainder=value) for k, value in enumerate(remainders))
    return Reading(seed=0, claimed=0.0 if agrees else 1.0, numerical=0.0, bar=0.1, steps=steps, rounding=rounding)


def drop(line):
    """How much a line falls on the canvas, for a pixel to the left."""
    return -(line.y2 - line.y1) / (line.x2 - line.x1)


def places(*runs):
    return tuple(Place(path=path, index=(number,)) for path, count in runs for number in range(count))


def mapped(errors, rows=None, columns=None):
    rows, columns = rows or places(("output", len(errors))), columns or places(("x", len(errors[0])))
    return HeatMap(rows=rows, columns=columns, errors=tuple(map(tuple, errors)), exact=True)


def found(*numbers):
    """A report of wrong entries: claimed, numerical, bar of each."""
    entries = tuple(
        Entry(index=(k,), claimed=claimed, numerical=numerical, bar=bar)
        for k, (claimed, numerical, bar) in enumerate(numbers)
    )
    return dataclasses.replace(a_pass(), findings=(Finding(kind="wrong", message="", argument="x", entries=entries),))


# ── the Taylor test ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_guides_have_slopes_one_and_two():
    picture = taylor(reading(1e-10, 1e-9, 1e-8, 1e-6, 1e-4))
    one, two = picture.guides

    assert drop(two) == pytest.approx(2 * drop(one), rel=0.02)


def test_remainders_of_slope_one_lie_on_their_guide():
    picture = taylor(reading(1e-10, 1e-9, 1e-8))
    one, _ = picture.guides

    for dot in picture.dots:
        assert dot.y == pytest.approx(one.y1 + (dot.x - one.x1) * -drop(one), abs=0.3)
    assert "slope 1.0" in picture.says


def test_remainders_of_slope_two_lie_on_theirs():
    picture = taylor(reading(1e-10, 1e-8, 1e-6, agrees=True))
    _, two = picture.guides

    for dot in picture.dots:
        assert dot.y == pytest.approx(two.y1 + (dot.x - two.x1) * -drop(two), abs=0.3)
    assert "slope 2.0" in picture.says
    assert picture.agrees


def test_longer_steps_lie_to_the_right_and_larger_remainders_above():
    dots = taylor(reading(1e-10, 1e-9, 1e-8)).dots

    assert dots[0].x < dots[1].x < dots[2].x
    assert dots[0].y > dots[1].y > dots[2].y


def test_a_remainder_of_rounding_is_faint_and_guides_nothing():
    picture = taylor(reading(0.0, 1e-17, 1e-12, 1e-10))

    assert [dot.faint for dot in picture.dots] == [True, True, False, False]
    assert "slope 2.0" in picture.says


def test_an_affine_function_is_said_to_be_linear():
    picture = taylor(reading(1e-17, 0.0, 1e-17))

    assert picture.guides is None
    assert "linear" in picture.says


@pytest.mark.parametrize("remainders", [(), (1e-9,)])
def test_fewer_than_two_steps_make_no_picture(remainders):
    assert taylor(reading(*remainders)) is None


def test_nothing_but_zeros_makes_no_picture():
    assert taylor(reading(0.0, 0.0, rounding=0.0)) is None


def test_steps_beyond_all_numbers_make_no_picture():
    far = tuple(TaylorPoint(step=math.inf, remainder=value) for value in (1e-6, 0.0))

    assert taylor(dataclasses.replace(reading(1e-9, 1e-8), steps=far, rounding=math.inf)) is None


def test_a_rounding_that_is_not_known_leaves_the_steps():
    assert len(taylor(reading(1e-9, 1e-8, rounding=math.inf)).dots) == 2


def test_everything_lies_on_the_canvas():
    for picture in (taylor(each) for report in (a_pass(), a_fail(), one_wrong_entry()) for each in report.readings):
        for dot in picture.dots:
            assert picture.left <= dot.x <= 352
            assert 10 <= dot.y <= picture.bottom


# ── bars ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_claim_within_its_bar_lies_in_the_band():
    picture = bars(found((1.05, 1.0, 0.1), (1.5, 1.0, 0.1), (-9.0, 1.0, 0.1)))
    low, high = picture.band
    inside, right, left = (dot.x for _, _, dot in picture.rows)

    assert low < inside < high < right
    assert left < low


def test_ten_times_as_many_bars_lie_a_step_further():
    picture = bars(found((11.0, 1.0, 1.0), (101.0, 1.0, 1.0), (1001.0, 1.0, 1.0)))
    first, second, third = (dot.x for _, _, dot in picture.rows)

    assert second - first == pytest.approx(third - second, abs=0.3)


def test_a_pass_shows_its_probes():
    assert bars(a_pass()).rows[0][0] == "reverse, seed 3"


def test_ten_rows_are_enough():
    assert len(bars(found(*[(2.0, 1.0, 0.1)] * 25)).rows) == 10


@pytest.mark.parametrize("numbers", [(math.nan, 1.0, 0.1), (math.inf, 1.0, 0.1), (1.0, 1.0, 0.0), (1.0, 1.0, math.inf)])
def test_numbers_without_a_distance_are_left_out(numbers):
    picture = bars(found(numbers, (2.0, 1.0, 0.1)))

    assert [name for _, name, _ in picture.rows] in (["x[1]"], ["x[0]", "x[1]"])
    assert all(math.isfinite(dot.x) for _, _, dot in picture.rows)


def test_ticks_are_whole_powers_of_ten():
    labels = [tick.label for tick in bars(found((1e6, 1.0, 0.1))).x]

    assert "0" in labels
    assert len(labels) <= 8
    assert all(label == "0" or label.lstrip("−").startswith("1") for label in labels)


# ── claimed against numerical ────────────────────────────────────────────────────────────────────────────────────────


def test_right_entries_would_lie_on_the_diagonal():
    picture = scatter(found((1.0, 1.0, 0.1), (2.0, 2.0, 0.1), (6.0, 3.0, 0.1)))
    line = picture.diagonal
    heights = [line.y1 + (dot.x - line.x1) * (line.y2 - line.y1) / (line.x2 - line.x1) for dot, _, _ in picture.dots]

    assert [
        dot.y == pytest.approx(height, abs=0.3) for (dot, _, _), height in zip(picture.dots, heights, strict=True)
    ] == [
        True,
        True,
        False,
    ]


def test_one_entry_makes_no_scatter():
    assert scatter(found((2.0, 1.0, 0.1))) is None


def test_very_different_ranges_have_axes_of_their_own():
    picture = scatter(found((1000.0, 1.0, 0.1), (2000.0, 2.0, 0.1)))

    assert abs(picture.dots[0][0].x - picture.dots[1][0].x) > 100


def test_equal_entries_can_be_drawn():
    assert scatter(found((2.0, 1.0, 0.1), (2.0, 1.0, 0.1)))
    assert scatter(found((0.0, 0.0, 0.1), (0.0, 0.0, 0.1)))


# ── where the Jacobian is wrong ──────────────────────────────────────────────────────────────────────────────────────


def test_the_largest_error_has_the_darkest_shade():
    picture = heat(mapped([[0.0, 1.0], [0.1, 0.001]]))

    assert picture.shades[4] == "M1 0h1v1h-1z"
    assert picture.shades[2] == "M0 1h1v1h-1z"
    assert picture.shades[0] == "M1 1h1v1h-1z"
    assert picture.says == "3 of 4 entries are wrong."


def test_neighbours_of_one_shade_are_one_piece():
    assert heat(mapped([[1.0] * 5])).shades[4] == "M0 0h5v1h-5z"


def test_an_infinite_error_is_as_dark_as_can_be():
    assert heat(mapped([[math.inf, 1.0]])).shades[4] == "M0 0h2v1h-2z"


def test_tensors_are_distinguished_by_edges_and_names():
    picture = heat(mapped([[1.0] * 20], columns=places(("weight", 16), ("bias", 4))))

    assert [(label.text, label.lane) for label in picture.columns] == [("weight", 0), ("bias", 0)]
    assert [(edge.x1, edge.x2) for edge in picture.edges] == [(16, 16)]


def test_names_that_would_overlap_lie_in_two_lanes_or_are_left_out():
    names = ["encoder.weight", "encoder.bias", "decoder.weight", "decoder.bias"]
    picture = heat(mapped([[1.0] * 4], columns=places(*((name, 1) for name in names))))

    assert [label.lane for label in picture.columns] == [0, 1]
    for one in picture.columns:
        for other in picture.columns:
            assert one is other or one.lane != other.lane


def test_ticks_and_lines_show_the_first_dimension_of_a_tensor():
    weight = tuple(Place(path="weight", index=(row, column)) for row in range(3) for column in range(4))
    picture = heat(mapped([[1.0] * 16], columns=(*weight, *places(("bias", 4)))))

    assert [tick.label for tick in picture.column_ticks] == ["0", "1", "2", "0", "2"]
    assert picture.grid == "M4 0v1M8 0v1M13 0v1M14 0v1M15 0v1"
    assert [tick.label for tick in picture.row_ticks] == ["0"]


def test_ticks_that_would_overlap_are_left_out():
    picture = heat(mapped([[1.0] * 90]))
    middles = [tick.at for tick in picture.column_ticks]

    assert 5 < len(middles) < 30
    assert min(after - before for before, after in pairwise(middles)) >= 12
    assert not picture.grid


def test_all_pictures_of_a_report_come_in_order():
    kinds = [type(picture).__name__ for picture in pictures(a_fail())]

    assert kinds == ["TaylorPicture", "BarsPicture", "ScatterPicture", "HeatPicture"]


# ── zeros ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "numbers",
    [
        [(1.0, 0.0, 0.0), (1.0, 0.0, 0.0)],
        [(0.0, 2.0, 1e-12), (0.0, 2.0, 1e-12)],
        [(0.0, 0.0, 1e-12), (0.0, 0.0, 1e-12)],
        [(1e-9, 0.0, 1e-12), (-1e-9, 0.0, 1e-12)],
    ],
    ids=["zero slopes", "zero claims", "nothing but zeros", "small claims"],
)
def test_zero_claims_or_slopes_have_axes_of_the_size_of_the_others(numbers):
    picture = scatter(found(*numbers))
    largest = max(max(abs(claimed), abs(numerical)) for claimed, numerical, _ in numbers) or 1.0

    for axis in (picture.x, picture.y):
        labels = [abs(float(tick.label)) for tick in axis]
        assert len(axis) >= 2
        assert max(labels) <= 4 * largest
        assert max(labels) >= 0.1 * largest


def test_a_taylor_test_without_rounding_has_an_axis_of_its_remainders():
    picture = taylor(reading(1e-3, 1e-2, 1e-1, rounding=0.0))

    assert all("⁻²⁷" not in tick.label and "⁻¹¹" not in tick.label for tick in picture.y)
    assert min(dot.y for dot in picture.dots) < 40


def test_errors_of_any_sizes_have_shades():
    assert heat(mapped([[1e308, 1e-308], [1.0, 0.0]])).shades[-1]
