import runpy
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", sorted(path.stem for path in EXAMPLES.glob("*.py")))
def test_an_example_runs_and_its_loss_falls(name, capsys):
    losses = runpy.run_path(str(EXAMPLES / f"{name}.py"))["main"]()

    assert losses[-1] < 0.2 * losses[0]
    assert "loss" in capsys.readouterr().out
