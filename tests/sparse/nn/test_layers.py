import copy
import math

import pytest
import torch
from torch import nn

import gradproof
from gradproof import InputError
from gradproof.sparse import GraphConvolution, Pattern, SparseLinear, fan_in, scaled_by_fan_in_

DTYPES = (torch.float64, torch.complex128)
RING = torch.tensor([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]])


def graph_layer(dtype=torch.float64, normalization="free", features=(3, 2)):
    layer = GraphConvolution(*features, edge_index=RING, nodes=4, normalization=normalization, dtype=dtype)
    with torch.no_grad():
        layer.edge_weight.copy_(torch.randn(5, dtype=dtype))
    return layer


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("dtype", DTYPES)
def test_derivatives_of_the_sparse_linear_layer_are_verified(dtype, order):
    layer = SparseLinear(6, 4, density=0.4, dtype=dtype)
    x = torch.randn(2, 3, 6, dtype=dtype, requires_grad=True)

    report = gradproof.check(layer, x, modes=("reverse", "forward"), order=order, seed=0)

    assert report.passed, report
    assert {label.split(":")[0] for label in report.subject.arguments} >= {"weight_values", "bias"}


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize(
    ("dtype", "normalization"), [(torch.float64, "free"), (torch.float64, "softmax"), (torch.complex128, "free")]
)
@pytest.mark.parametrize("features", [(3, 2), (2, 3)])
def test_derivatives_of_the_graph_convolution_are_verified(dtype, normalization, features, order):
    layer = graph_layer(dtype, normalization, features)
    x = torch.randn(4, features[0], dtype=dtype, requires_grad=True)

    report = gradproof.check(layer, x, modes=("reverse", "forward"), order=order, seed=0)

    assert report.passed, report


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(6,), (5, 6), (2, 3, 6), (0, 6)])
def test_a_sparse_linear_layer_computes_what_its_dense_twin_does(dtype, shape):
    layer = SparseLinear(6, 4, density=0.4, dtype=dtype)
    twin, x = layer.to_linear(), torch.randn(shape, dtype=dtype)

    assert torch.allclose(layer(x), twin(x))


@pytest.mark.parametrize("features", [(3, 2), (2, 3)])
def test_a_graph_convolution_sums_what_arrives(features):
    layer = graph_layer(features=features)
    x = torch.randn(2, 4, features[0], dtype=torch.float64)
    adjacency = torch.zeros(4, 4, dtype=torch.float64)
    adjacency[RING[1], RING[0]] = layer.edge_weight.detach()

    assert torch.allclose(layer(x), layer.linear(adjacency @ x))


def test_softmax_weights_what_arrives_at_each_node():
    layer = graph_layer(normalization="softmax", features=(1, 1))
    with torch.no_grad():
        layer.linear.weight.fill_(1.0)
        layer.linear.bias.zero_()

    assert torch.allclose(layer(torch.ones(4, 1, dtype=torch.float64)), torch.ones(4, 1, dtype=torch.float64))


def test_a_graph_convolution_starts_with_the_mean_of_what_arrives():
    layer = GraphConvolution(1, 1, edge_index=RING, nodes=4)

    assert layer.edge_weight.tolist() == [1.0, 0.5, 1.0, 1.0, 0.5]


def test_pruning_keeps_the_largest_weights_and_going_back_loses_nothing():
    linear = nn.Linear(8, 4)
    weight = linear.weight.detach()

    layer = SparseLinear.from_linear(linear, density=0.25)
    back = layer.to_linear().weight.detach()

    assert int((back != 0).sum()) == 8
    assert float(back.abs()[back != 0].min()) >= float(weight.abs()[back == 0].max())
    assert back[back != 0].equal(weight[back != 0])
    assert layer.bias.equal(linear.bias)


def test_a_layer_takes_a_pattern_of_any_layout():
    mask = torch.rand(4, 6) < 0.5
    linear = nn.Linear(6, 4)
    for layout, blocksize in ((torch.sparse_coo, None), (torch.sparse_csc, None), (torch.sparse_bsr, (2, 3))):
        pattern = Pattern.from_mask(mask, layout=layout, blocksize=blocksize)
        layer = SparseLinear.from_linear(linear, pattern=pattern)
        assert layer.to_linear().weight.detach().equal(linear.weight.detach() * pattern.mask())


