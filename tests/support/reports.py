"""Checks of every kind, for reports to be rendered."""

import dataclasses

import torch

import gradproof
from support.functions import wrong_sine
from support.points import point


def a_pass(**options):
    return gradproof.check(torch.sin, point(15), seed=3, **options)


def a_fail(**options):
    return gradproof.check(wrong_sine(2.0, "Scaled"), point(12), seed=3, **options)


def one_wrong_entry():
    factor = torch.ones(1000, dtype=torch.float64)
    factor[417] = 1.0001
    return gradproof.check(wrong_sine(factor, "OneEntry"), point(1000), seed=3)


def an_inconclusive():
    return gradproof.check(torch.relu, torch.zeros(3, dtype=torch.float64, requires_grad=True), seed=3)


def diagnosed(report, *messages):
    """The same report with diagnoses."""
    diagnoses = tuple(
        gradproof.Diagnosis(name=f"kind{number}", message=message, fit=0.9 / (number + 1), hint=f"Hint {number}.")
        for number, message in enumerate(messages)
    )
    finding = dataclasses.replace(report.findings[0], diagnoses=diagnoses)
    return dataclasses.replace(report, findings=(finding, *report.findings[1:]))


def blamed(report, name, message):
    """The same report with a culprit."""
    culprit = gradproof.Culprit(name=name, message=message)
    return dataclasses.replace(report, findings=(dataclasses.replace(report.findings[0], culprits=(culprit,)),))


def named(report, name, origin=""):
    """The same report, of a function of another name."""
    return dataclasses.replace(report, subject=dataclasses.replace(report.subject, name=name), origin=origin)
