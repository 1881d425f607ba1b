"""Each family of mistakes, planted in NumPy functions of several shapes: nothing here knows a framework."""

from __future__ import annotations

import math
from itertools import accumulate

import numpy as np
import pytest

from gradproof.engine.diagnosis import diagnosed
from gradproof.engine.judging import judge
from gradproof.engine.options import Probing
from gradproof.engine.results import Place, Verdict
from support.numpy_subject import NumpySubject

SHAPES = [(7,), (4, 5), (2, 3, 4), (20, 15)]
every_shape = pytest.mark.parametrize("shape", SHAPES, ids=str)


class Shaped:
    """A frame of named tensors with shapes; a complex entry is two coordinates."""

    gathered = False

    def __init__(self, shapes, complex_too=()):
        self.names, self.shapes, self.complex_too = list(shapes), list(shapes.values()), set(complex_too)
        sizes = [math.prod(shape) * (2 if name in self.complex_too else 1) for name, shape in shapes.items()]
        self.stops = list(accumulate(sizes))
        self.starts, self.size = [0, *self.stops[:-1]], self.stops[-1]

    @property
    def spans(self):
        return list(zip(self.starts, self.stops, strict=True))

    def locate(self, coordinate):
        number = next(k for k, stop in enumerate(self.stops) if coordinate < stop)
        offset, part = coordinate - self.starts[number], None
        if self.names[number] in self.complex_too:
            part = ("real", "imag")[offset % 2]
            offset //= 2
        index = tuple(map(int, np.unravel_index(offset, self.shapes[number]))) if self.shapes[number] else ()
        return Place(path=self.names[number], index=index, part=part)


def subject_of(value, gradient, inputs, outputs, *, complex_too=(), dtype=np.float64, seed=1):
    """A subject from functions on shaped arrays: `value(*x)`, and `gradient(u, *x)`, a tuple of arrays."""
    frame = Shaped(inputs, complex_too)

    def split(vector):
        pieces = []
        for name, shape, (low, high) in zip(frame.names, frame.shapes, frame.spans, strict=True):
            piece = np.ascontiguousarray(vector[low:high])
            pieces.append((piece.view(complex) if name in frame.complex_too else piece).reshape(shape))
        return pieces

    def flat(array):
        array = np.ascontiguousarray(array)
        return (array.view(float) if np.iscomplexobj(array) else array).reshape(-1)

    def claim(x, u):
        (shape,) = outputs.values()
        u = (np.ascontiguousarray(u).view(complex) if "y" in complex_too else u).reshape(shape)
        pieces = zip(gradient(u, *split(x)), frame.shapes, strict=True)
        return np.concatenate([flat(np.broadcast_to(piece, own)) for piece, own in pieces])

    point = np.random.default_rng(seed).normal(size=frame.size)
    subject = NumpySubject(lambda x: flat(value(*split(x))), claim, point, dtype=dtype)
    subject.inputs, subject.outputs = frame, Shaped(outputs, complex_too)
    return subject


def diagnoses_of(subject, seed=3):
    judgement = judge(subject, probes=1, seed=seed, options=Probing())
    assert judgement.verdict is Verdict.FAIL
    return diagnosed(subject, judgement, seed).findings[0].diagnoses


def first_of(subject):
    found = diagnoses_of(subject)
    return found[0].name if found else None


def elementwise(corrupt, shape, **options):
    """x² + sin x, with a corrupted gradient."""
    return subject_of(
        lambda x: x * x + np.sin(x),
        lambda u, x: (corrupt(u * (2 * x + np.cos(x)), u, x),),
        {"x": shape},
        {"y": shape},
        **options,
    )


@every_shape
@pytest.mark.parametrize("size", [2.0, 0.5, 3.0, -2.0, 1.37])
def test_a_constant_factor_is_named(shape, size):
    (diagnosis, *_) = diagnoses_of(elementwise(lambda right, u, x: size * right, shape))

    assert diagnosis.name == "factor"
    assert diagnosis.fit > 0.999
    expected = {2.0: " 2 times", 0.5: " ½ times", 3.0: " 3 ", -2.0: " −2 times", 1.37: " 1.37 times"}[size]
    assert expected in diagnosis.message


def test_a_factor_that_is_nearly_one_shows_by_how_much_it_is_not():
    (diagnosis, *_) = diagnoses_of(elementwise(lambda right, u, x: (1 + 2e-6) * right, (4, 5)))

    assert " 1.000002 times" in diagnosis.message


def test_a_factor_that_is_a_number_of_entries_says_so():
    subject = subject_of(lambda x: np.array([(x**3).mean()]), lambda u, x: (u * 3 * x * x,), {"x": (5, 7)}, {"y": (1,)})

    (diagnosis, *_) = diagnoses_of(subject)

    assert "35 (the number of entries of x)" in diagnosis.message