def test_outputs_of_a_full_and_of_a_sparse_row_start_alike():
    mask = torch.zeros(2, 10_000, dtype=torch.bool)
    mask[0], mask[1, :400] = True, True
    pattern = Pattern.from_mask(mask)

    outputs = [scaled_by_fan_in_(pattern, torch.empty(10_400)).split([10_000, 400]) for _ in range(20)]
    spreads = [
        float(torch.stack([row.square().sum().sqrt() for row in rows]).mean()) for rows in zip(*outputs, strict=True)
    ]

    assert fan_in(pattern).tolist() == [10_000, 400]
    assert spreads == pytest.approx([1 / math.sqrt(3)] * 2, rel=0.05)


def test_complex_values_start_with_the_same_spread():
    pattern = Pattern.from_mask(torch.ones(1, 10_000, dtype=torch.bool))

    values = scaled_by_fan_in_(pattern, torch.empty(10_000, dtype=torch.complex64), gain=1.0)

    assert float(values.abs().square().sum()) == pytest.approx(1.0, rel=0.05)


def test_a_state_brings_its_pattern_along():
    one, other = (SparseLinear(6, 4, density=0.5, generator=torch.Generator().manual_seed(k)) for k in range(2))
    x = torch.randn(3, 6)
    assert one.pattern != other.pattern

    other.load_state_dict(one.state_dict())

    assert other.pattern == one.pattern
    assert other(x).equal(one(x))


def test_a_state_with_indices_out_of_range_is_refused_at_its_first_use():
    layer = SparseLinear(6, 4, density=0.5)
    state = layer.state_dict()
    state["col_indices"] = state["col_indices"] + 6
    layer.load_state_dict(state)

    with pytest.raises(InputError, match="out of range"):
        layer(torch.ones(6))


def test_copies_averages_and_other_precisions_work_as_for_any_module():
    layer, x = SparseLinear(6, 4, density=0.5), torch.randn(3, 6)

    average = torch.optim.swa_utils.AveragedModel(layer)
    average.update_parameters(layer)

    assert copy.deepcopy(layer)(x).equal(layer(x))
    assert average(x).equal(layer(x))
    assert layer.double()(x.double()).dtype == torch.float64
    zeros = {"weight_values": layer.weight_values * 0, "bias": layer.bias * 0}
    assert torch.func.functional_call(layer, zeros, x.double()).sum() == 0


def test_mixed_precision_trains():
    net = nn.Sequential(nn.Linear(6, 5), SparseLinear(5, 4, density=0.5))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = net(torch.randn(3, 6)).square().mean()
    loss.backward()

    assert net[1].weight_values.grad.dtype == torch.float32
    assert bool(net[1].weight_values.grad.isfinite().all())


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD])
def test_layers_train_with_torchs_own_optimizers(kind):
    net = nn.Sequential(GraphConvolution(3, 8, edge_index=RING, nodes=4), nn.Tanh(), SparseLinear(8, 2, density=0.5))
    x, y = torch.randn(10, 4, 3), torch.randn(10, 4, 2)
    optimizer = kind(net.parameters(), lr=0.05)
    losses = []
    for _ in range(50):
        optimizer.zero_grad()
        loss = (net(x) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))

    assert losses[-1] < 0.95 * losses[0]


def test_layers_say_what_they_are():
    assert "entries=12, density=0.5" in repr(SparseLinear(6, 4, density=0.5))
    assert "nodes=4, edges=5" in repr(graph_layer())


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: SparseLinear(6, 4), "one of the two"),
        (lambda: SparseLinear(6, 4, density=0.5, pattern=Pattern.random((4, 6), 0.5)), "one of the two"),
        (lambda: SparseLinear(6, 4, pattern=Pattern.random((6, 4), 0.5)), r"W has shape \[4, 6\]"),
        (lambda: SparseLinear(6, 4, density=0.5)(torch.ones(3, 4)), "last dimension has to be 6"),
        (lambda: SparseLinear.from_linear(nn.Linear(6, 4)), "one of the two"),
        (lambda: SparseLinear.from_linear(nn.Linear(6, 4), density=2.0), "from 0 to 1"),
        (lambda: graph_layer()(torch.ones(3, 3)), "4 nodes × 3 features"),
        (lambda: GraphConvolution(1, 1, edge_index=RING, nodes=3), "out of range"),
        (lambda: GraphConvolution(1, 1, edge_index=RING, nodes=4, normalization="mean"), "free, softmax"),
        (lambda: Pattern.of(torch.ones(2, 3, 3).to_sparse_csr()).as_csr(), "is a batch"),
    ],
)
def test_bad_input_is_refused_with_a_reason(ask, words):
    with pytest.raises(InputError, match=words):
        ask()
