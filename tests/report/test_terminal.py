"""The report as text: what it says, in how many lines, with and without colors."""

from __future__ import annotations

import re

import pytest
import torch
from torch import nn

from gradproof import Reason, Verdict, check
from gradproof.report.terminal import INDENT
from support.functions import Spoiled
from support.points import point

ESCAPE = "\x1b"
SCREEN = 25  # lines


def doubled_in(x, entries):
    """The identity, whose backward is wrong by a factor of two in its first entries."""
    return Spoiled.apply(x, lambda gradient: torch.cat([2 * gradient[:entries], gradient[entries:]]))


def wrong_in(entries: int):
    def function(x):
        return doubled_in(x, entries).sin()

    return function


def a_pass():
    return check(torch.sin, point(1500), seed=3)


def a_fail():
    return check(wrong_in(30), point(40), seed=3)


def an_inconclusive():
    return check(torch.relu, torch.zeros(3, dtype=torch.float64, requires_grad=True), seed=3)


REPORTS = {"pass": a_pass, "fail": a_fail, "inconclusive": an_inconclusive}
every_verdict = pytest.mark.parametrize("verdict", REPORTS)


def field(text: str, name: str) -> str:
    """What a report says under a heading."""
    (line,) = (line for line in text.splitlines() if line.startswith(f"  {name} "))
    return line.removeprefix(f"  {name}").strip()


# ── plain text ───────────────────────────────────────────────────────────────────────────────────────────────────────


@every_verdict
def test_the_first_line_tells_the_verdict_and_the_sizes(verdict):
    first = str(REPORTS[verdict]()).splitlines()[0]

    assert re.fullmatch(rf"{verdict.upper()}  \S+: [\d,]+ inputs, [\d,]+ outputs", first)


def test_large_numbers_are_grouped():
    assert str(a_pass()).startswith("PASS  sin: 1,500 inputs, 1,500 outputs\n")


def test_one_is_singular():
    assert str(check(torch.sin, point(1), seed=0)).startswith("PASS  sin: 1 input, 1 output\n")


@every_verdict
def test_every_report_says_what_was_checked_and_how_to_replay_it(verdict):
    text = str(REPORTS[verdict]())

    assert re.match(r"(input|x): float64\[", field(text, "checked"))
    assert field(text, "replay") == "seed=3"
    assert re.match(r"\d+ evaluations, \d+ pullbacks?, [\d.]+ m?s \([\d.]+ m?s in your code\)$", field(text, "cost"))


def test_a_pass_says_what_would_have_been_caught():
    report = a_pass()
    resolution = field(str(report), "resolution")

    assert f"an error of {report.resolution.absolute:.1e} in one gradient entry would have been caught" in resolution
    assert f"{report.resolution.relative:.1e} of the largest" in resolution


def test_a_pass_of_a_zero_gradient_says_so():
    text = str(check(lambda x: 0 * x, point(3), seed=0))

    assert "the gradient itself is zero" in field(text, "resolution")
    assert "inf" not in field(text, "resolution")


def test_a_pass_shows_its_notes():
    kept = point(3)
    report = check(lambda x: x * kept, point(3), seed=0)

    assert field(str(report), "note") == report.notes[0]


def test_a_fail_with_more_than_ten_wrong_entries_shows_ten():
    text = str(a_fail())
    rows = [line for line in text.splitlines() if re.match(r"\s+x\[\d+\] ", line)]

    assert len(rows) == 10
    assert "wrong in at least 10 entries" in field(text, "found")


def test_a_further_finding_shows_two_entries_and_says_how_many_more_there_are():
    report = check(lambda x, y: doubled_in(x, 3) * doubled_in(y, 3), (point(3), point(3)), seed=3)

    first, second = (
        re.findall(r"^ {4}(?:[xy]\[|and).*", part, re.MULTILINE) for part in str(report).split("found")[1:]
    )
    assert len(first) == 3
    assert "and 1 more" not in first
    assert len(second) == 3
    assert second[-1].strip() == "and 1 more"


