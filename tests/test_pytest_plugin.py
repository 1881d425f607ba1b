"""The pytest plugin, in test runs of its own, with and without pytest-xdist."""

import json
import re
import sys

import pytest
import torch

from gradproof import reports_from_json
from gradproof._examine import session

pytest_plugins = ["pytester"]
assert torch  # imported here, so that a run inside this process does not import it a second time

FUNCTIONS = '''
import torch

class Half(torch.autograd.Function):
    """A sine, half of whose gradient is lost."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].cos() / 2

x = torch.ones(3, dtype=torch.float64, requires_grad=True)
'''
SUITE = f"""
{FUNCTIONS}
import gradproof as library
import pytest

def test_right(gradproof):
    gradproof(torch.sin, x)

def test_wrong(gradproof):
    gradproof(Half.apply, x)

def test_without_the_fixture():
    assert not library.check(Half.apply, x).passed

@pytest.mark.parametrize("number", range(6))
def test_many(gradproof, number):
    gradproof(torch.cos, x)
"""


@pytest.fixture
def run(pytester):
    """Runs a suite: its text, then options of the command line."""

    def run_suite(text, *options, conftest="", process=False):
        pytester.makepyfile(test_suite=text)
        if conftest:
            pytester.makeconftest(conftest)
        runner = pytester.runpytest_subprocess if process else pytester.runpytest_inprocess
        return runner("-p", "no:cacheprovider", *options)

    return run_suite


def reports_in(pytester, name="out.json"):
    return reports_from_json((pytester.path / name).read_text())


# ── the fixture ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_fixture_fails_a_test_whose_gradient_is_wrong(run):
    run(SUITE).assert_outcomes(passed=8, failed=1)


def test_the_fixture_returns_the_report(run):
    suite = f"""{FUNCTIONS}
def test_it(gradproof):
    assert gradproof(torch.sin, x).resolution.relative < 1e-6
    assert not gradproof.check(Half.apply, x).passed
"""
    run(suite).assert_outcomes(passed=1)


def test_the_fixture_compares_a_kernel_with_its_reference(run):
    suite = f"""{FUNCTIONS}
import pytest

@pytest.mark.gradproof(coverage="full", seed=7)
def test_right(gradproof):
    assert gradproof.compare(torch.sin, lambda x: (x / 2).sin() * (x / 2).cos() * 2, x).seed == 7

def test_wrong(gradproof):
    gradproof.compare(Half.apply, torch.sin, x)
"""
    run(suite).assert_outcomes(passed=1, failed=1)


def test_an_inconclusive_check_fails_its_test(run):
    suite = FUNCTIONS + "\ndef test_it(gradproof):\n    gradproof(torch.relu, torch.zeros_like(x).requires_grad_())\n"
    result = run(suite)

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E * INCONCLUSIVE  relu*", "E * kink: The slope * before input[[]0[]]*"])


def test_a_failure_shows_the_findings_and_no_line_of_the_library(run):
    text = run(SUITE).stdout.str()

    assert "gradproof(Half.apply, x)" in text
    assert "is wrong in 3 entries" in text
    assert "x[1]" in text
    assert "to blame    Half, " in text
    assert "pytest_plugin.py" not in text
    assert "_check.py" not in text
    assert "raise GradientError" not in text


@pytest.mark.parametrize("call", ["assert_gradients(Half.apply, x)", "gradcheck(Half.apply, x)"])
def test_so_does_a_failure_without_the_fixture(run, call):
    text = run(f"{FUNCTIONS}\nimport gradproof\ndef test_it():\n    gradproof.{call}\n").stdout.str()

    assert f"gradproof.{call}" in text
    assert "is wrong in 3 entries" in text
    assert "raise Grad" not in text
    assert "gradcheck.py" not in text


def test_the_helpers_of_a_test_are_shown(run):
    suite = f"{FUNCTIONS}\ndef helper(verify):\n    verify(Half.apply, x)\n"
    suite += "def test_it(gradproof):\n    helper(gradproof)\n"

    run(suite).stdout.fnmatch_lines(["*in test_it", "    helper(gradproof)", "*in helper", "    verify(Half.apply, x)"])


def test_other_failures_are_shown_as_ever(run):
    text = run(
        f"{FUNCTIONS}\ndef test_it(gradproof):\n    gradproof(torch.sin, x)\n    assert x is None\n"
    ).stdout.str()

    assert "assert x is None" in text
    assert "AssertionError" in text


@pytest.mark.parametrize("style", ["long", "short", "native"])
def test_every_style_of_traceback_shows_the_findings(run, style):
    result = run(SUITE, f"--tb={style}")

    result.assert_outcomes(passed=8, failed=1)
    assert "is wrong in 3 entries" in result.stdout.str()


