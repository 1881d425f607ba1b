"""Inputs from small expressions: what they make, and what they refuse to run."""

import pytest
import torch

from gradproof import InputError
from gradproof.cli.tensor_expressions import tensor_from


def made(text, seed=0):
    return tensor_from(text, torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("text", "dtype", "shape"),
    [
        ("randn(3,4)", torch.float64, (3, 4)),
        ("complex128 randn(5)", torch.complex128, (5,)),
        ("float32 rand(2, 2)", torch.float32, (2, 2)),
        ("bfloat16 ones(3)", torch.bfloat16, (3,)),
        ("zeros(2)", torch.float64, (2,)),
        ("linspace(0, 1, 7)", torch.float64, (7,)),
        ("tensor([[1, 2], [3, 4]])", torch.float64, (2, 2)),
        ("full(2, value=.5)", torch.float64, (2,)),
        ("2 * rand(3) - 1", torch.float64, (3,)),
        ("-randn(3) / 2", torch.float64, (3,)),
        ("randn()", torch.float64, ()),
    ],
)
def test_a_tensor_is_made_and_requires_grad(text, dtype, shape):
    tensor = made(text)

    assert (tensor.dtype, tuple(tensor.shape)) == (dtype, shape)
    assert tensor.requires_grad
    assert tensor.is_leaf


@pytest.mark.parametrize("text", ["fixed randn(3)", "fixed float32 randn(3)", "float32 fixed randn(3)"])
def test_a_fixed_tensor_needs_no_gradient(text):
    assert not made(text).requires_grad


@pytest.mark.parametrize("text", ["randint(5, high=3)", "int64 zeros(3)", "bool ones(2)"])
def test_whole_numbers_need_no_gradient(text):
    assert not made(text).requires_grad


@pytest.mark.parametrize(("text", "value"), [("3.5", 3.5), ("-2", -2), ("True", True), ("None", None), ("1 + 2", 3)])
def test_numbers_are_numbers(text, value):
    assert made(text) == value


def test_a_list_holds_tensors():
    first, second = made("[randn(2), ones(3)]")

    assert first.requires_grad
    assert second.shape == (3,)


def test_the_same_seed_makes_the_same_tensor():
    assert torch.equal(made("randn(5)", seed=3), made("randn(5)", seed=3))
    assert not torch.equal(made("randn(5)", seed=3), made("randn(5)", seed=4))


def test_the_callers_generator_is_left_alone():
    state = torch.get_rng_state()
    made("csr(10, 10)")

    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("layout", ["coo", "csr", "csc", "bsr", "bsc"])
@pytest.mark.parametrize("density", [0.05, 0.25, 0.8, 1])
@pytest.mark.parametrize("size", ["8, 12", "3, 8, 12"])
@pytest.mark.parametrize("dtype", ["float64", "complex64"])
def test_a_sparse_tensor_has_its_layout_and_density(layout, density, size, dtype):
    tensor = made(f"{dtype} {layout}({size}, density={density})")
    dense = tensor.detach().to_dense()
    blocks = 4 if layout.startswith("b") else 1
    per_matrix = dense[0].numel() if dense.ndim == 3 and layout != "coo" else dense.numel()
    batches = dense.numel() // per_matrix

    assert tensor.layout is getattr(torch, f"sparse_{layout}")
    assert str(tensor.dtype) == f"torch.{dtype}"
    assert tensor.requires_grad
    assert int((dense != 0).sum()) == batches * blocks * max(1, round(density * per_matrix / blocks))


def test_a_large_sparse_tensor_takes_memory_for_its_entries_alone():
    assert made("csr(1000000, 1000000, density=1e-9)").detach().values().shape == (1000,)


def test_blocks_have_the_size_requested():
    assert made("bsr(6, 4, blocksize=(3, 2))").detach().values().shape[1:] == (3, 2)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('true')",
        "open('/etc/passwd')",
        "randn(3).T",
        "(lambda: 1)()",
        "9 ** 9",
        "[x for x in (1, 2)]",
        "'text'",
        "f'{1}'",
        "randn",
        "torch.randn(3)",
        "randn(*[1, 2])",
        "ones(2, **{})",
        "x := 3",
        "1 if True else 2",
    ],
)
def test_nothing_is_evaluated_that_is_not_on_the_list(text):
    with pytest.raises(InputError, match=r"not allowed in an input|not an expression"):
        made(text)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("randn(", "not an expression"),
        ("", "not an expression"),
        ("float64", "not an expression"),
        ("randn(1.5)", "cannot be made"),
        ("randn(-1)", "cannot be made"),
        ("rand(2, wide=3)", "cannot be made"),
        ("randn(10000000000000)", "cannot be made"),
        ("csr(5)", "two sizes"),
        ("csr(5, 5, density=0)", "density"),
        ("csr(5, 5, density=2)", "density"),
        ("bsr(5, 5)", "blocksize="),
        ("1 / 0", "cannot be made"),
        ("(" * 400 + ")" * 400, "not an expression|cannot be made"),
    ],
)
def test_what_cannot_be_made_is_reported_in_words(text, says):
    with pytest.raises(InputError, match=says):
        made(text)
