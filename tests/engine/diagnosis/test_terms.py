"""Missing sums and terms, ignored incoming gradients, mixed arguments and other points are named."""

from __future__ import annotations

import numpy as np
import pytest

from support.diagnosing import diagnoses_of, elementwise, every_shape, first_of, subject_of


def broadcast(shape, corrupt):
    return subject_of(
        lambda x, b: np.tanh(x * b),
        lambda u, x, b: corrupt(u * (1 - np.tanh(x * b) ** 2), x, b),
        {"x": shape, "b": shape[1:]},
        {"y": shape},
    )


@pytest.mark.parametrize("shape", [(4, 3), (6, 2, 2), (30, 25)], ids=str)
@pytest.mark.parametrize(("row", "word"), [(0, "first"), (-1, "last")])
def test_a_missing_sum_over_a_broadcast_dimension_is_named(shape, row, word):
    (diagnosis, *_) = diagnoses_of(broadcast(shape, lambda flow, x, b: (flow * b, (flow * x)[row])))

    assert diagnosis.name == "missing-sum"
    assert f"takes the {word} slice along dimension 0 of y alone" in diagnosis.message


@pytest.mark.parametrize("shape", [(4, 3), (5, 12), (6, 200)], ids=str)
def test_a_sum_too_many_is_named(shape):
    subject = broadcast(shape, lambda flow, x, b: (flow * b, (flow * x).sum()))

    assert first_of(subject) == "doubled-sum"


@every_shape
def test_an_ignored_incoming_gradient_is_named(shape):
    (diagnosis, *_) = diagnoses_of(elementwise(lambda right, u, x: 2 * x + np.cos(x), shape))

    assert diagnosis.name == "incoming-ignored"
    assert "right where that is all ones" in diagnosis.message


@every_shape
def test_an_incoming_gradient_that_is_ignored_otherwise_is_named_too(shape):
    (diagnosis, *_) = diagnoses_of(elementwise(lambda right, u, x: np.cos(3 * x), shape))

    assert diagnosis.name == "incoming-ignored"
    assert diagnosis.message.endswith("does not change with the incoming gradient.")


@every_shape
def test_an_incoming_gradient_that_is_reduced_to_a_number_is_named(shape):
    subject = elementwise(lambda right, u, x: u.mean() * (2 * x + np.cos(x)), shape)

    assert first_of(subject) == "incoming-ignored"


@every_shape
def test_an_incoming_gradient_that_is_passed_on_is_named(shape):
    assert first_of(elementwise(lambda right, u, x: u, shape)) == "pass-through"


@every_shape
def test_mixed_arguments_are_named(shape):
    subject = subject_of(
        lambda a, b: np.sin(a) * np.exp(b),
        lambda u, a, b: (u * np.sin(a) * np.exp(b), u * np.cos(a) * np.exp(b)),
        {"a": shape, "b": shape},
        {"y": shape},
    )

    (diagnosis, *_) = diagnoses_of(subject)

    assert diagnosis.name == "mixed"
    assert diagnosis.message in ("What is claimed for b is right for a.", "What is claimed for a is right for b.")


@every_shape
@pytest.mark.parametrize(
    "gradient",
    [
        lambda u, x: u / (1 + np.exp(-x)),
        lambda u, x: u * x * np.exp(-x) / (1 + np.exp(-x)) ** 2,
    ],
    ids=["the factor x differentiated alone", "the other factor alone"],
)
def test_a_missing_term_of_a_product_rule_is_named(shape, gradient):
    subject = subject_of(lambda x: x / (1 + np.exp(-x)), lambda u, x: (gradient(u, x),), {"x": shape}, {"y": shape})

    assert first_of(subject) == "missing-term"


@pytest.mark.parametrize("shape", [(2, 5), (6,), (12, 10)], ids=str)
def test_a_missing_term_through_a_shared_sum_is_named(shape):
    def softmax(x):
        weights = np.exp(x - x.max(-1, keepdims=True))
        return weights / weights.sum(-1, keepdims=True)

    subject = subject_of(softmax, lambda u, x: (u * softmax(x),), {"x": shape}, {"y": shape})

    (diagnosis, *_) = diagnoses_of(subject)

    assert diagnosis.name == "missing-term"


@every_shape
def test_a_derivative_at_another_point_is_named(shape):
    subject = elementwise(lambda right, u, x: u * (4 * x + np.cos(2 * x)), shape)

    (diagnosis, *_) = diagnoses_of(subject)

    assert diagnosis.name == "stale"
    assert diagnosis.message.endswith("for 2 x.")


def test_a_derivative_that_reads_what_the_last_call_left_is_named():
    last = {}

    def value(x):
        last["x"] = x.copy()
        return x**3

    subject = subject_of(value, lambda u, x: (3 * u * last["x"] ** 2,), {"x": (6,)}, {"y": (6,)})

    (diagnosis, *_) = diagnoses_of(subject)

    assert diagnosis.name == "stale"
    assert "every call overwrites" in diagnosis.message
