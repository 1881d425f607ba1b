"""Nothing of the caller's sparse and masked tensors is changed; those without a gradient are passed as they are."""

import warnings

import pytest
import torch
from torch.masked import masked_tensor

from gradproof import Reason, Verdict, check
from gradproof.sparse.pattern.layouts import index_tensors, stored_values, with_values
from support.sparse_samples import EXAMPLES, example


class Doubled(torch.autograd.Function):
    """Twice the entries, with a gradient that is wrong by a factor."""

    @staticmethod
    def forward(ctx, tensor, factor):
        ctx.factor = factor
        return with_values(tensor, 2 * stored_values(tensor))

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


def right(tensor):
    return tensor * 2


def wrong(tensor):
    return Doubled.apply(tensor, 3)


def summed(tensor):
    return torch.sum(tensor)


def raising(tensor):
    raise KeyError("from the function")


def raising_beside(tensor):
    if not tensor.requires_grad:
        raise KeyError("from the function")
    return tensor * 2


def writing(tensor):
    with torch.no_grad():
        stored_values(tensor).mul_(2)
    return tensor * 2


def moving(tensor):
    last = index_tensors(tensor)[-1].view(-1)
    last[-1] = 0 if tensor.layout == torch.sparse_bsc else 3
    return tensor * 2


FUNCTIONS = [right, wrong, summed, raising, raising_beside, writing]


def portrait(tensor):
    """All that there is to see of a sparse tensor."""
    return {
        "values": stored_values(tensor).clone(),
        "indices": tuple(part.clone() for part in index_tensors(tensor)),
        "memory": [part.data_ptr() for part in (*index_tensors(tensor), stored_values(tensor))],
        "coalesced": tensor.layout == torch.sparse_coo and tensor.is_coalesced(),
        "requires_grad": tensor.requires_grad,
        "grad": tensor.grad,
        "leaf": tensor.is_leaf,
        "version": tensor._version,
    }


def assert_unchanged(before, tensor):
    after = portrait(tensor)
    assert torch.equal(before.pop("values"), after.pop("values"))
    assert all(map(torch.equal, before.pop("indices"), after.pop("indices")))
    assert before.pop("grad") is after.pop("grad")
    assert before == after


@pytest.mark.parametrize(
    ("function", "masked"),
    [(function, True) for function in FUNCTIONS] + [(right, False), (wrong, False)],
    ids=lambda each: getattr(each, "__name__", str(each)),
)
@pytest.mark.parametrize("name", EXAMPLES)
def test_a_sparse_input_is_as_it_was(name, function, masked):
    tensor = example(name).tensor.requires_grad_()
    tensor.grad = torch.zeros(tensor.shape, dtype=torch.float64).to_sparse() if "COO" in name else None
    before = portrait(tensor)

    try:
        check(function, tensor, masked=masked, seed=0)
    except KeyError:
        assert function is raising

    assert_unchanged(before, tensor)


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("order", [1, 2])
def test_every_way_of_checking_leaves_a_sparse_input_as_it_was(coverage, order):
    tensor = example("uncoalesced COO").tensor.requires_grad_()
    before = portrait(tensor)

    check(right, tensor, masked=True, seed=0, coverage=coverage, order=order, modes=["reverse", "forward"])

    assert_unchanged(before, tensor)


@pytest.mark.parametrize("name", ["COO", "CSR", "BSC"])
def test_indices_that_a_function_writes_to_are_not_the_caller_s(name):
    tensor = example(name).tensor.requires_grad_()
    before = portrait(tensor)

    report = check(moving, tensor, masked=True, seed=0)

    assert_unchanged(before, tensor)
    assert report.verdict is Verdict.INCONCLUSIVE
    assert report.reason is Reason.MUTATION


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_input_that_needs_no_gradient_comes_through_as_it_is(name):
    sample, seen = example(name, zeros=True), []
    tensor = sample.tensor

    def function(sparse, dense):
        coalesced = sparse.layout == torch.sparse_coo and sparse.is_coalesced()
        seen.append((sparse.layout, stored_values(sparse).numel(), sparse.requires_grad, coalesced))
        assert all(map(torch.equal, index_tensors(sparse), index_tensors(tensor)))
        assert torch.equal(stored_values(sparse), stored_values(tensor))
        return sparse.to_dense() * dense

    dense = torch.ones(tensor.shape, dtype=torch.float64, requires_grad=True)
    report = check(function, (tensor, dense), seed=0, coverage="full")

    coalesced = tensor.layout == torch.sparse_coo and tensor.is_coalesced()
    assert report.verdict is Verdict.PASS
    assert set(seen) == {(tensor.layout, stored_values(tensor).numel(), False, coalesced)}


@pytest.mark.parametrize("masked", [True, False])
def test_of_two_sparse_inputs_the_one_not_probed_comes_through_as_it_is(masked):
    first, second = (example(name).tensor.requires_grad_() for name in ("CSR", "uncoalesced COO"))
    seen = set()

    def function(one, other):
        seen.add((other._nnz(), other.requires_grad))
        return one.to_dense(masked_grad=masked) * other.to_dense()

    report = check(function, (first, second), wrt=0, masked=masked, seed=0)

    assert report.verdict is Verdict.PASS
    assert {count for count, _ in seen} == {6}


def concealed(layout):
    data = torch.tensor([[1.0, 0.0, 2.0], [0.0, 3.0, 4.0]], dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if layout == "strided":
            return masked_tensor(data, data != 0, requires_grad=True)
        data = data.to_sparse_coo() if layout == "COO" else data.to_sparse_csr()
        mask = with_values(data, torch.ones(4, dtype=torch.bool))
        return masked_tensor(data, mask, requires_grad=True)


@pytest.mark.filterwarnings("ignore::UserWarning")  # torch's, of what masked tensors are made of
@pytest.mark.parametrize("layout", ["strided", "COO", "CSR"])
def test_a_masked_input_is_as_it_was(layout):
    tensor = concealed(layout)
    data, mask = tensor._masked_data, tensor._masked_mask
    before = [data.to_dense().clone(), mask.to_dense().clone()]

    report = check(lambda x: x.sin(), tensor, seed=0)

    assert report.verdict is Verdict.PASS
    assert tensor._masked_data is data
    assert tensor._masked_mask is mask
    assert torch.equal(data.to_dense(), before[0])
    assert torch.equal(mask.to_dense(), before[1])
    assert tensor.grad is None
    assert tensor.requires_grad
