"""Text for a terminal: control characters are escaped, and what the encoding lacks is substituted."""

from __future__ import annotations

import dataclasses
import io
import os
import subprocess
import sys

import pytest

import gradproof
from gradproof.report.characters import harmless, in_encoding
from gradproof.report.terminal import brief, show
from support.functions import wrong_sine
from support.points import ramp

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b31m\r\u202e\ud800"


@pytest.fixture
def hostile():
    """A report whose texts try to command the terminal."""
    report = gradproof.check(wrong_sine(2.0), ramp(3), seed=0)
    subject = dataclasses.replace(report.subject, name=f"f{HOSTILE}", arguments=(HOSTILE,))
    finding = dataclasses.replace(report.findings[0], message=HOSTILE, argument=HOSTILE)
    return dataclasses.replace(report, subject=subject, findings=(finding,), notes=(HOSTILE,), origin=HOSTILE)


@pytest.mark.parametrize("shown", [str, brief], ids=["in full", "in brief"])
def test_a_report_cannot_command_the_terminal(hostile, shown):
    text = shown(hostile)

    assert not set(text) & set(HOSTILE.replace("[2J", "").replace("]0;owned", "").replace("31m", ""))
    assert r"\x1b[2J" in text


def test_data_without_controls_stay_as_they_are():
    report = gradproof.check(wrong_sine(2.0), ramp(3), seed=0)

    assert harmless(report) == report


class Terminal(io.TextIOWrapper):
    """Standard output in an encoding, which raises on what that lacks."""

    def __init__(self, encoding):
        super().__init__(io.BytesIO(), encoding=encoding, errors="strict")

    def text(self):
        self.flush()
        return self.buffer.getvalue().decode(self.encoding)


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "cp1252", "cp437", "utf-8"])
def test_every_terminal_gets_a_report(encoding, monkeypatch):
    report = gradproof.check(wrong_sine(2.0), ramp(3), seed=0)
    terminal = Terminal(encoding)
    monkeypatch.setattr(sys, "stdout", terminal)
    print(report)
    show(report)

    assert terminal.text().count("FAIL  Wrong") == 2
    assert ("±" in terminal.text()) == (encoding != "ascii")


def test_what_has_no_substitute_is_a_question_mark():
    assert in_encoding("日 ±", "ascii") == "? +-"
    assert in_encoding("±", "no such encoding") == "+-"
    assert in_encoding("±", None) == "±"


def test_a_process_with_an_ascii_terminal_ends_as_it_should():
    code = (
        "import torch, gradproof; x = torch.ones(3, dtype=torch.float64, requires_grad=True);"
        "gradproof.check(lambda x: (x + x.detach()).sin(), x, seed=1).show()"
    )
    environment = {**os.environ, "PYTHONIOENCODING": "ascii:strict"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)

    assert done.returncode == 0, done.stderr
    assert "+- bar" in done.stdout
