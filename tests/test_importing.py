"""Importing gradproof: what it brings, what it leaves out, and how long it takes."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

import gradproof


def _fresh(code: str, **environment: str) -> str:
    known = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=known | environment).stdout


@pytest.mark.parametrize("name", ["torch", "rich", "numpy", "scipy", "jax"])
def test_importing_gradproof_does_not_import(name):
    assert _fresh(f"import sys, gradproof; print({name!r} in sys.modules)").strip() == "False"


def test_importing_gradproof_takes_less_than_a_tenth_of_a_second(tmp_path):
    code = "import time; t = time.process_time(); import gradproof; print(time.process_time() - t)"

    times = [float(_fresh(code, PYTHONPYCACHEPREFIX=str(tmp_path))) for _ in range(8)]

    assert min(times) < 0.1, "with compiled files at hand, as after an installation"


def test_a_pass_does_not_import_rich():
    code = (
        "import sys, torch, gradproof; x = torch.ones(2, dtype=torch.float64, requires_grad=True); "
        "gradproof.check(torch.sin, x); print('rich' in sys.modules)"
    )

    assert _fresh(code).strip() == "False"


def test_every_public_name_exists():
    assert all(getattr(gradproof, name) is not None for name in gradproof.__all__)
    assert set(dir(gradproof)) >= set(gradproof.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error():
    with pytest.raises(AttributeError, match="gradients"):
        gradproof.gradients  # noqa: B018  # the access itself is the test