@pytest.mark.parametrize("call", ["gradproof", "library.assert_gradients", "library.gradcheck"])
def test_a_traceback_of_a_line_points_at_the_test(run, call):
    suite = f"{FUNCTIONS}\nimport gradproof as library\ndef test_it(gradproof):\n    {call}(Half.apply, x)\n"

    run(suite, "--tb=line").stdout.fnmatch_lines(["*test_suite.py:19: *Grad*Error: FAIL  Half*"])


# ── options ──────────────────────────────────────────────────────────────────────────────────────────────────────────

OPTIONS = f"""
{FUNCTIONS}
import pytest

pytestmark = pytest.mark.gradproof(coverage="full", probes=2)

def test_the_module_sets_defaults(gradproof):
    assert gradproof.options == {{"coverage": "full", "probes": 2}}
    assert gradproof(torch.sin, x).subject.coverage == "full"

@pytest.mark.gradproof(coverage="probe", modes="forward")
def test_the_closest_marker_wins(gradproof):
    report = gradproof(torch.sin, x)
    assert (report.subject.coverage, report.subject.derivatives) == ("probe", ("forward",))

def test_a_call_has_the_last_word(gradproof):
    assert gradproof(torch.sin, x, coverage="probe").subject.coverage == "probe"
"""


def test_markers_set_defaults(run):
    run(OPTIONS, "--strict-markers").assert_outcomes(passed=3)


def test_the_command_line_overrides_markers(run):
    suite = f"""{FUNCTIONS}
import pytest

@pytest.mark.gradproof(coverage="probe", seed=1)
def test_it(gradproof):
    report = gradproof(torch.sin, x)
    assert (report.subject.coverage, report.seed) == ("full", 77)
"""
    run(suite, "--gradproof-coverage=full", "--gradproof-seed=77").assert_outcomes(passed=1)


def test_the_seed_of_the_command_line_reaches_every_check(run):
    suite = f"{FUNCTIONS}\nimport gradproof\ndef test_it():\n    assert gradproof.check(torch.sin, x).seed == 77\n"

    run(suite, "--gradproof-seed=77").assert_outcomes(passed=1)
    run(suite).assert_outcomes(failed=1)


def test_the_configuration_file_gives_options_too(run, pytester):
    pytester.makeini("[pytest]\ngradproof_coverage = full\ngradproof_seed = 77\ngradproof_report = out.json\n")
    suite = f"""{FUNCTIONS}
def test_it(gradproof):
    report = gradproof(torch.sin, x)
    assert (report.subject.coverage, report.seed) == ("full", 77)
"""
    run(suite).assert_outcomes(passed=1)
    assert len(reports_in(pytester)) == 1


@pytest.mark.parametrize("line", ["gradproof_coverage = ful", "gradproof_seed = soon", "gradproof_report = out.txt"])
def test_a_configuration_that_means_nothing_is_refused(run, pytester, line):
    pytester.makeini(f"[pytest]\n{line}\n")
    result = run(SUITE, process=True)

    assert result.ret == pytest.ExitCode.USAGE_ERROR


@pytest.mark.parametrize(
    ("option", "said"),
    [("covrage='full'", "*no option covrage=. Did you mean coverage=[?]*"), ("xyz=1", "*There are: atol*")],
)
def test_a_misspelt_option_of_a_marker_is_explained(run, option, said):
    suite = f"{FUNCTIONS}\nimport pytest\n@pytest.mark.gradproof({option})\ndef test_it():\n    pass\n"
    result = run(suite)

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines([said])


def test_hypothesis_accepts_the_fixture(run):
    suite = f"""{FUNCTIONS}
import pytest
from hypothesis import given, settings, strategies as st

@pytest.mark.gradproof(coverage="full")
@settings(max_examples=3, database=None)
@given(st.floats(0.5, 2))
def test_it(gradproof, factor):
    assert gradproof(lambda x: factor * x.sin(), x).subject.coverage == "full"
"""
    run(suite).assert_outcomes(passed=1)


# ── seeds ────────────────────────────────────────────────────────────────────────────────────────────────────────────

SEEDS = f"""
{FUNCTIONS}
import gradproof as library

def test_one(gradproof):
    print("\\nseed", gradproof(torch.sin, x).seed)

def test_other():
    print("\\nseed", library.check(torch.sin, x).seed)
"""


def seeds_of(result):
    return [int(line.split()[1]) for line in result.outlines if line.startswith("seed ")]


