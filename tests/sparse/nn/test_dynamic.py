"""Patterns that change in training: what stays keeps its value and its moments, and the network learns."""

import math

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from gradproof import InputError
from gradproof.sparse import Pattern, SparseLinear, change_pattern_, drop_and_grow_, full_gradient, prune_


@pytest.fixture(autouse=True)
def clean_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def dense(layer, values):
    whole = torch.zeros(layer.pattern.shape, dtype=values.dtype)
    whole[tuple(layer.pattern.coordinates)] = values.detach()
    return whole


def trained(layer, chosen, steps=3):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(16, layer.in_features, generator=generator)
    y = torch.randn(16, layer.out_features, generator=generator)
    for _ in range(steps):
        chosen.zero_grad()
        loss = (layer(x) - y).square().mean()
        loss.backward()
        chosen.step()
    return float(loss.detach())


@pytest.mark.parametrize("entries", [12, 8, 15])
def test_weights_that_stay_keep_values_gradients_and_moments(entries):
    layer = SparseLinear(6, 4, density=0.5)
    adam = torch.optim.Adam(layer.parameters(), lr=0.1)
    trained(layer, adam)
    parameter = layer.weight_values
    state = adam.state[parameter]
    before = [dense(layer, tensor) for tensor in (parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"])]
    pattern = Pattern.random((4, 6), entries / 24)

    change_pattern_(layer, pattern, optimizers=adam)

    assert layer.pattern == pattern.as_csr()[0]
    assert layer.weight_values is parameter
    after = [dense(layer, tensor) for tensor in (parameter, parameter.grad, state["exp_avg"], state["exp_avg_sq"])]
    assert all(new.equal(old * pattern.mask()) for new, old in zip(after, before, strict=True))
    assert int(state["step"]) == 3
    trained(layer, adam)


def test_a_backward_through_the_old_pattern_is_an_error():
    layer = SparseLinear(6, 4, density=0.5)
    loss = layer(torch.ones(2, 6, requires_grad=True)).sum()

    drop_and_grow_(layer, 0.5)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("fraction", [0.0, 0.25, 1.0])
def test_the_smallest_weights_are_dropped_and_others_grow_at_random(fraction):
    layer = SparseLinear(6, 4, density=0.5)
    before, old = dense(layer, layer.weight_values), layer.pattern.mask()
    generator = torch.Generator().manual_seed(0)

    drop_and_grow_(layer, fraction, generator=generator)

    count, new = round(12 * fraction), layer.pattern.mask()
    smallest = before.abs()[old].sort().values[:count]
    assert layer.weight_values.numel() == 12
    assert before[old & ~new].abs().sort().values.equal(smallest)
    assert int((new & ~old).sum()) == count
    assert dense(layer, layer.weight_values).equal(before * new)


def test_weights_grow_where_the_full_gradient_is_largest():
    layer, x = SparseLinear(6, 4, density=0.25, dtype=torch.float64), torch.randn(3, 5, 6, dtype=torch.float64)
    linear, old = layer.to_linear(), layer.pattern.mask()
    (linear(x).square().sum()).backward()

    gradient = full_gradient(layer, lambda: layer(x).square().sum().backward())
    drop_and_grow_(layer, 0.5, scores=gradient)

    assert torch.allclose(gradient, linear.weight.grad)
    grown = layer.pattern.mask() & ~old
    assert gradient[grown].abs().min() >= gradient[~old & ~grown].abs().max()


def test_pruning_keeps_the_largest_weights():
    layer = SparseLinear(6, 4, density=0.5)
    before = layer.weight_values.detach().abs().sort().values

    prune_(layer, 0.25)

    assert layer.weight_values.detach().abs().sort().values.equal(before[-6:])


@pytest.mark.parametrize("compiled", [False, True])
def test_a_layer_with_a_changing_pattern_learns_what_a_fixed_one_cannot(compiled):
    """The target depends on 8 of 64 inputs; a tenth of the weights, at random, do not see them."""
    generator = torch.Generator().manual_seed(0)
    truth = torch.zeros(8, 64)
    truth[:, :8] = torch.randn(8, 8, generator=generator)
    x = torch.randn(256, 64, generator=generator)
    y = x @ truth.T
    losses = {}
    for grow in ("none", "random", "gradient"):
        layer = SparseLinear(64, 8, density=0.125, generator=torch.Generator().manual_seed(2))
        adam = torch.optim.Adam(layer.parameters(), lr=0.05)
        run = torch.compile(layer, backend="aot_eager", fullgraph=True) if compiled else layer
        for step in range(300):
            adam.zero_grad()
            (run(x) - y).square().mean().backward()
            adam.step()
            if step % 10 == 9 and step < 250 and grow != "none":
                scores = None
                if grow == "gradient":
                    scores = full_gradient(layer, lambda layer=layer: (layer(x) - y).square().mean().backward())
                share = 0.3 if scores is None else 0.15 * (1 + math.cos(math.pi * step / 250))  # as the papers have it
                drop_and_grow_(layer, share, scores=scores, optimizers=adam, generator=generator)
        losses[grow] = float((run(x) - y).square().mean().detach())

    assert losses["gradient"] < 0.01 * losses["none"]
    assert losses["random"] < 0.5 * losses["none"]


def test_what_torch_has_pruned_becomes_a_pattern():
    linear = nn.Linear(6, 4)
    prune.l1_unstructured(linear, "weight", amount=0.5)
    x = torch.randn(3, 6)

    layer = SparseLinear.from_linear(linear)

    assert layer.weight_values.numel() == 12
    assert torch.allclose(layer(x), linear(x), atol=1e-6)


def test_a_weight_with_two_of_four_becomes_a_pattern():
    linear, mask = nn.Linear(8, 4), torch.tensor([True, False, False, True]).repeat(4, 2)
    prune.custom_from_mask(linear, "weight", mask)
    prune.remove(linear, "weight")

    layer = SparseLinear.from_linear(linear, pattern=Pattern.from_mask(linear.weight != 0))

    assert layer.pattern.mask().equal(mask)


def stepped_by_lbfgs(layer):
    lbfgs = torch.optim.LBFGS(layer.parameters(), lr=0.0)
    loss = layer(torch.ones(2, 6)).square().sum()
    loss.backward()
    lbfgs.step(lambda: loss)
    return lbfgs


@pytest.mark.filterwarnings("ignore:The PyTorch API of SparseSemiStructuredTensor")
def test_a_packed_weight_with_two_of_four_becomes_a_pattern(monkeypatch):
    packed = torch.sparse.SparseSemiStructuredTensorCUTLASS
    monkeypatch.setattr(packed, "_validate_device_dim_dtype_shape", lambda *_: None)  # it asks for a GPU
    mask = torch.tensor([True, False, False, True]).repeat(128, 32)
    weight = (torch.randn(128, 128) * mask).half()
    linear = nn.Linear(128, 128, bias=False, dtype=torch.half)
    linear.weight = nn.Parameter(packed.from_dense(weight), requires_grad=False)

    layer = SparseLinear.from_linear(linear)

    assert layer.pattern.mask().equal(mask)
    assert layer.to_linear().weight.equal(weight)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda layer: change_pattern_(layer, Pattern.random((6, 4), 0.5)), "does not fit"),
        (lambda layer: change_pattern_(layer, torch.ones(4, 6)), "The pattern is a Tensor"),
        (lambda layer: change_pattern_(nn.Linear(2, 2), layer.pattern), "not a SparseLinear"),
        (lambda layer: change_pattern_(layer, layer.pattern, optimizers=[3]), "something else"),
        (lambda layer: change_pattern_(layer, layer.pattern, optimizers=stepped_by_lbfgs(layer)), "LBFGS has learnt"),
        (lambda layer: drop_and_grow_(layer, 1.5), "from 0 to 1"),
        (lambda layer: drop_and_grow_(layer, 0.5, scores=torch.ones(6, 4)), "scores has shape"),
        (lambda layer: prune_(layer, 0.9), "pruning removes"),
        (lambda layer: prune_(layer, "half"), "from 0 to 1"),
        (lambda layer: drop_and_grow_(SparseLinear(2, 2, density=1.0), 0.5), "cannot grow"),
    ],
)
def test_changes_that_cannot_be_made_leave_the_layer_alone(ask, words):
    layer = SparseLinear(6, 4, density=0.5)
    before = dense(layer, layer.weight_values)

    with pytest.raises(InputError, match=words):
        ask(layer)

    assert dense(layer, layer.weight_values).equal(before)
