"""Every optimizer of torch's on sparse leaves: to the bit what it does to a strided vector of the stored entries."""

import copy
import time

import pytest
import torch

from gradproof import InputError
from gradproof.sparse import Pattern, clip_grad_norm_, clip_grad_value_, optimizer, repack, unpack, values_parameter
from support.sparse_matrices import LAYOUTS, sparse_matrix

OPTIMIZERS = {
    "SGD": {"lr": 0.1},
    "SGD with momentum and decay": {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.1, "nesterov": True},
    "Adam": {"lr": 0.1, "amsgrad": True},
    "AdamW": {"lr": 0.1, "weight_decay": 0.1},
    "AdamW foreach": {"lr": 0.1, "foreach": True},
    "AdamW fused": {"lr": 0.1, "fused": True},
    "Adadelta": {},
    "Adagrad": {"lr": 0.1, "lr_decay": 0.1},
    "Adamax": {"weight_decay": 0.1},
    "ASGD": {},
    "NAdam": {"lr": 0.1},
    "RAdam": {"lr": 0.1},
    "RMSprop": {"lr": 0.1, "momentum": 0.5, "centered": True},
    "Rprop": {},
    "LBFGS": {"lr": 0.5, "max_iter": 3},
}
WEIGHTS = torch.linspace(0.5, 2, 8, dtype=torch.float64)


def kind_of(name):
    return getattr(torch.optim, name.split()[0])


def loss_of(values):
    return (values.reshape(-1) - 1).pow(4).mul(torch.linspace(0.5, 2, values.numel(), dtype=values.dtype)).sum()


def trained(optimizer, loss, *, steps=5, scheduler=None):
    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    for _ in range(steps):
        optimizer.step(closure)
        if scheduler is not None:
            scheduler.step()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_sparse_leaf_is_stepped_as_a_strided_vector_of_its_entries(name, layout):
    a = sparse_matrix(layout)
    indices = [index.clone() for index in Pattern.of(a).indices]
    twin = a.detach().values().clone().requires_grad_()
    start = twin.detach().clone()

    trained(optimizer(kind_of(name), [a], **OPTIMIZERS[name]), lambda: loss_of(unpack(a)[0]))
    trained(kind_of(name)([twin], **OPTIMIZERS[name]), lambda: loss_of(twin))

    assert a.detach().values().equal(twin.detach())
    assert not twin.detach().equal(start)
    assert all(map(torch.equal, Pattern.of(a).indices, indices))


def test_stepping_without_a_closure_reads_the_gradients_of_the_leaves():
    a = sparse_matrix("csc")
    sgd = optimizer(torch.optim.SGD, [a], lr=0.5)
    before = a.detach().to_dense()

    unpack(a)[0].square().sum().backward()
    sgd.step()
    sgd.zero_grad()

    assert torch.allclose(a.detach().to_dense(), 0 * before)
    assert a.grad is None


def test_a_strided_gradient_is_read_at_the_stored_entries():
    a = sparse_matrix("csr")
    before = a.detach().values().clone()
    sgd = optimizer(torch.optim.SGD, [a], lr=1.0)

    a.sum().backward()
    sgd.step()

    assert torch.allclose(a.detach().values(), before - 1)


def test_zeros_take_the_place_of_gradients_where_that_is_requested():
    a = sparse_matrix("bsr")
    sgd = optimizer(torch.optim.SGD, [a], lr=1.0)
    unpack(a)[0].sum().backward()

    sgd.zero_grad(set_to_none=False)

    assert float(a.grad.values().abs().sum()) == 0


def test_a_leaf_without_a_gradient_stays():
    a = sparse_matrix("csr")
    before = a.detach().values().clone()

    optimizer(torch.optim.AdamW, [a], lr=1.0).step()

    assert a.detach().values().equal(before)