def test_a_test_has_a_seed_of_its_own_that_is_the_same_in_every_run(run):
    first, second = (seeds_of(run(SEEDS, "-s", "-v", "--no-header", "-rN")) for _ in range(2))

    assert first == second
    assert len(set(first)) == 2


def test_a_failing_seed_is_kept_until_the_test_passes(pytester):
    pytester.makepyfile(
        test_suite=f"""
{FUNCTIONS}
import os

def test_it(gradproof):
    print("\\nseed", gradproof(Half.apply if "WRONG" in os.environ else torch.sin, x).seed)
"""
    )

    def run(*options):
        return pytester.runpytest_inprocess("-s", *options)

    (usual,) = seeds_of(run())
    pytester._monkeypatch.setenv("WRONG", "1")
    run("--gradproof-seed=77").assert_outcomes(failed=1)
    pytester._monkeypatch.delenv("WRONG")

    assert seeds_of(run("--gradproof-seed=5")) == [5]
    assert seeds_of(run()) == [usual]  # since it has passed
    pytester._monkeypatch.setenv("WRONG", "1")
    run("--gradproof-seed=77").assert_outcomes(failed=1)
    pytester._monkeypatch.delenv("WRONG")
    assert seeds_of(run()) == [77]
    assert seeds_of(run()) == [usual]


# ── summaries ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("style", ["auto", "long", "line", "native"])
def test_the_summary_of_a_failure_is_its_diagnosis_and_its_place(run, style):
    result = run(SUITE, f"--tb={style}")

    if style == "native":  # pytest keeps no summary of it
        return
    result.stdout.re_match_lines(
        [r"FAILED test_suite.py::test_wrong - GradientError: FAIL  Half: The gradient .* ½ .* \(test_suite\.py:\d+\)"]
    )


def test_junit_has_the_diagnosis(run, pytester):
    run(SUITE, "--junit-xml=out.xml")

    assert (
        'message="GradientError: FAIL  Half: The gradient with respect to x is ½'
        in (pytester.path / "out.xml").read_text()
    )


@pytest.mark.parametrize("workers", [0, 2], ids=["alone", "under xdist"])
def test_on_github_a_failure_is_an_annotation_of_the_backward(run, pytester, monkeypatch, workers):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    result = run(SUITE, *(["-n", str(workers)] if workers else []), process=workers > 0)
    source = (pytester.path / "test_suite.py").read_text().splitlines()

    (line,) = (line for line in result.outlines if line.startswith("::error"))
    file, number = re.match(r"::error file=(\S+?),line=(\d+),title=gradproof%3A Half::The gradient .* ½", line).groups()
    assert file == "test_suite.py"
    assert source[int(number) - 1].strip().startswith("def backward")


def test_elsewhere_there_are_no_annotations(run, monkeypatch):
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)

    assert "::error" not in run(SUITE).stdout.str()


def test_a_marker_takes_no_positions(run):
    suite = f"{FUNCTIONS}\nimport pytest\n@pytest.mark.gradproof('full')\ndef test_it(gradproof):\n    pass\n"

    run(suite).stdout.fnmatch_lines(["*takes options by name*"])


def test_the_marker_is_registered(pytester):
    pytester.runpytest("--markers").stdout.fnmatch_lines(["@pytest.mark.gradproof(**options): *"])


# ── reports ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("workers", [0, 2], ids=["alone", "under xdist"])
def test_every_check_of_the_run_is_in_the_report(run, pytester, workers):
    options = ["-n", str(workers)] if workers else []
    result = run(SUITE, "--gradproof-report=out.json", *options, process=workers > 0)
    reports = reports_in(pytester)

    result.assert_outcomes(passed=8, failed=1)
    assert sorted((report.origin.split("::")[1], report.verdict.value) for report in reports) == sorted(
        [
            ("test_right", "pass"),
            ("test_wrong", "fail"),
            ("test_without_the_fixture", "fail"),
            *((f"test_many[{number}]", "pass") for number in range(6)),
        ]
    )
    result.stdout.fnmatch_lines(
        ["gradproof: 9 checks, 7 pass, 2 fail; weakest resolution *e-* (*)", "gradproof: the report is in *out.json"]
    )


def test_the_report_may_be_a_page(run, pytester):
    run(SUITE, "--gradproof-report=deep/down/out.html")
    text = (pytester.path / "deep" / "down" / "out.html").read_text()

    assert text.startswith("<!DOCTYPE html>")
    assert "2 fail, 7 pass" in text
    assert "test_suite.py::test_wrong" in text


def test_the_report_has_nothing_of_the_run_but_checks(run, pytester):
    run("def test_it():\n    pass\n", "--gradproof-report=out.json")

    assert json.loads((pytester.path / "out.json").read_text()) == {"schema": 1, "reports": []}


