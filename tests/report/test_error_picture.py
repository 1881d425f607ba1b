"""Pictures of errors by position."""

from __future__ import annotations

from gradproof.engine.results import ErrorMap
from gradproof.report.characters import in_encoding
from gradproof.report.error_picture import error_pictures, sparkline

FOUND = ErrorMap(
    name="output",
    rows=5,
    columns=300,
    down=1,
    across=100,
    bars=((0.1, 0.3, 0.9),) * 4 + ((0.1, 2.0, float("inf")),),
    ratios=((0.1, 0.3, 1.0),) * 4 + ((1.5, 4.0, float("inf")),),
)


def test_blocks_have_the_shade_of_their_error():
    bars, ratios = error_pictures(FOUND)

    assert [shade for shade, _ in bars.shades] == ["in0", "in1", "in2", "s1", "s4"]
    assert dict(bars.shades)["s4"] == "M2 4h1v1h-1z"
    assert [shade for shade, _ in ratios.shades] == ["in0", "in1", "in2", "s1", "s3", "s4"]
    assert "2 of 15 blocks hold wrong entries" in bars.says
    assert "Half of the blocks are below 0.3" in ratios.says


def test_axes_name_the_first_entry_of_blocks():
    bars, _ = error_pictures(FOUND)

    assert [tick.label for tick in bars.x] == ["0", "200"]
    assert [tick.label for tick in bars.y] == ["0", "2", "4"]


def test_without_a_plain_error_there_is_one_picture():
    (bars,) = error_pictures(ErrorMap(name="x", rows=1, columns=1, down=1, across=1, bars=((0.5,),)))

    assert "No entry is beyond its bar" in bars.says


def test_the_line_of_text_shows_columns_and_rows():
    assert sparkline(FOUND) == "columns 0 ▁▅█ 299, rows 0 ▃▃▃▃█ 4"


def test_a_terminal_without_blocks_shows_other_characters():
    assert in_encoding(sparkline(FOUND), "ascii") == "columns 0 _+# 299, rows 0 ::::# 4"
