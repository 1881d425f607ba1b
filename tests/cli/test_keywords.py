"""Inputs that the command line gives by name."""

import json

import pytest


@pytest.mark.parametrize(
    ("arguments", "checked"),
    [
        (("torch:softmax", "randn(3)", "dim=-1"), ["input: float64[3]"]),
        (("mine:product", "randn(3)", "b=randn(3)"), ["a: float64[3]", "b: float64[3]"]),
        (("mine:product", "b=randn(3)", "a=-2.5"), ["b: float64[3]"]),
        (("mine:layer", "input=randn(2, 3)"), ["input: float64[2, 3]", "weight: float64[2, 3]", "bias: float64[2]"]),
        (("mine:scaled", "randn(3)", "by=mine:constant"), None),
        (("mine:scaled", "randn(3)", "by=fixed randn(3)"), ["x: float64[3]"]),
    ],
)
def test_an_input_may_have_the_name_of_its_parameter(gradproof, arguments, checked):
    result = gradproof("check", *arguments, "--json", "-")
    if checked is None:
        assert result.exit_code == 2
        assert "by has no position" in result.output
    else:
        assert json.loads(result.stdout)["subject"]["arguments"] == checked
        assert result.exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("randn(3)", "c=randn(3)"), "missing a required argument: 'b'"),
        (("randn(3)", "b=ones(3)", "b=ones(3)"), "b is given twice"),
        (("randn(3)", "b=wrong"), "'wrong' is not allowed in an input"),
    ],
)
def test_a_name_that_cannot_be_is_reported_in_words(gradproof, arguments, says):
    result = gradproof("check", "mine:product", *arguments)
    assert (result.exit_code, says in result.output) == (2, True)


def test_a_comparison_takes_names_too(gradproof):
    assert gradproof("compare", "torch:softmax", "torch.nn.functional:softmax", "randn(3, 4)", "dim=0").exit_code == 0


@pytest.mark.parametrize(("option", "reason"), [("--min-resolution=1e-30", "resolution"), ("--budget=1e-9", "budget")])
def test_what_a_check_may_cost_and_has_to_show_is_chosen(gradproof, option, reason):
    result = gradproof("check", "torch:sin", "randn(3)", option)
    assert (result.exit_code, f"why         {reason}" in result.output) == (3, True)


@pytest.mark.parametrize(("options", "explained"), [((), True), (("--explain",), True), (("--no-explain",), False)])
def test_a_wrong_gradient_is_explained_unless_no_explanation_is_wanted(gradproof, options, explained):
    result = gradproof("check", "mine:Half.apply", "randn(3)", *options, "--json", "-")
    (finding,) = json.loads(result.stdout)["findings"]
    assert (result.exit_code, bool(finding["entries"])) == (1, True)
    assert (bool(finding["diagnoses"]), bool(finding["culprits"])) == (explained, explained)
