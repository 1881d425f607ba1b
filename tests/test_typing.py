"""What a type checker reports to the users of gradproof: the types of results, and their mistakes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest

import gradproof
from gradproof._options import CONTRACT_GROUPS, ContractLiteral, ContractName

SOURCE = Path(gradproof.__file__).parents[1]
CACHE = Path(__file__).parents[1] / ".mypy_cache" / "users"
RIGHT = """
from typing import assert_type

import gradproof
import torch

x = torch.ones(3, dtype=torch.float64, requires_grad=True)
report = gradproof.check(torch.sin, (x, {"y": x}), wrt=0, modes=["reverse"], coverage="full", masked=True, seed=1)
assert_type(report, gradproof.Report)
assert_type(report.passed, bool)
assert_type(report.verdict, gradproof.Verdict)
assert_type(report.reason, gradproof.Reason | None)
assert_type(report.findings, tuple[gradproof.Finding, ...])
assert_type(report.findings[0].entries, tuple[gradproof.Entry, ...])
assert_type(report.resolution.relative, float)
assert_type(report.subject, gradproof.Checked)
assert_type(report.to_json(), str)
assert_type(gradproof.reports_from_json(""), tuple[gradproof.Report, ...])
assert_type(gradproof.gradcheck(torch.sin, (x,), fast_mode=True), bool)
assert_type(gradproof.check_step(torch.optim.SGD([x]), lambda: x.sum(), [x]), gradproof.Report)
assert_type(gradproof.compare(torch.sin, torch.sin, x, draws=3), gradproof.Report)
gradproof.assert_equivalent(torch.sin, torch.sin, x, wrt=0)
gradproof.assert_gradients(torch.sin, x, order=2, contracts=("linear",))
try:
    gradproof.assert_gradients(torch.sin, x)
except gradproof.GradientError as error:
    assert_type(error.report, gradproof.Report)
"""
MISTAKES = """
import gradproof
import torch
from gradproof.pytest_plugin import Checker

x, checker = torch.ones(3), Checker(dict)
gradproof.chek(torch.sin, x)
gradproof.check(torch.sin, x, coverge="full")
gradproof.check(torch.sin, x, coverage="ful")
gradproof.check(torch.sin, x, modes="backward")
gradproof.check(torch.sin, x, modes=["reverse", "forwards"])
gradproof.check(torch.sin, x, order=3)
gradproof.check(torch.sin, x, contracts=("linear", "lineal"))
gradproof.assert_gradients(torch.sin, x, covrage="full")
gradproof.assert_gradients(torch.sin, x, coverage="ful")
gradproof.check_sizes(torch.sin, torch.ones, covrage="full")
gradproof.compare(torch.sin, torch.sin, x, contracts=("lineal",))
checker.check(torch.sin, x, coverage="ful")
checker(torch.sin, x, covrage="full")
gradproof.check(torch.sin, x, masked=None)
gradproof.check("sin", x)
gradproof.assert_gradients(torch.sin, x, rtol="small")
gradproof.check(torch.sin, x).reason.message
"""


def _mypy(folder: Path) -> str:
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", f"--cache-dir={CACHE}", "."]
    return _output(command, folder, MYPYPATH=str(SOURCE))


def _pyright(folder: Path) -> str:
    """pyright's wheel brings its program, and the extra `nodejs` what runs it: nothing is downloaded."""
    pytest.importorskip("pyright")
    settings = {"extraPaths": [str(SOURCE)], "typeCheckingMode": "strict"}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    return _output([sys.executable, "-m", "pyright", "--pythonpath", sys.executable, "."], folder)


def _output(command: list[str], folder: Path, **environment: str) -> str:
    given = os.environ | environment
    return subprocess.run(command, cwd=folder, env=given, capture_output=True, text=True, check=False).stdout


@pytest.fixture(scope="module", params=[_mypy, _pyright], ids=["mypy", "pyright"])
def complaints(request, tmp_path_factory) -> dict[str, set[int]]:
    """The lines of each file of a small project that a type checker complains about, in strict mode."""
    folder = tmp_path_factory.mktemp("project")
    for name, text in (("right", RIGHT), ("mistakes", MISTAKES)):
        (folder / f"{name}.py").write_text(text)
    output = request.param(folder)
    found = re.findall(r"(\w+)\.py:(\d+):.* error", output)
    assert found, output
    return {name: {int(line) for file, line in found if file == name} for name in ("right", "mistakes")}


def test_the_types_name_every_contract():
    assert set(get_args(ContractLiteral)) == {*map(str, ContractName), *CONTRACT_GROUPS}


def test_the_package_says_that_it_is_typed():
    assert (Path(gradproof.__file__).parent / "py.typed").is_file()


def test_results_have_the_documented_types(complaints):
    assert complaints["right"] == set()


def test_every_mistake_is_reported_to_the_user(complaints):
    lines = MISTAKES.splitlines()

    assert [lines[number - 1] for number in sorted(complaints["mistakes"])] == lines[6:]