def test_a_fail_shows_claimed_numerical_and_bar_of_an_entry():
    report = check(wrong_in(1), point(5), seed=0)
    (entry,) = report.findings[0].entries
    text = str(report)
    (row,) = (line for line in text.splitlines() if line.lstrip().startswith("x[0]"))

    assert row.split() == [
        "x[0]",
        f"{entry.claimed:.10g}",
        f"{entry.numerical:.10g}",
        f"{entry.bar:.1e}",
        "output[0]",
    ]
    assert "claimed" in text.splitlines()[text.splitlines().index(row) - 1]


def test_the_columns_of_a_fail_are_aligned():
    lines = str(a_fail()).splitlines()
    head = next(number for number, line in enumerate(lines) if line.split()[:2] == ["entry", "claimed"])
    start = lines[head].index("numerical")

    for row in lines[head + 1 : head + 11]:
        assert row[start - 1] == " "
        assert row[start] != " "


def test_a_fail_says_what_it_looks_like_and_gives_a_hint():
    text, (finding,) = str(a_fail()), a_fail().findings
    first = finding.diagnoses[0]

    assert field(text, "looks like") == f"factor: {first.message}"
    assert "2 times the right one in 30 of 40 entries, those in the first 30 of 40" in first.message
    assert field(text, "hint") == first.hint


def test_a_fail_without_a_pattern_says_where_to_compare():
    report = check(wrong_in(1), point(50), seed=3)
    text = str(report)

    assert "looks like" not in text
    assert field(text, "hint") == report.findings[0].hint


def test_a_fail_that_looks_like_several_things_names_the_others_with_their_fit():
    class Fourier(torch.autograd.Function):
        @staticmethod
        def forward(ctx, z):
            return torch.fft.fft(z)

        @staticmethod
        def backward(ctx, gradient):
            return torch.fft.fft(gradient)

    text = str(check(Fourier.apply, point(5, dtype=torch.complex128), seed=0))

    assert field(text, "looks like").startswith("conjugate: ")
    assert field(text, "or") == "transposed (fit 1.00)"


def test_a_fail_names_the_part_to_blame():
    class Layer(nn.Module):
        def __init__(self, entries):
            super().__init__()
            self.entries = entries

        def forward(self, x):
            return doubled_in(x, self.entries).tanh()

    report = check(nn.Sequential(Layer(0), Layer(0), Layer(4), Layer(0)), point(6), seed=0)

    text = str(report)
    assert re.match(r"Spoiled in 2 \(Layer\), \S+functions\.py:\d+$", field(text, "to blame"))
    assert f" by itself: {report.findings[0].culprits[0].diagnoses[0].name}: The gradient with respect to " in text


@pytest.mark.parametrize("coverage", ["probe", "full"])
def test_an_inconclusive_claims_no_resolution(coverage):
    at_kinks = torch.zeros(3, dtype=torch.float64, requires_grad=True)

    assert "resolution" not in str(check(torch.abs, at_kinks, coverage=coverage, seed=0))


def test_a_check_of_nothing_claims_no_error():
    nothing = torch.zeros(0, dtype=torch.float64, requires_grad=True)

    assert field(str(check(torch.abs, nothing, seed=0)), "resolution") == "there is no entry that could be wrong"


def test_a_fail_claims_no_resolution():
    assert "resolution" not in str(a_fail())


def test_a_fail_names_the_part_of_a_complex_entry():
    x = point(3, dtype=torch.complex128)

    text = str(check(lambda x: doubled_in(x.real, 1) + x.imag, x, seed=0))

    assert "x[0].real" in text


def test_an_inconclusive_gives_its_reason_its_message_and_a_hint():
    report = an_inconclusive()
    text = str(report)

    assert report.reason is Reason.KINK
    assert field(text, "why") == f"kink: {report.message}"
    assert field(text, "hint") == report.hint


def test_many_inputs_are_counted():
    text = str(check(lambda *x: sum(x), [point(2) for _ in range(20)], seed=0))

    assert field(text, "checked").endswith("; and 14 more")


def test_square_brackets_are_not_taken_for_markup():
    def function(x):
        return x["[bold]red[/bold]"].sin()

    text = str(check(function, {"[bold]red[/bold]": point(3)}, seed=0))

    assert "[bold]red[/bold]" in field(text, "checked")


# ── length ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@every_verdict
def test_a_report_fits_on_a_screen(verdict):
    assert len(str(REPORTS[verdict]()).splitlines()) <= SCREEN


