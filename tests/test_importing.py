"""Importing gradproof: what it brings, what it leaves out, and how long it takes."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys

import pytest

import gradproof


def _fresh(code: str, **environment: str) -> str:
    known = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=known | environment).stdout


@pytest.fixture(scope="module")
def report_of_a_fresh_process() -> dict[str, bool]:
    """What is loaded and drawn step by step, from the import to a page, in a process that has seen no report before."""
    code = """
import json, random, sys

import gradproof

absent = ("torch", "rich", "numpy", "scipy", "jax", "gradproof.gallery", "gradproof.cli", "gradproof.sparse")
found = {f"{name} by the import": name in sys.modules for name in absent}
import torch

report = gradproof.check(torch.sin, torch.ones(2, dtype=torch.float64, requires_grad=True))
found |= {f"{name} by a pass": name in sys.modules for name in ("rich", "jinja2")}
state = random.getstate()
str(report)
found["random numbers by a text"] = random.getstate() != state
found["rich by a text"] = "rich" in sys.modules
found["jinja2 by a text"] = "jinja2" in sys.modules
report._repr_html_()
found["jinja2 by a page"] = "jinja2" in sys.modules
print(json.dumps(found))
"""
    return json.loads(_fresh(code))


@pytest.mark.parametrize(
    "name", ["torch", "rich", "numpy", "scipy", "jax", "gradproof.gallery", "gradproof.cli", "gradproof.sparse"]
)
def test_importing_gradproof_does_not_import(name, report_of_a_fresh_process):
    assert not report_of_a_fresh_process[f"{name} by the import"]


@pytest.mark.parametrize("name", ["rich", "jinja2"])
def test_a_pass_does_not_import(name, report_of_a_fresh_process):
    assert not report_of_a_fresh_process[f"{name} by a pass"]


def test_what_renders_a_report_is_imported_when_it_is_needed(report_of_a_fresh_process):
    assert report_of_a_fresh_process["rich by a text"]
    assert not report_of_a_fresh_process["jinja2 by a text"]
    assert report_of_a_fresh_process["jinja2 by a page"]


def test_looking_at_the_first_report_draws_no_random_numbers(report_of_a_fresh_process):
    assert not report_of_a_fresh_process["random numbers by a text"], "rich draws when it is imported"


def test_importing_gradproof_takes_less_than_a_tenth_of_a_second(tmp_path):
    code = "import time; t = time.process_time(); import gradproof; print(time.process_time() - t)"

    times = [float(_fresh(code, PYTHONPYCACHEPREFIX=str(tmp_path))) for _ in range(8)]

    assert min(times) < 0.1, "with compiled files at hand, as after an installation"


def test_every_public_name_exists():
    assert all(getattr(gradproof, name) is not None for name in gradproof.__all__)
    assert set(dir(gradproof)) >= set(gradproof.__all__)


def test_tracebacks_name_errors_by_the_module_that_users_import_them_from():
    public = [getattr(gradproof, name) for name in gradproof.__all__]
    errors = [each for each in public if isinstance(each, type) and issubclass(each, BaseException)]

    assert gradproof.GradcheckError in errors
    assert {error.__module__ for error in errors} <= {"gradproof", "gradproof.errors"}
    assert all(pickle.loads(pickle.dumps(error)) is error for error in errors)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="gradients"):
        gradproof.gradients  # noqa: B018  # the access itself is the test