def test_a_factor_in_one_number_alone_is_not_named_unless_it_is_a_likely_one():
    odd = subject_of(lambda x: np.exp(x), lambda u, x: (1.2345 * u * np.exp(x),), {"x": (1,)}, {"y": (1,)})
    likely = subject_of(lambda x: np.exp(x), lambda u, x: (2 * u * np.exp(x),), {"x": (1,)}, {"y": (1,)})

    assert first_of(odd) is None
    assert first_of(likely) == "factor"


@every_shape
def test_a_sign_is_named(shape):
    assert first_of(elementwise(lambda right, u, x: -right, shape)) == "sign"


def test_a_factor_in_some_entries_says_which():
    def corrupt(right, u, x):
        right = right.copy()
        right[2:] *= 3
        return right

    (diagnosis, *_) = diagnoses_of(elementwise(corrupt, (6, 4)))

    assert diagnosis.name == "factor"
    assert "in 16 of 24 entries, those in the last 4 of 6 along dimension 0" in diagnosis.message


@pytest.mark.parametrize("shape", [(5, 5), (2, 4, 4), (16, 16), (3, 6)], ids=str)
def test_exchanged_dimensions_are_named(shape):
    subject = elementwise(lambda right, u, x: np.swapaxes(right, -1, -2).reshape(right.shape), shape)

    assert first_of(subject) == "transposed"


@pytest.mark.parametrize("size", [3, 8, 120])
def test_a_matrix_that_is_not_transposed_is_named(size):
    matrix = np.random.default_rng(5).normal(size=(size, size)) / math.sqrt(size)
    subject = subject_of(lambda x: matrix @ x, lambda u, x: (matrix @ u,), {"x": (size,)}, {"y": (size,)})

    (diagnosis, *_) = diagnoses_of(subject)

    assert diagnosis.name == "transposed"
    assert "transposed Jacobian" in diagnosis.message


@pytest.mark.parametrize("shape", [(5,), (3, 4), (12, 11)], ids=str)
@pytest.mark.parametrize(
    ("gradient", "text"),
    [
        (lambda u, z: u * np.exp(z), "with the factors in it conjugated"),
        (lambda u, z: np.conj(u * np.conj(np.exp(z))), "the conjugate of the right one"),
        (lambda u, z: np.conj(u) * np.conj(np.exp(z)), "of the conjugate of the incoming gradient"),
    ],
)
def test_a_missing_conjugate_is_named(shape, gradient, text):
    subject = subject_of(np.exp, lambda u, z: (gradient(u, z),), {"z": shape}, {"y": shape}, complex_too=("z", "y"))

    (diagnosis, *_) = diagnoses_of(subject)

    assert diagnosis.name == "conjugate"
    assert text in diagnosis.message


@pytest.mark.parametrize("shape", [(5,), (9, 8)], ids=str)
def test_lost_imaginary_parts_are_named(shape):
    subject = subject_of(
        lambda z: np.abs(z) ** 2, lambda u, z: ((2 * u * z.real).astype(complex),), {"z": shape}, {"y": shape},
        complex_too=("z",),
    )  # fmt: skip

    (diagnosis, *_) = diagnoses_of(subject)

    assert diagnosis.name == "block"
    assert "in the real parts alone" in diagnosis.message


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


@pytest.mark.parametrize(("length", "reads"), [(5, 8), (30, 50), (400, 700)])
@pytest.mark.parametrize("width", [1, 3])
def test_overwritten_duplicates_are_named(length, reads, width):
    rows = np.random.default_rng(length).integers(0, length, reads)

    def overwrite(u, x):
        result = np.zeros_like(x)
        result[rows] = (u * np.cos(x[rows]))[np.arange(reads)]
        return (result,)

    subject = subject_of(lambda x: np.sin(x[rows]), overwrite, {"x": (length, width)}, {"y": (reads, width)})

    assert first_of(subject) == "overwritten"


@every_shape
@pytest.mark.parametrize("offset", [1, -1])
def test_a_shift_by_one_is_named(shape, offset):
    assert first_of(elementwise(lambda right, u, x: np.roll(right, offset, -1), shape)) == "shifted"


@every_shape
def test_a_shift_of_the_incoming_gradient_is_named(shape):
    subject = elementwise(lambda right, u, x: np.roll(u, 1, -1) * (2 * x + np.cos(x)), shape)

    assert first_of(subject) == "shifted"


