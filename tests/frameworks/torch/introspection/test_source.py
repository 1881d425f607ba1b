"""The file and the line of what is to blame."""

from __future__ import annotations

import inspect
from functools import partial
from pathlib import Path

import torch
from torch import nn

from gradproof import check
from gradproof.frameworks.torch.introspection.source import source_of
from support.points import point


class Wrong(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):  # the backward
        (x,) = ctx.saved_tensors
        return 2 * gradient * x.cos()


class WrongJvp(Wrong):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_forward(x)
        return Wrong.forward(ctx, x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0].cos()

    @staticmethod
    def jvp(ctx, tangent):  # the jvp
        return 2 * tangent * ctx.saved_tensors[0].cos()


class Detached(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(point(3, seed=2).detach())

    def forward(self, x):  # the forward
        return x * self.weight.detach() * self.weight


def line_of(mark):
    lines = inspect.getsource(inspect.getmodule(line_of)).splitlines()
    return next(number for number, line in enumerate(lines, start=1) if line.endswith(f"  # {mark}"))


def place_of(culprit):
    return Path(culprit.file).name, culprit.line


def test_a_whole_function_leads_to_its_backward():
    (finding,) = check(Wrong.apply, point(3), seed=0).findings
    (culprit,) = finding.culprits

    assert (culprit.name, culprit.message) == ("Wrong", "")
    assert place_of(culprit) == ("test_source.py", line_of("the backward"))


def test_a_wrong_jvp_leads_to_the_jvp():
    (finding,) = check(WrongJvp.apply, point(3), seed=0).findings
    (culprit,) = finding.culprits

    assert finding.mode == "forward"
    assert place_of(culprit) == ("test_source.py", line_of("the jvp"))


def test_one_function_among_operators_is_judged_by_itself():
    (finding,) = check(lambda x: Wrong.apply(x.exp()).sum(), point(3), seed=0).findings
    (culprit,) = finding.culprits

    assert culprit.message.startswith("The gradient with respect to x is wrong")
    assert place_of(culprit) == ("test_source.py", line_of("the backward"))


def test_a_right_function_among_operators_is_not_blamed():
    (finding,) = check(lambda x: WrongJvp.apply(x) * x.detach(), point(3), modes="reverse", seed=0).findings

    assert finding.culprits == ()


def test_a_wrong_module_leads_to_its_forward():
    (finding,) = check(nn.Sequential(nn.Tanh(), Detached()), point(3), seed=0).findings
    (culprit,) = finding.culprits

    assert culprit.name == "1 (Detached)"
    assert place_of(culprit) == ("test_source.py", line_of("the forward"))


def test_a_report_says_where_the_function_is_written():
    def function(x):  # the function
        return x.detach() * x

    report = check(partial(function), point(3), seed=0)

    assert (Path(report.subject.file).name, report.subject.line) == ("test_source.py", line_of("the function"))
    assert f"defined in  {report.subject.file}:{report.subject.line}\n" in str(report)


def test_files_below_the_working_directory_are_relative_to_it(monkeypatch):
    here = Path(__file__)

    monkeypatch.chdir(here.parents[1])
    assert source_of(line_of).file == str(here.relative_to(here.parents[1]))
    monkeypatch.chdir(here.anchor)
    monkeypatch.chdir(here.parents[1] / "contracts")
    assert source_of(line_of).file == str(here)


def test_a_function_is_checked_in_a_working_directory_that_was_deleted(monkeypatch, tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()

    assert check(lambda x: x.sin(), point(3), seed=0).passed
    assert Path(source_of(line_of).file).name == "test_source.py"


def test_code_that_no_file_holds_has_no_place():
    names: dict = {}
    exec("def typed(x): return x", names)

    assert source_of(names["typed"]) == ("", 0)
    assert source_of(torch.sin) == ("", 0)
