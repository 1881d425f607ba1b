"""What used to lose gradients or steps without a word: each either works or raises."""

import copy
import pickle
import threading

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

from gradproof import InputError
from gradproof.sparse import (
    GraphConvolution,
    Pattern,
    SparseLinear,
    clip_grad_norm_,
    matmul,
    optimizer,
    row_softmax,
    sampled_matmul,
)
from support.sparse_matrices import COLUMNS, LAYOUTS, sparse_matrix

X = torch.ones(COLUMNS, 2, dtype=torch.float64)


class Product(nn.Module):
    def __init__(self, layout):
        super().__init__()
        self.weight = nn.Parameter(sparse_matrix(layout).detach())

    def forward(self, x):
        return matmul(self.weight, x)


def step_of(chosen, leaf):
    """By how much a step moves a leaf."""
    before = leaf.detach().to_dense().clone()
    chosen.zero_grad()
    matmul(leaf, X.to(leaf.dtype)).sum().backward()
    chosen.step()
    return float((leaf.detach().to_dense() - before).abs().max())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_parameter_moves_after_a_state_was_loaded_into_it(layout):
    net = Product(layout)
    state = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    sgd = optimizer(torch.optim.SGD, net.parameters(), lr=0.1)

    net.load_state_dict(state)

    assert step_of(sgd, net.weight) == pytest.approx(0.2)


def test_a_coo_parameter_is_converted_with_what_its_optimizer_learnt():
    net = Product("coo")
    adam = optimizer(torch.optim.AdamW, net.parameters(), lr=0.1)
    step_of(adam, net.weight)

    net.float()

    assert step_of(adam, net.weight) == pytest.approx(0.1, rel=0.1)


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
def test_a_compressed_parameter_that_torch_converts_in_name_alone_is_refused(layout):
    net = Product(layout)

    net.float()

    with pytest.raises(InputError, match=r"nn.Parameter\(weight.detach\(\).to\(dtype\)\)"):
        net(X.float())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_backwards_of_several_threads_lose_no_gradient(layout):
    leaf, calls, backwards = sparse_matrix(layout), 4, 25
    alone = sparse_matrix(layout)
    matmul(alone, X).sum().backward()

    def run():
        for _ in range(backwards):
            matmul(leaf, X).sum().backward()

    threads = [threading.Thread(target=run) for _ in range(calls)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert leaf.grad.to_dense().equal(alone.grad.to_dense() * (calls * backwards))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_leaf_and_its_optimizer_are_pickled_together(layout):
    leaf = sparse_matrix(layout)
    adam = optimizer(torch.optim.Adam, [leaf], lr=0.1)
    step_of(adam, leaf)

    twin, its = pickle.loads(pickle.dumps((leaf, adam)))

    assert twin.detach().to_dense().equal(leaf.detach().to_dense())
    assert step_of(its, twin) == step_of(adam, leaf)
    assert twin.detach().to_dense().equal(leaf.detach().to_dense())


def test_a_leaf_and_its_optimizer_are_copied_together():
    leaf = sparse_matrix("coo")  # torch cannot copy the other layouts
    adam = optimizer(torch.optim.Adam, [leaf], lr=0.1)
    step_of(adam, leaf)
    before = leaf.detach().to_dense().clone()

    twin, its = copy.deepcopy((leaf, adam))

    assert step_of(its, twin) > 0
    assert leaf.detach().to_dense().equal(before)


def test_hooks_after_the_accumulation_are_called():
    leaf, seen = sparse_matrix("csc"), []
    leaf.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad))

    matmul(leaf, X).sum().backward()

    assert len(seen) == 1
    assert seen[0] is leaf.grad


def test_moments_of_another_pattern_stop_the_step():
    leaf = torch.eye(3, dtype=torch.float64).to_sparse().coalesce().requires_grad_()
    adam = optimizer(torch.optim.Adam, [leaf], lr=0.1)
    (matmul(leaf, torch.ones(3, 1, dtype=torch.float64))).sum().backward()
    adam.step()

    with torch.no_grad():
        leaf.copy_(torch.eye(3, dtype=torch.float64).flip(0).to_sparse())  # as many entries, at other places

    leaf.grad = None
    with pytest.raises(InputError, match="got another pattern"):
        adam.step()


def test_gradients_of_another_pattern_stop_the_step():
    leaf = torch.ones(3, 3, dtype=torch.float64).to_sparse().coalesce().requires_grad_()
    sgd = optimizer(torch.optim.SGD, [leaf], lr=0.1)
    matmul(leaf, torch.ones(3, 1, dtype=torch.float64)).sum().backward()

    with torch.no_grad():
        leaf.copy_(torch.eye(3, dtype=torch.float64).to_sparse())

    with pytest.raises(InputError, match="has another pattern"):
        sgd.step()


@pytest.mark.parametrize(
    "gradient",
    [
        torch.sparse_coo_tensor([[0, 10**9]] * 2, [1.0, 1.0], (2, 2), check_invariants=False),
        torch.sparse_csr_tensor([0, 1, 99], [0], [1.0], (2, 2), check_invariants=False),
    ],
)
def test_a_malformed_gradient_is_not_clipped(gradient):
    leaf = torch.eye(2).to_sparse(layout=gradient.layout).requires_grad_()
    leaf.grad = gradient

    with pytest.raises(InputError, match="malformed"):
        clip_grad_norm_([leaf], 1.0)