def test_groups_schedulers_and_strided_parameters_work_as_ever():
    a, b = sparse_matrix("csr"), sparse_matrix("coo")
    dense = torch.randn(3, dtype=torch.float64, requires_grad=True)
    twins = [leaf.detach().values().clone().requires_grad_() for leaf in (a, b)] + [
        dense.detach().clone().requires_grad_()
    ]

    def groups(first, second, third):
        return [{"params": [first]}, {"params": [second, third], "lr": 0.01, "weight_decay": 0.5}]

    ours = optimizer(torch.optim.AdamW, groups(a, b, dense), lr=0.1)
    theirs = torch.optim.AdamW(groups(*twins), lr=0.1)
    for chosen, leaves in ((ours, lambda: (unpack(a)[0], unpack(b)[0], dense)), (theirs, lambda: twins)):
        scheduler = torch.optim.lr_scheduler.StepLR(chosen, 2, 0.1)
        trained(chosen, lambda leaves=leaves: sum(map(loss_of, leaves())), scheduler=scheduler)

    assert isinstance(ours, torch.optim.AdamW)
    assert [group["lr"] for group in ours.param_groups] == [group["lr"] for group in theirs.param_groups]
    for mine, its in zip((a.detach().values(), b.detach().values(), dense), twins, strict=True):
        assert mine.equal(its)


def test_a_group_may_be_added_later_and_parameters_may_be_named():
    a, b = sparse_matrix("csr"), sparse_matrix("csc")
    adam = optimizer(torch.optim.Adam, [("a", a)], lr=0.1)
    adam.add_param_group({"params": [("b", b)], "lr": 0.2})
    before = b.detach().values().clone()

    (unpack(a)[0].sum() + unpack(b)[0].sum()).backward()
    adam.step()

    assert torch.allclose(b.detach().values(), before - 0.2)
    assert adam.param_groups[1]["param_names"] == ["b"]


def test_training_goes_on_from_a_saved_state():
    a = sparse_matrix("csr")
    b = a.detach().clone().requires_grad_()
    first = optimizer(torch.optim.AdamW, [a], lr=0.1)
    trained(first, lambda: loss_of(unpack(a)[0]), steps=3)
    state, values = copy.deepcopy(first.state_dict()), a.detach().values().clone()
    trained(first, lambda: loss_of(unpack(a)[0]), steps=3)

    b.detach().values().copy_(values)
    second = optimizer(torch.optim.AdamW, [b], lr=0.7)
    second.load_state_dict(state)
    trained(second, lambda: loss_of(unpack(b)[0]), steps=3)

    assert b.detach().values().equal(a.detach().values())


def test_a_state_is_that_of_the_strided_optimizer():
    a = sparse_matrix("csr")
    twin = a.detach().values().clone().requires_grad_()
    ours, theirs = optimizer(torch.optim.Adam, [a]), torch.optim.Adam([twin])
    trained(ours, lambda: loss_of(unpack(a)[0]))
    trained(theirs, lambda: loss_of(twin))

    mine, its = ours.state_dict()["state"][0], theirs.state_dict()["state"][0]
    assert all(mine[name].equal(its[name]) for name in its)


def test_a_scaler_of_gradients_sees_them_where_it_looks():
    a = sparse_matrix("csc", torch.float32)
    before = a.detach().values().clone()
    sgd, scaler = optimizer(torch.optim.SGD, [a], lr=1.0), torch.amp.GradScaler("cpu", init_scale=1024.0)

    scaler.scale(unpack(a)[0].sum()).backward()
    scaler.unscale_(sgd)
    scaler.step(sgd)
    scaler.update()

    assert torch.allclose(a.detach().values(), before - 1)


def test_the_values_of_a_leaf_are_its_memory():
    a = sparse_matrix("csr")

    values = values_parameter(a)
    with torch.no_grad():
        values.fill_(7.0)

    assert set(a.detach().values().tolist()) == {7.0}


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda a: optimizer(torch.optim.SparseAdam, [a]), "torch.optim.Adam"),
        (lambda a: optimizer("Adam", [a]), "not an optimizer class"),
        (lambda a: optimizer(torch.optim.Adam, [a.detach()]), "not a leaf that requires grad"),
        (lambda a: values_parameter(a.detach().to_dense()), "strided"),
    ],
)
def test_what_cannot_be_stepped_is_refused_with_a_reason(ask, words):
    with pytest.raises(InputError, match=words):
        ask(sparse_matrix("csr"))


