"""The installed command, in a folder with modules of the user's."""

import sys
from importlib.metadata import entry_points

import pytest
from click.testing import CliRunner

MINE = '''
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


def product(a, b):
    return a * b


def broken(x):
    raise RuntimeError("the shapes do not fit\\nat all")


def pair():
    return torch.ones(3, dtype=torch.float64, requires_grad=True), torch.ones(3, dtype=torch.float64)


def no_inputs():
    return 1 / 0


def leave(x):
    raise SystemExit(0)


def without_memory(x):
    return x * torch.empty(1 << 55)


def interrupted(x):
    raise KeyboardInterrupt


class Mute(Exception):
    def __str__(self):
        raise ValueError("no words")


def mute(x):
    raise Mute()


def scaled(x, *, by):
    return x * by


layer = torch.nn.Linear(3, 2).double()
constant = torch.ones(3, dtype=torch.float64, requires_grad=True)
'''


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a module of the user's, which is forgotten afterwards."""
    (tmp_path / "mine.py").write_text(MINE)
    (tmp_path / "faulty.py").write_text("import torch\nvalue = 1 / 0\n")
    (tmp_path / "needy.py").write_text("import a_module_that_is_not_there\n")
    (tmp_path / "leaving.py").write_text("raise SystemExit(7)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    for name in ("mine", "faulty", "needy", "leaving"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    yield tmp_path
    for name in ("mine", "faulty", "needy", "leaving"):
        sys.modules.pop(name, None)


@pytest.fixture
def gradproof(here):
    """The command that is installed as `gradproof`, run in this process; nothing but an exit may come out of it."""
    (point,) = entry_points(group="console_scripts", name="gradproof")
    command = point.load()

    def run(*arguments):
        result = CliRunner().invoke(command, arguments, prog_name="gradproof")
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert "Traceback" not in result.output
        return result

    return run