def test_a_report_with_many_wrong_inputs_fits_on_a_screen():
    def function(*inputs):
        return sum(doubled_in(x, 1).sin() for x in inputs)

    report = check(function, [point(2) for _ in range(20)], seed=0)

    assert report.verdict is Verdict.FAIL
    assert len(str(report).splitlines()) <= SCREEN


def test_a_report_with_many_captured_tensors_fits_on_a_screen():
    layers = nn.Sequential(*(nn.Linear(2, 2) for _ in range(30))).double()

    report = check(lambda x: layers(x), point(1, 2), seed=0)

    assert len(str(report).splitlines()) <= SCREEN


def test_a_report_on_a_backward_with_a_long_message_fits_on_a_screen():
    class Verbose(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.sin()

        @staticmethod
        def backward(ctx, gradient):
            raise RuntimeError("\n".join(f"line {number}" for number in range(200)))

    report = check(Verbose.apply, point(3), seed=0)

    assert report.verdict is Verdict.FAIL
    assert "line 0" in str(report)
    assert len(str(report).splitlines()) <= SCREEN


@every_verdict
def test_text_has_no_trailing_spaces_and_no_blank_lines(verdict):
    lines = str(REPORTS[verdict]()).splitlines()

    assert all(line == line.rstrip() for line in lines)
    assert all(lines)


# ── colours ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def _colour_terminal(monkeypatch):
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")


@pytest.fixture
def _dumb_pipe(monkeypatch):
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)


@every_verdict
def test_plain_text_has_no_escape_codes(verdict):
    assert ESCAPE not in str(REPORTS[verdict]())


@every_verdict
@pytest.mark.usefixtures("_colour_terminal")
def test_plain_text_has_no_escape_codes_even_on_a_colour_terminal(verdict):
    assert ESCAPE not in str(REPORTS[verdict]())


@pytest.mark.parametrize(("verdict", "code"), [("pass", "32"), ("fail", "31"), ("inconclusive", "33")])
@pytest.mark.usefixtures("_colour_terminal")
def test_a_colour_terminal_shows_the_verdict_in_its_colour(verdict, code, capsys):
    REPORTS[verdict]().show()

    assert re.match(rf"{ESCAPE}\[1;{code}m{verdict.upper()}{ESCAPE}\[0m", capsys.readouterr().out)


@every_verdict
@pytest.mark.usefixtures("_colour_terminal")
def test_colours_are_all_that_a_colour_terminal_adds(verdict, capsys):
    report = REPORTS[verdict]()

    report.show()

    assert re.sub(rf"{ESCAPE}\[[\d;]*m", "", capsys.readouterr().out).rstrip("\n") == str(report)


@every_verdict
@pytest.mark.usefixtures("_dumb_pipe")
def test_show_prints_plain_text_into_a_pipe(verdict, capsys):
    report = REPORTS[verdict]()

    report.show()

    assert capsys.readouterr().out.rstrip("\n") == str(report)


@pytest.mark.usefixtures("_colour_terminal")
def test_no_color_is_respected(monkeypatch, capsys):
    monkeypatch.setenv("NO_COLOR", "1")

    a_pass().show()

    assert not re.search(rf"{ESCAPE}\[[\d;]*3[0-7]m", capsys.readouterr().out)


def test_where_nothing_was_differentiated_the_line_of_what_was_checked_ends_with_it():
    def writes(x):
        return x.data.add_(1) + x

    report = check(writes, torch.ones(3, dtype=torch.float64, requires_grad=True), seed=0)

    assert "checked     x: float64[3]\n" in str(report)


# ── width ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def words_of(text):
    return [word for line in text.splitlines() for word in line.split()]


def several_outputs():
    """A wrong gradient of one input, which many outputs depend on."""
    weight = point(5, 3, seed=2).detach()
    return check(lambda batch, scale: weight * batch * doubled_in(scale, 3), (point(5, 3), point(3, seed=4)), seed=0)