def test_checks_in_fixtures_are_reported(run, pytester):
    suite = f"""{FUNCTIONS}
import pytest

@pytest.fixture
def prepared(gradproof):
    gradproof(torch.sin, x)
    yield
    gradproof(torch.cos, x)

def test_it(prepared):
    pass
"""
    run(suite, "--gradproof-report=out.json").assert_outcomes(passed=1)

    assert [(each.subject.name, each.origin) for each in reports_in(pytester)] == [
        ("sin", "test_suite.py::test_it"),
        ("cos", "test_suite.py::test_it"),
    ]


def test_a_report_that_cannot_be_written_is_refused_before_the_tests(run, pytester):
    (pytester.path / "file").write_text("")
    result = run(SUITE, "--gradproof-report=file/out.json", process=True)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*--gradproof-report=file/out.json cannot be written*"])


def test_a_report_that_fails_to_be_written_costs_no_failure(run, pytester):
    fails = "import pathlib\ndef fails(*_):\n    raise OSError('the disk is full')\npathlib.Path.replace = fails\n"
    result = run(SUITE, "--gradproof-report=out.json", conftest=fails, process=True)

    result.assert_outcomes(passed=8, failed=1)
    result.stdout.fnmatch_lines(["*= FAILURES =*", "*out.json could not be written: the disk is full*"])
    assert not (pytester.path / "out.json").exists()


def test_tests_that_change_the_working_directory_do_not_move_the_report(run, pytester):
    moving = "import os\n\ndef test_it(tmp_path):\n    os.chdir(tmp_path)\n"
    run(moving, "--gradproof-report=out.json", process=True).assert_outcomes(passed=1)

    assert reports_in(pytester) == ()


def test_a_report_needs_a_name_that_says_what_it_is(run):
    result = run(SUITE, "--gradproof-report=out.txt", process=True)

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*ends in .html or .json*"])


def test_the_weakest_resolution_is_the_largest(run):
    suite = f"{FUNCTIONS}\ndef test_it(gradproof):\n    gradproof(torch.sin, x)\n"
    suite += "def test_coarse(gradproof):\n    gradproof(torch.sin, x.detach().float().requires_grad_())\n"

    run(suite).stdout.fnmatch_lines(["gradproof: 2 checks, 2 pass; weakest resolution *(test_suite.py::test_coarse)"])


def test_a_run_without_checks_says_nothing(run):
    assert "gradproof:" not in run("def test_it():\n    pass\n").stdout.str()


def test_a_run_without_checks_does_not_import_torch(run):
    suite = "import sys\ndef test_it():\n    assert not {'torch', 'rich', 'jinja2'} & set(sys.modules)\n"

    run(suite, process=True).assert_outcomes(passed=1)


def test_the_plugin_can_be_left_out(run):
    run("def test_it(gradproof):\n    pass\n", "-p", "no:gradproof").assert_outcomes(errors=1)


def test_after_the_run_everything_is_as_it_was(run):
    before = (session.seed, list(session.listeners))
    run(SUITE, "--gradproof-seed=3")

    assert (session.seed, session.listeners) == before


# ── replaced ─────────────────────────────────────────────────────────────────────────────────────────────────────────

EXISTING = f"""
{FUNCTIONS}
from torch.autograd import gradcheck, gradgradcheck

class OneEntry(torch.autograd.Function):
    '''The identity, wrong by 0.01 % in one entry: less than torch's tolerance.'''

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * torch.tensor([1, 1, 1.0001], dtype=torch.float64)

def test_right():
    assert gradcheck(torch.sin, (x,), eps=1e-6, atol=1e-4)
    assert torch.autograd.gradcheck(torch.sin, (x,), fast_mode=True)
    assert gradgradcheck(torch.sin, (x,))

def test_subtly_wrong():
    assert gradcheck(OneEntry.apply, (x,))
"""


def test_one_line_switches_an_existing_suite(run, pytester):
    result = run(EXISTING, "--gradproof-report=out.json", "-o", "gradproof_replace_gradcheck=true", process=True)

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(["E * FAIL  OneEntry*"])
    assert len(reports_in(pytester)) == 4


def test_without_that_line_torch_judges(run):
    run(EXISTING).assert_outcomes(passed=2)


def test_after_the_run_torch_has_its_own_again(run):
    mine = torch.autograd.gradcheck
    run(EXISTING, "-o", "gradproof_replace_gradcheck=true").assert_outcomes(passed=1, failed=1)

    assert torch.autograd.gradcheck is mine
    assert sys.modules["torch.autograd.gradcheck"].gradcheck is mine