@pytest.fixture
def clean_compiler():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def values_and_gradients(run, *operands):
    operands = [operand.detach().clone().requires_grad_() for operand in operands]
    result = run(*operands)
    return [result, *torch.autograd.grad(result.square().sum(), operands)]


def layers():
    ring = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    options = {"nodes": 4, "normalization": "softmax", "dtype": torch.float64}
    return (
        [
            SparseLinear(4, 4, pattern=Pattern.from_mask(torch.eye(4).roll(k, 0) > 0), dtype=torch.float64)
            for k in (0, 1)
        ],
        [GraphConvolution(4, 4, edge_index=ring.roll(k, 0), **options) for k in (0, 1)],
    )


@pytest.mark.parametrize("kind", [0, 1])
def test_a_layer_follows_a_pattern_whose_writes_torch_does_not_count(kind):
    layer, other = layers()[kind]
    x = torch.randn(4, 4, dtype=torch.float64)
    layer(x)

    for buffer, new in zip(layer.buffers(), other.buffers(), strict=True):
        buffer.data.copy_(new)

    assert layer.pattern == other.pattern


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.usefixtures("clean_compiler")
def test_a_compiled_layer_follows_a_pattern_that_is_written_in_place(kind):
    layer, other = layers()[kind]
    x = torch.randn(4, 4, dtype=torch.float64)
    run = torch.compile(layer, backend="aot_eager", fullgraph=True)
    values_and_gradients(run, x)

    with torch.no_grad():
        for buffer, new in zip(layer.buffers(), other.buffers(), strict=True):
            buffer.copy_(new)

    assert layer.pattern == other.pattern
    for ours, eager in zip(values_and_gradients(run, x), values_and_gradients(layer, x), strict=True):
        assert torch.allclose(ours, eager)


@pytest.mark.parametrize(
    "product",
    [
        lambda pattern, v, x: matmul((pattern, v), x),
        lambda pattern, v, x: row_softmax((pattern, v)) * x.sum(),
        lambda pattern, v, x: sampled_matmul(pattern, x[:4], x.T) * v,
    ],
)
@pytest.mark.usefixtures("clean_compiler")
def test_a_pattern_may_be_used_first_in_compiled_code(product):
    pattern = Pattern.random((4, 6), 0.5)
    v, x = torch.randn(12, dtype=torch.float64), torch.randn(6, 3, dtype=torch.float64)

    compiled = torch.compile(lambda v, x: product(pattern, v, x), backend="aot_eager", fullgraph=True)

    for ours, eager in zip(
        values_and_gradients(compiled, v, x),
        values_and_gradients(lambda v, x: product(pattern, v, x), v, x),
        strict=True,
    ):
        assert torch.allclose(ours, eager)


@pytest.mark.parametrize("normalization", ["free", "softmax"])
def test_a_layer_is_exported(normalization):
    ring, x = torch.tensor([[0, 1], [1, 0]]), torch.randn(2, 3)
    layer = GraphConvolution(3, 2, edge_index=ring, nodes=2, normalization=normalization)

    assert torch.allclose(torch.export.export(layer, (x,)).module()(x), layer(x))


@pytest.mark.filterwarnings("ignore:.torch.jit.script. is deprecated")  # torch's own use of it
@pytest.mark.parametrize("strategy", ["reverse-mode", "forward-mode"])
def test_jacobians_are_vectorized(strategy):
    pattern, v, x = Pattern.random((4, 6), 0.5), torch.randn(12), torch.randn(6, 3)

    def product(v, x):
        return matmul((pattern, row_softmax((pattern, v))), x)

    jacobians = [
        torch.autograd.functional.jacobian(product, (v, x), vectorize=vectorize, strategy=strategy)
        for vectorize in ((True,) if strategy == "forward-mode" else (True, False))
    ]
    expected = torch.func.jacrev(product, (0, 1))(v, x)

    for jacobian in jacobians:
        assert all(map(torch.allclose, jacobian, expected))


def test_gradients_are_batched():
    layer, x = SparseLinear(6, 4, density=0.5), torch.randn(3, 6, requires_grad=True)
    weights, inputs = torch.randn(5, 3, 4), (x, *layer.parameters())

    batched = torch.autograd.grad(layer(x), inputs, weights, is_grads_batched=True)

    singly = zip(*(torch.autograd.grad(layer(x), inputs, one) for one in weights), strict=True)
    assert all(torch.allclose(ours, torch.stack(each)) for ours, each in zip(batched, singly, strict=True))


def test_layers_are_made_without_memory():
    edges = torch.tensor([[0, 1], [1, 0]])
    with torch.device("meta"):
        made = SparseLinear(6, 4, density=0.5)
    for layer in (
        made,
        SparseLinear(6, 4, density=0.5, device="meta"),
        GraphConvolution(6, 4, edge_index=edges, nodes=2, device="meta"),
        GraphConvolution(6, 4, edge_index=edges, nodes=2, normalization="softmax", device="meta"),
    ):
        assert layer(torch.ones(2, 6, device="meta")).shape == (2, 4)


def test_the_values_of_a_layer_take_a_weight_norm():
    layer = parametrizations.weight_norm(SparseLinear(6, 4, density=0.5), "weight_values", dim=None)

    layer(torch.randn(3, 6)).sum().backward()

    assert all(parameter.grad is not None for parameter in layer.parameters())