@pytest.mark.parametrize("columns", [30, 40, 60, 80, 132])
@pytest.mark.parametrize("make", [a_pass, a_fail, an_inconclusive])
def test_no_line_is_wider_than_the_terminal_and_no_word_is_broken(make, columns, monkeypatch):
    report = make()
    whole = set(words_of(str(report))) - {"entry"}  # the head of a table, which a list does without

    monkeypatch.setenv("COLUMNS", str(columns))
    lines = str(report).splitlines()

    assert set(words_of("\n".join(lines))) - {"entry"} == whole
    for line in lines:
        assert len(line) <= columns or len(max(line.split(), key=len)) > columns - INDENT - 3


def test_what_does_not_fit_goes_on_below_its_start(monkeypatch):
    report = a_fail()
    monkeypatch.setenv("COLUMNS", "60")

    text = str(report)
    after = text.splitlines()[[line[:12] for line in text.splitlines()].index("  looks like") + 1]

    assert re.match(r" {14}\S", after)


@pytest.mark.parametrize("columns", [30, 40, 64, 80])
def test_an_index_is_not_broken(columns, monkeypatch):
    report = several_outputs()
    monkeypatch.setenv("COLUMNS", str(columns))

    text = str(report)

    assert text.count("output[") == len(re.findall(r"output\[\d, \d\]", text)) >= 3
    for line in text.splitlines():
        assert len(line) <= columns or len(max(line.split(), key=len)) > columns - INDENT - 3


def test_a_row_is_one_line_that_counts_the_outputs_which_do_not_fit(monkeypatch):
    report = several_outputs()
    monkeypatch.setenv("COLUMNS", "80")
    entry = report.findings[0].entries[0]

    (row,) = [line for line in str(report).splitlines() if line.strip().startswith(entry_name(report, entry))]

    assert row.endswith(f"{entry.output}, {len(entry.also)} more")


def entry_name(report, entry):
    return f"{report.findings[0].argument}[{', '.join(map(str, entry.index))}]"


def test_a_hint_is_given_once(monkeypatch):
    def thrice(x, y):
        return doubled_in(x, 3) * doubled_in(y, 3)

    report = check(thrice, (point(3), point(3, seed=4)), seed=0)
    hints = [line for line in str(report).splitlines() if line.startswith("  hint ")]

    assert len(report.findings) > 1
    assert len(hints) == 1


def test_a_table_that_does_not_fit_becomes_a_list(monkeypatch):
    report = several_outputs()
    first = report.findings[0].entries[0]
    monkeypatch.setenv("COLUMNS", "40")

    lines = [" ".join(line.split()) for line in str(report).splitlines()]

    assert lines.index(f"claimed {first.claimed:.10g}") + 1 == lines.index(f"numerical {first.numerical:.10g}")


def test_the_output_that_a_number_belongs_to_comes_first():
    report = several_outputs()
    entry = report.findings[0].entries[0]

    assert f"{entry.output}; also {entry.also[0]}, " in str(report)


def test_without_a_terminal_lines_have_80_characters(monkeypatch):
    monkeypatch.delenv("COLUMNS")
    monkeypatch.setattr("os.get_terminal_size", lambda *_: (_ for _ in ()).throw(OSError))

    assert max(map(len, str(several_outputs()).splitlines())) <= 80


@pytest.mark.usefixtures("_colour_terminal")
def test_claimed_and_numerical_have_colours_of_their_own(capsys):
    report = a_fail()
    entry = report.findings[0].entries[0]

    report.show()

    text = capsys.readouterr().out
    assert f"{ESCAPE}[31m{entry.claimed:.10g}{ESCAPE}[0m" in text
    assert f"{ESCAPE}[32m{entry.numerical:.10g}{ESCAPE}[0m" in text


def test_the_part_to_blame_comes_before_the_entries():
    text = str(check(lambda x: doubled_in(x, 3), point(4), seed=0))

    assert text.index("to blame    Spoiled, ") < text.index("claimed")
    assert re.search(r"support/functions\.py:\d+\n", text)


def test_a_report_has_a_short_repr():
    assert re.fullmatch(r"<Report PASS sin: 1,500 inputs, resolution \de-\d\d>", repr(a_pass()))
    assert repr(check(lambda x: 0 * x, point(3), seed=0)).split("resolution")[1].strip(" >") != "inf"
    assert repr(a_fail()).endswith("function: 40 inputs, wrong-gradient in x>")
    assert repr(an_inconclusive()) == "<Report INCONCLUSIVE relu: 3 inputs, kink>"
