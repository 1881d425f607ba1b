"""The command line, through its installed entry point."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from gradproof import Report, reports_from_json
from gradproof.cli.demo import contrasts
from gradproof.gallery import GALLERY

SCRIPT = Path(sys.executable).parent / "gradproof"


def test_a_kernel_is_compared_with_its_reference(gradproof, here):
    right = gradproof("compare", "torch:mul", "mine:product", *["randn(8,4,dtype=bfloat16)"] * 2, "--json", "out.json")
    wrong = gradproof(
        "compare", "torch:add", "mine:product", "float32 randn(8,4)", "float32 randn(8,4)", "--draws", "3"
    )
    misuse = gradproof("compare", "mine:broken", "torch:sin", "randn(3)")

    assert (right.exit_code, wrong.exit_code, misuse.exit_code) == (0, 1, 2)
    assert json.loads((here / "out.json").read_text())["subject"]["reference"] == "product"
    assert "wrong in" in wrong.output
    assert "raised RuntimeError at the given inputs" in misuse.output


# ── as a process ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_installed_command_ends_with_the_code_of_a_fail(here):
    done = subprocess.run([SCRIPT, "check", "mine:Half.apply", "randn(3)"], capture_output=True, text=True, cwd=here)

    assert done.returncode == 1, done.stderr
    assert "is wrong in 3 entries" in done.stdout
    assert "Traceback" not in done.stderr


def test_the_package_runs_as_a_module(here):
    done = subprocess.run([sys.executable, "-m", "gradproof", "--version"], capture_output=True, text=True, cwd=here)

    assert done.stdout.startswith("gradproof, version ")


def test_help_does_not_wait_for_torch():
    code = (
        "import sys; from gradproof.cli import main; main(['check', '--help'], standalone_mode=False);"
        "print('torch' in sys.modules)"
    )

    assert subprocess.check_output([sys.executable, "-c", code], text=True).splitlines()[-1] == "False"


# ── check ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("arguments", "code", "out", "err"),
    [
        (["check", "torch:sin", "randn(3,4)"], 0, "PASS  sin: 12 inputs, 12 outputs", ""),
        (["check", "mine:Half.apply", "randn(3)"], 1, "is wrong in 3 entries", ""),
        (["check", "mine:Half.apply", "randn("], 2, "", "is not an expression"),
        (["check", "torch:relu", "zeros(1)"], 3, "kink: The slope of output[0] is 0 before input[0]", ""),
    ],
)
def test_the_exit_code_tells_the_verdict(gradproof, arguments, code, out, err):
    result = gradproof(*arguments)

    assert result.exit_code == code, result.output
    assert out in result.stdout
    assert err in result.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["torch:sin", "complex128 randn(5)"],
        ["torch:mul", "randn(3)", "2.5"],
        ["torch:mul", "randn(3)", "-2.5"],
        ["torch:mul", "-randn(3)", "-1 * ones(3)", "--seed", "5"],
        ["torch.mul", "randn(3)", "2.5"],
        ["torch.nn.functional.silu", "randn(3)"],
        ["mine:product", "randn(3)", "fixed randn(3)"],
        ["mine:product", "mine:pair"],
        ["mine:product", "randn(3)", "mine:constant"],
        ["mine.py:product", "randn(3)", "randn(3)", "--wrt", "0"],
        ["mine:layer", "randn(4,3)"],
        ["torch:sin", "randn(3)", "--modes", "reverse,forward"],
        ["torch:sin", "randn(3)", "--order", "2"],
        ["torch:sin", "randn(3)", "--full"],
        ["torch:sin", "randn(3)", "--contracts", "linear,batched", "--probes", "2"],
        ["torch:sin", "randn(3)", "--contracts", "none"],
        ["mine:Half.apply", "randn(3)", "--rtol", "0.6"],
        ["mine:Half.apply", "randn(3)", "--atol", "10"],
        ["torch:sin", "float32 randn(3)", "--seed", "0", "--no-progress"],
    ],
    ids=" ".join,
)
def test_a_check_passes(gradproof, arguments):
    result = gradproof("check", *arguments)

    assert result.exit_code == 0, result.output
    assert result.output.startswith("PASS")


def test_the_options_reach_the_check(gradproof):
    result = gradproof("check", "torch:sin", "randn(3)", "--modes", "forward", "--full", "--json", "-")
    report = Report.from_json(result.output)

    assert report.subject.derivatives == ("forward",)
    assert report.subject.coverage == "full"


@pytest.mark.parametrize("seed", [[], ["--seed", "11"]], ids=["a seed of its own", "a seed given"])
def test_a_seed_replays_the_inputs_too(gradproof, seed):
    first = Report.from_json(gradproof("check", "mine:Half.apply", "randn(5)", "--json", "-", *seed).output)
    again = gradproof("check", "mine:Half.apply", "randn(5)", "--json", "-", "--seed", str(first.seed)).output

    assert Report.from_json(again).findings == first.findings
    assert first.seed == 11 or not seed


def test_json_and_html_are_written(gradproof, here):
    result = gradproof("check", "mine:Half.apply", "randn(3)", "--json", "out.json", "--html", "out.html")

    assert result.exit_code == 1
    assert result.output.startswith("FAIL")
    assert not Report.from_json((here / "out.json").read_text()).passed
    assert "<!DOCTYPE html>" in (here / "out.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["check", "torch:sin"], "Missing argument 'INPUT...'"),
        (["check", "torch", "randn(3)"], "write MODULE:NAME"),
        (["check", "torch.no_such_thing", "randn(3)"], "torch has no 'no_such_thing'"),
        (["check", "mine:leave", "randn(3)"], "mine:leave could not be called: SystemExit: 0 (mine.py"),
        (["check", "mine:mute", "randn(3)"], "mine:mute could not be called: Mute (mine.py"),
        (["check", "torch:sin", "1+" * 3000 + "1"], "is not an expression"),
        (["check", "torch:sin", "randn(3)", "--seed", "99999999999"], "seed=99999999999"),
        (["check", "torch:sin", "randn(3)", "--ful"], "No such option"),
        (["check", "torch:sinn", "randn(3)"], "torch has no 'sinn'. Did you mean"),
        (["check", "no_such_module:f", "randn(3)"], "There is no module 'no_such_module'"),
        (["check", "needy:f", "randn(3)"], "needy could not be imported: ModuleNotFoundError"),
        (["check", "faulty:value", "randn(3)"], "ZeroDivisionError: division by zero (faulty.py, line 2)"),
        (["check", "leaving:value", "randn(3)"], "leaving could not be imported: SystemExit: 7"),
        (["check", "no_such_file.py:f", "randn(3)"], "There is no file 'no_such_file.py'"),
        (["check", "mine:broken", "randn(3)"], "RuntimeError: the shapes do not fit (mine.py, line 23)"),
        (["check", "mine:Half", "randn(3)"], "mine:Half is a class"),
        (["check", "mine:constant", "randn(3)"], "cannot be called"),
        (["check", "torch:sin", "mine:no_inputs"], "mine:no_inputs could not be called: ZeroDivisionError"),
        (["check", "torch:sin", "system('ls')"], "not allowed in an input"),
        (["check", "torch:sin", "fixed randn(3)"], "requires grad"),
        (["check", "torch:sin", "randn(3)", "--order", "3"], "the order is 1 or 2"),
        (["check", "torch:sin", "randn(3)", "--modes", "sideways"], "choose from 'reverse' and 'forward'"),
        (["check", "torch:sin", "randn(3)", "--seed", "-1"], "seed=-1"),
        (["check", "torch:sin", "randn(3)", "--probes", "many"], "not a valid integer"),
        (["check", "torch:sin", "randn(3)", "--html", "mine.py/page.html"], "cannot be written"),
        (["report"], "Missing argument"),
        (["report", "nothing.json"], "nothing.json cannot be read"),
        (["report", "mine.py"], "mine.py: This is not JSON"),
        (["demo", "no such scene"], "No scene is called"),
        (["frobnicate"], "No such command"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_misuse_is_reported_in_words(gradproof, arguments, says):
    result = gradproof(*arguments)

    assert result.exit_code == 2, result.output
    assert says in result.output


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
def test_a_sparse_input_is_checked(gradproof, layout):
    result = gradproof("check", "torch:Tensor.to_dense", f"{layout}(8,8,density=.2)", "--masked")

    assert result.exit_code == 0, result.output


# ── report ───────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def files(gradproof):
    """A pass and an inconclusive check, as JSON files."""
    gradproof("check", "torch:sin", "randn(3)", "--json", "a.json")
    gradproof("check", "torch:relu", "zeros(1)", "--json", "b.json")
    return ["a.json", "b.json"]


def test_reports_are_shown_again(gradproof, files):
    result = gradproof("report", files[0])

    assert result.exit_code == 0
    assert result.output.startswith("PASS  sin: 3 inputs")


def test_reports_are_merged(gradproof, files, here):
    result = gradproof("report", *files, "--json", "both.json", "--html", "both.html")

    assert result.exit_code == 3
    assert [report.subject.name for report in reports_from_json((here / "both.json").read_text())] == ["sin", "relu"]
    assert "1 inconclusive, 1 pass" in (here / "both.html").read_text()
    assert gradproof("report", "both.json", *files, "--json", "-").output.count('"verdict"') == 4


def test_many_reports_are_shown_in_a_line_each(gradproof, files):
    result = gradproof("report", *files * 3)

    assert len(result.output.splitlines()) == 6
    assert result.output.splitlines()[1].startswith(
        "INCONCLUSIVE  relu: kink: The slope of output[0] is 0 before input[0]"
    )


def test_the_worst_verdict_gives_the_code(gradproof, files):
    gradproof("check", "mine:Half.apply", "randn(3)", "--json", "c.json")

    assert gradproof("report", "c.json", *files).exit_code == 1


# ── demo, doctor ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def three_scenes(monkeypatch):
    """A demonstration that does not take long."""
    monkeypatch.setattr("gradproof.cli.demo.scenes", lambda: contrasts()[:3])
    return contrasts()[:3]


def test_the_demo_shows_scenes_and_leaves_a_page(gradproof, here, three_scenes):
    result = gradproof("demo")

    assert result.exit_code == 0
    assert "torch.autograd.gradcheck" in result.output
    assert "Found wrong: 1 of 3; of these torch's check with fast_mode=True passes 1." in result.output
    assert "Planted bugs" in (here / "gradproof-demo.html").read_text()


def test_the_demo_shows_one_scene_in_full(gradproof, here):
    result = gradproof("demo", "kink", "--html", "kink.html")

    assert result.output.count("replay") == 1
    assert (here / "kink.html").exists()


def test_a_demo_of_many_scenes_fits_on_a_screen(gradproof, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    scenes = [*list(GALLERY.values())[:12], *contrasts()]
    monkeypatch.setattr("gradproof.cli.demo.scenes", lambda: scenes)

    lines = gradproof("demo").stdout.splitlines()

    assert len(lines) <= 50
    assert max(map(len, lines)) <= 80
    headings = [line for line in lines if not line.startswith(" ")]
    assert [heading.split(",")[0] for heading in headings[:4]] == [
        "Wrong",
        "What the mistake looks like",
        "No derivative at this point",
        "Right",
    ]
    assert "  A right gradient with a sparse result" in lines
    assert any(" lines: Jacobian mismatch" in line for line in lines)


def test_the_doctor_finds_nothing_wrong_here(gradproof):
    result = gradproof("doctor")

    assert result.exit_code == 0, result.output
    for line in ("torch ", "devices ", "✓ reverse mode", "✓ a wrong gradient"):
        assert line in result.output


def test_the_doctor_tells_a_broken_installation(gradproof, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    result = gradproof("doctor")

    assert result.exit_code == 4
    assert "✗ torch" in result.output


def test_json_for_the_terminal_is_one_object(gradproof):
    assert json.loads(gradproof("check", "torch:sin", "randn(3)", "--json", "-").output)["verdict"] == "pass"


# ── how the process ends ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("mine:without_memory", 4, "Memory ran out during the check"),
        ("mine:interrupted", 130, "Interrupted."),
    ],
)
def test_the_exit_code_tells_what_stopped_a_check(gradproof, name, code, says):
    result = gradproof("check", name, "randn(3)")

    assert result.exit_code == code, result.output
    assert says in result.stderr


def test_a_missing_framework_is_reported(gradproof, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    result = gradproof("check", "math:sin", "randn(3)")

    assert result.exit_code == 4
    assert "PyTorch is not installed" in result.stderr


def test_an_error_of_gradproof_itself_is_reported_as_such(gradproof, monkeypatch):
    monkeypatch.setattr("gradproof.cli.commands._inputs", lambda *_: 1 / 0)
    result = gradproof("check", "torch:sin", "randn(3)")

    assert result.exit_code == 4
    assert "gradproof itself raised ZeroDivisionError" in result.stderr


def test_a_file_that_cannot_be_written_is_reported_before_the_check(gradproof, here):
    result = gradproof("check", "mine:Half.apply", "randn(3)", "--json", "mine.py/a.json", "--html", "b.html")

    assert result.exit_code == 2
    assert result.stdout == ""
    assert not (here / "b.html").exists()


def test_a_disk_that_is_full_costs_the_file_and_not_the_report(gradproof, monkeypatch):
    def fails(*_):
        raise OSError("the disk is full")

    monkeypatch.setattr("pathlib.Path.replace", fails)
    result = gradproof("check", "mine:Half.apply", "randn(3)", "--json", "a.json")

    assert result.exit_code == 4
    assert result.stdout.startswith("FAIL")
    assert "a.json could not be written: the disk is full" in result.stderr


def test_a_reader_that_leaves_after_a_line_costs_nothing(here):
    command = (
        f"{SCRIPT} check mine:Half.apply 'randn(3)' --json a.json --html b.html | head -1; echo ${{PIPESTATUS[0]}}"
    )
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=here)

    assert done.stdout.split()[0] == "FAIL"
    assert done.stdout.splitlines()[-1] == "1"
    assert done.stderr == f"The report is in {here / 'b.html'}\n"
    assert (here / "a.json").exists()


@pytest.mark.parametrize("command", [[str(SCRIPT)], [sys.executable, "-m", "gradproof"]], ids=["script", "module"])
def test_no_file_of_the_working_directory_takes_the_place_of_a_dependency(here, command):
    for name in ("click", "rich", "jinja2", "torch"):
        (here / f"{name}.py").write_text("raise SystemExit(77)\n")
    done = subprocess.run([*command, "check", "mine:Half.apply", "randn(3)"], capture_output=True, text=True, cwd=here)

    assert done.returncode == 1, done.stderr


def test_a_module_that_is_named_is_taken_from_the_working_directory_first(gradproof, here, monkeypatch):
    monkeypatch.delitem(sys.modules, "this", raising=False)
    (here / "this.py").write_text("from torch import sin\n")

    assert gradproof("check", "this:sin", "randn(3)").exit_code == 0
    sys.modules.pop("this")


def test_escape_sequences_of_a_report_from_elsewhere_are_shown_and_not_obeyed(gradproof, files, here):
    data = json.loads((here / "a.json").read_text())
    data["notes"] = ["\x1b[2J\x1b]0;owned\x07"]
    (here / "a.json").write_text(json.dumps(data))

    for arguments in (files[:1], files * 3):
        output = gradproof("report", *arguments).output
        assert "\x1b" not in output
    assert r"\x1b[2J" in gradproof("report", files[0]).output
