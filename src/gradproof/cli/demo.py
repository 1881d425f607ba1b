"""`gradproof demo`: what gradproof says about planted bugs, beside what torch's own check says."""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from gradproof._check import check
from gradproof._report import Report
from gradproof.engine.results import Verdict
from gradproof.gallery import GALLERY

SLOW_CHECKED = 200  # inputs: up to this many, torch's slow check runs too


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A function to check, and what makes its inputs."""

    title: str
    function: Callable[..., Any]
    inputs: Callable[[], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A scene that was checked, and what torch's check says about it."""

    title: str
    report: Report
    torch: str
    overlooked: bool
    """Whether gradproof fails it and torch's fast check passes it."""
    error: str = ""
    """What torch's check raises, in a line: its first words, and how long it goes on."""


def scenes() -> list[Scene]:
    """Return the scenes of the demonstration: the gallery of planted bugs and a few more.

    >>> len(scenes()) > 40
    True
    """
    planted = [Scene(title=each.title, function=each.function, inputs=each.inputs) for each in GALLERY.values()]
    return planted + contrasts()


def contrasts() -> list[Scene]:
    """Return a gradient that is wrong in one entry of a thousand, right ones, and a function at a kink.

    >>> [scene.title for scene in contrasts()][1]
    'A right gradient'
    """

    class OffByABit(torch.autograd.Function):
        """A sine whose backward is wrong by a hundredth of a percent in one entry of a thousand."""

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x.sin()

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            result: torch.Tensor = gradient * x.cos()
            result[417] *= 1.0001
            return result

    def many() -> torch.Tensor:
        generator = torch.Generator().manual_seed(0)
        return torch.randn(1000, dtype=torch.float64, generator=generator).requires_grad_()

    def kink() -> torch.Tensor:
        return torch.tensor([1.5, -0.5, 0.0, 2.0], dtype=torch.float64, requires_grad=True)

    def stored() -> torch.Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's: CSR is in beta
            return torch.eye(4, dtype=torch.float64).to_sparse_csr().requires_grad_()

    title = "A gradient that is wrong by 0.01 % in one entry of a thousand"
    return [
        Scene(title=title, function=OffByABit.apply, inputs=many),
        Scene(title="A right gradient", function=torch.nn.Softplus().double(), inputs=many),
        Scene(title="A function at a kink", function=torch.relu, inputs=kink),
        Scene(title="A right gradient with a sparse result", function=lambda sparse: 2 * sparse, inputs=stored),
    ]


def play(scene: Scene) -> Shown:
    """Check a scene's function, and ask torch's own check too.

    >>> shown = play(contrasts()[0])
    >>> shown.report.verdict.value, shown.torch
    ('fail', 'torch.autograd.gradcheck with fast_mode=True passes it.')
    """
    report = check(scene.function, scene.inputs(), seed=0)
    modes = (True, False) if report.subject.coordinates <= SLOW_CHECKED else (True,)
    given = {fast: _torch_says(scene, fast=fast) for fast in modes}
    answers = {fast: answer for fast, (answer, _) in given.items()}
    said = _in_words(answers)
    return Shown(
        title=scene.title,
        report=dataclasses.replace(report, origin=scene.title, notes=(*report.notes, said)),
        torch=said,
        overlooked=report.verdict is Verdict.FAIL and answers[True] == "passes",
        error=_in_a_line(given[modes[-1]][1]),
    )


def _in_words(answers: dict[bool, str]) -> str:
    if len(answers) == 2 and answers[True] == answers[False]:
        return f"torch.autograd.gradcheck {answers[True]} it, with fast_mode and without."
    said = ", ".join(f"with fast_mode={fast} {verdict} it" for fast, verdict in answers.items())
    return f"torch.autograd.gradcheck {said}."


def _torch_says(scene: Scene, *, fast: bool) -> tuple[str, str]:
    """Return torch's verdict, and what it raises."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about low precision, which gradproof can judge
        try:
            torch.autograd.gradcheck(scene.function, scene.inputs(), fast_mode=fast)
        except Exception as error:
            kind = type(error).__name__
            return "fails" if kind == "GradcheckError" else f"raises {kind} about", str(error)
    return "passes", ""


def _in_a_line(text: str) -> str:
    """Return how many lines a text has, and the first.

    >>> _in_a_line("Jacobian mismatch,\\nnumerical: tensor([[1.]])\\nanalytical: tensor([[2.]])")
    '3 lines: Jacobian mismatch'
    """
    lines = text.strip().splitlines() or [""]
    return f"{len(lines)} lines: {lines[0].rstrip(',')}" if len(lines) > 1 else lines[0]


def played(wanted: str = "") -> Iterator[Shown]:
    """Check the scenes whose titles contain `wanted`, one after the other."""
    return (play(scene) for scene in scenes() if wanted.lower() in scene.title.lower())