def test_a_gradient_of_another_pattern_stops_the_step_before_anything_moved():
    a = torch.eye(3).to_sparse_csr().requires_grad_()
    b = torch.eye(3).to_sparse_csr().requires_grad_()
    a.grad, b.grad = torch.eye(3).to_sparse_csr(), torch.ones(3, 3).to_sparse_csr()
    sgd = optimizer(torch.optim.SGD, [a, b], lr=1.0)

    with pytest.raises(InputError, match="has another pattern"):
        sgd.step()

    assert a.detach().to_dense().equal(torch.eye(3))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("norm", [1.0, 2.0, float("inf")])
def test_clipping_by_norm_is_that_of_the_strided_values(layout, norm):
    a, dense = sparse_matrix(layout), torch.randn(3, dtype=torch.float64, requires_grad=True)
    twins = [a.detach().values().clone().requires_grad_(), dense.detach().clone().requires_grad_()]
    (unpack(a)[0].pow(3).sum() + dense.pow(3).sum()).backward()
    (twins[0].pow(3).sum() + twins[1].pow(3).sum()).backward()

    ours = clip_grad_norm_([a, dense], 0.5, norm)
    theirs = torch.nn.utils.clip_grad_norm_(twins, 0.5, norm)

    assert ours.equal(theirs)
    assert a.grad.values().equal(twins[0].grad)
    assert dense.grad.equal(twins[1].grad)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_clipping_by_value_is_that_of_the_strided_values(layout):
    a = sparse_matrix(layout)
    unpack(a)[0].pow(3).sum().backward()
    expected = a.grad.values().clamp(-0.1, 0.1)

    clip_grad_value_(a, 0.1)

    assert a.grad.values().equal(expected)


def test_clipping_adds_up_uncoalesced_gradients_and_minds_what_is_absent():
    a = torch.eye(2).to_sparse().coalesce().requires_grad_()
    a.grad = torch.sparse_coo_tensor([[0, 0], [0, 0]], [3.0, 1.0], (2, 2), check_invariants=True)

    norm = clip_grad_norm_([a, torch.ones(1, requires_grad=True)], 1.0)

    assert float(norm) == 4
    assert float(a.grad.to_dense()[0, 0]) == pytest.approx(1.0)
    a.grad = (torch.eye(2) * float("nan")).to_sparse()
    with pytest.raises(RuntimeError, match="non-finite"):
        clip_grad_norm_([a], 1.0, error_if_nonfinite=True)


def test_complex_gradients_are_not_clamped():
    a = sparse_matrix("csr", torch.complex128)
    a.grad = a.detach().clone()

    with pytest.raises(InputError, match="no order"):
        clip_grad_value_([a], 1.0)


def test_a_step_costs_little_more_than_on_a_strided_vector():
    count, pattern = 1_000_000, Pattern.random((10_000, 1_000), 0.1)
    times = {"sparse": [], "strided": []}
    for _ in range(5):  # where vectors happen to lie in memory makes more of a difference than anything else
        a = repack(torch.randn(count), pattern).detach().requires_grad_()
        dense = torch.randn(count, requires_grad=True)
        a.grad, dense.grad = repack(torch.randn(count), pattern), torch.randn(count)
        ours, theirs = optimizer(torch.optim.AdamW, [a]), torch.optim.AdamW([dense])
        for _ in range(5):
            for name, chosen in (("sparse", ours), ("strided", theirs)):
                began = time.process_time()
                chosen.step()
                times[name].append(time.process_time() - began)

    assert min(times["sparse"]) <= 1.3 * min(times["strided"])
