"""The documents agree with the code: keywords, contracts, explanations, options and tables."""

import ast
import importlib.metadata
import inspect
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner

import gradproof
from gradproof._options import ContractName
from gradproof.cli import main
from gradproof.engine.explanations import EXPLANATIONS

DOCS = Path(__file__).parents[2] / "docs"


def text_of(page):
    return (DOCS / page).read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["gradcheck", "gradgradcheck"])
def test_every_keyword_of_torchs_checks_has_a_row(name):
    rows = re.findall(r"^\| (.*?) \|", text_of("migrating.md"), flags=re.MULTILINE)
    documented = {keyword for row in rows for keyword in re.findall(r"`(\w+)`", row)}

    assert set(inspect.signature(getattr(torch.autograd, name)).parameters) <= documented


@pytest.mark.parametrize("name", ["gradcheck", "gradgradcheck"])
def test_torchs_defaults_are_documented_as_they_are(name):
    text = text_of("migrating.md")
    for keyword, parameter in inspect.signature(getattr(torch.autograd, name)).parameters.items():
        documented = re.findall(rf"^\| `{keyword}` \| `(.*?)` \|", text, flags=re.MULTILINE)
        if parameter.default is not inspect.Parameter.empty and documented:
            assert any(ast.literal_eval(each) == parameter.default for each in documented), keyword


@pytest.mark.parametrize("name", gradproof.__all__)
def test_every_public_name_is_in_the_api(name):
    assert f":: gradproof.{name}\n" in text_of("api.md")


def test_every_command_is_documented():
    for command in main.commands:
        assert f"gradproof {command}" in text_of("command_line.md")


def test_the_hooks_before_a_commit_use_the_ruff_of_the_constraints():
    root = DOCS.parent
    pinned = re.findall(r"^ruff==(\S+)$", (root / "constraints.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    hooks = re.findall(r"ruff==([\d.]+)", (root / ".pre-commit-config.yaml").read_text(encoding="utf-8"))

    assert hooks
    assert set(hooks) == set(pinned)


def test_every_option_of_the_pytest_plugin_is_documented():
    shown = subprocess.check_output([sys.executable, "-m", "pytest", "--help"], text=True)
    options = set(re.findall(r"--gradproof-\w+", shown))

    assert len(options) == 3
    assert all(option in text_of("pytest.md") for option in options)


def test_every_field_of_a_report_is_documented():
    for field in gradproof.Report.__dataclass_fields__:
        assert f"`{field}`" in text_of("reports.md")


@pytest.mark.parametrize("page", ["what_is_checked.md", "diagnosing.md"])
def test_every_reason_has_a_row(page):
    rows = re.findall(r"^\| (`.*?`) \|", text_of(page), flags=re.MULTILINE)
    documented = {value for row in rows for value in re.findall(r"`([a-z-]+)`", row)}

    assert {reason.value for reason in gradproof.Reason} <= documented


def test_every_contract_has_a_row():
    rows = re.findall(r"^\| (`.*?`) \|", text_of("what_is_checked.md"), flags=re.MULTILINE)
    documented = {value for row in rows for value in re.findall(r"`([a-z-]+)`", row)}

    assert {name.value for name in ContractName} <= documented


def test_the_readme_shows_what_both_checks_say():
    answers = runpy.run_path(str(DOCS.parent / "benchmarks" / "beside_gradcheck.py"))["answers"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, about single precision and about CSR
        rows = list(answers())

    assert rows
    for row in rows:
        assert f"| {' | '.join(row)} |\n" in text_of("../README.md")


@pytest.mark.parametrize("page", ["../README.md", "../CONTRIBUTING.md"])
def test_the_folders_that_a_newcomer_is_sent_to_exist(page):
    named = re.findall(r"`((?:engine|frameworks|sparse|report)/[\w/.]*)`", text_of(page))

    assert named
    for path in named:
        assert (DOCS.parent / "src" / "gradproof" / path).exists(), path


def test_the_explanations_are_documented_in_their_order_with_their_reasons():
    documented = re.findall(r"^\| `(\w+)` \| ([a-z-]+) \|", text_of("design.md"), flags=re.MULTILINE)

    assert documented == [(type(each).__name__, each.reason.value) for each in EXPLANATIONS]


def test_the_modules_that_the_design_names_exist():
    named = re.findall(r"`((?:engine|frameworks|sparse|report|gallery)/[\w/.]*)`", text_of("design.md"))

    assert named
    for path in named:
        assert (DOCS.parent / "src" / "gradproof" / path).exists(), path


def test_the_names_that_a_check_passes_exist():
    walk = text_of("design.md").split("## One check, from call to report")[1].split("\n## ")[0]
    named = {part for name in re.findall(r"`([A-Za-z_]\w+(?:\.[A-Za-z_]\w+)?)`", walk) for part in name.split(".")}
    source = "".join(file.read_text(encoding="utf-8") for file in (DOCS.parent / "src").rglob("*.py"))
    defined = set(re.findall(r"(?:def|class) (\w+)", source))

    assert len(named) > 20
    assert named - defined <= {"py", "fail"} | {Path(name).stem for name in re.findall(r"`(\S+)\.py`", walk)}


def test_links_between_documents_lead_somewhere():
    for page in [*DOCS.glob("*.md"), *DOCS.parent.glob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_version_is_the_same_everywhere():
    said = CliRunner().invoke(main, ["--version"]).output.split()[-1]

    assert said == gradproof.__version__ == importlib.metadata.version("gradproof")