@every_shape
@pytest.mark.parametrize(("kept", "text"), [(slice(0, 2), "in the first 2 of"), (slice(-2, None), "in the last 2 of")])
def test_a_block_that_is_right_alone_is_named(shape, kept, text):
    def corrupt(right, u, x):
        result = np.zeros_like(right)
        result[..., kept] = right[..., kept]
        return result

    (diagnosis, *_) = diagnoses_of(elementwise(corrupt, shape))

    assert diagnosis.name == "block"
    assert text in diagnosis.message


@every_shape
def test_a_detached_input_is_named(shape):
    assert first_of(elementwise(lambda right, u, x: 0 * right, shape)) == "detached"


@every_shape
def test_a_mask_that_the_function_has_not_is_named(shape):
    (diagnosis, *_) = diagnoses_of(elementwise(lambda right, u, x: right * (x > 0), shape))

    assert diagnosis.name == "mask"
    assert "where the input is negative" in diagnosis.message


@every_shape
def test_a_mask_that_is_inverted_is_named(shape):
    subject = subject_of(
        lambda x: np.maximum(x, 0) + 0 * x, lambda u, x: (u * (x <= 0),), {"x": shape}, {"y": shape}, seed=4
    )

    (diagnosis, *_) = diagnoses_of(subject)

    assert diagnosis.name == "mask"
    assert "inverted" in diagnosis.message


@every_shape
def test_a_mask_that_is_forgotten_is_named(shape):
    subject = subject_of(
        lambda x: np.maximum(x, 0) ** 3, lambda u, x: (3 * u * x * x,), {"x": shape}, {"y": shape}, seed=4
    )

    assert first_of(subject) == "mask"


def test_a_side_that_is_wrong_is_named():
    subject = elementwise(lambda right, u, x: np.where(x > 0, right, u * x), (5, 6))

    (diagnosis, *_) = diagnoses_of(subject)

    assert diagnosis.name == "mask"
    assert "wrong in the entries where the input is negative" in diagnosis.message


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


@every_shape
@pytest.mark.parametrize("size", [3e-2, 1e-4])
def test_an_approximation_is_named(shape, size):
    assert first_of(elementwise(lambda right, u, x: right * (1 + size * np.sin(5 * x)), shape)) == "approximation"


@every_shape
@pytest.mark.parametrize("seed", range(4))
def test_an_error_without_a_pattern_has_no_name(shape, seed):
    noise = np.random.default_rng(100 + seed).normal(size=shape)

    assert diagnoses_of(elementwise(lambda right, u, x: right * (1 + noise), shape), seed) == ()


@every_shape
@pytest.mark.parametrize("place", [1, 4])
def test_a_lone_wrong_entry_has_no_name(shape, place):
    def corrupt(right, u, x):
        right = right.copy()
        right.reshape(-1)[place] *= 1.23
        return right

    assert diagnoses_of(elementwise(corrupt, shape)) == ()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_low_precision_values_still_tell_a_factor(dtype):
    (diagnosis, *_) = diagnoses_of(elementwise(lambda right, u, x: 2 * right, (4, 3), dtype=dtype))

    assert diagnosis.name == "factor"
    assert " 2 times" in diagnosis.message


class Stored(Shaped):
    """A frame of a tensor of which some entries are coordinates, as of a sparse one."""

    def locate(self, coordinate):
        place = super().locate(coordinate)
        return Place(path=place.path, index=(place.index[0] * 3 + 1, place.index[0]))


def test_a_tensor_of_stored_entries_is_taken_for_a_row_of_them():
    subject = elementwise(lambda right, u, x: 2 * right, (9,))
    subject.inputs = Stored({"x": (9,)})
    doubled = first_of(subject)
    subject = elementwise(lambda right, u, x: right * (1 + 0.3 * np.arange(9) ** 2), (9,))
    subject.inputs = Stored({"x": (9,)})

    assert doubled == "factor"
    assert diagnoses_of(subject) == ()


def test_candidates_are_ranked_by_fit():
    found = diagnoses_of(elementwise(lambda right, u, x: right * (np.arange(5) < 2), (4, 5)))

    assert found[0].name == "block"
    assert [each.fit for each in found] == sorted((each.fit for each in found), reverse=True)


@pytest.mark.parametrize("size", [10, 1000, 100_000])
def test_a_diagnosis_takes_a_bounded_number_of_calls(size):
    noise = np.random.default_rng(0).normal(size=size)
    subject = elementwise(lambda right, u, x: right * (1 + noise), (size,))
    judgement = judge(subject, probes=1, seed=0, options=Probing())
    before = subject.evaluations + subject.pullbacks

    diagnosed(subject, judgement, 0)

    assert subject.evaluations + subject.pullbacks - before < 400
