"""Graphs: aggregation, parallel edges, batches of graphs, sums and cuts, edge indices of other libraries."""

import pytest
import torch

import gradproof
from gradproof import InputError
from gradproof.sparse import (
    Pattern,
    add,
    aggregate,
    block_diagonal,
    concatenate,
    matmul,
    merged,
    multiply,
    repack,
    row_softmax,
    select,
    unpack,
)
from support.sparse_matrices import COLUMNS, LAYOUTS, ROWS, sparse_matrix

MODES = ("reverse", "forward")
DOUBLED = torch.tensor([[0, 0, 2, 1, 0], [1, 1, 1, 0, 2]])  # the edge from 0 to 1 occurs twice


def random(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


def whole(sparse):
    return (sparse if isinstance(sparse, torch.Tensor) else repack(sparse[1], sparse[0])).to_dense()


def dense_aggregate(mask, x, reduce):
    rows = []
    for line in mask:
        some = x[line]
        found = {
            "sum": lambda some: some.sum(0),
            "mean": lambda some: some.mean(0),
            "max": lambda some: some.amax(0),
            "min": lambda some: some.amin(0),
        }[reduce]
        rows.append(found(some) if len(some) else x.new_zeros(x.shape[1:]))
    return torch.stack(rows)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_features_are_aggregated_as_row_by_row(layout, reduce):
    pattern, x = Pattern.of(sparse_matrix(layout)), random(COLUMNS, 2, 3)

    ours, theirs = aggregate(pattern, x, reduce=reduce), dense_aggregate(pattern.mask(), x, reduce)

    weights = torch.randn_like(theirs)
    assert torch.allclose(ours, theirs)
    assert torch.allclose(*(torch.autograd.grad(found, x, weights)[0] for found in (ours, theirs)))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min"])
def test_derivatives_of_aggregations_are_verified(reduce, order):
    pattern = Pattern.of(sparse_matrix("csr"))

    report = gradproof.check(
        lambda x: aggregate(pattern, x, reduce=reduce), random(COLUMNS, 2), modes=MODES, order=order, seed=0
    )

    assert report.passed, report


def test_a_mean_takes_weights():
    a, x = sparse_matrix("csc"), random(COLUMNS, 2)
    degree = Pattern.of(a).mask().sum(1, keepdim=True).clamp(min=1)

    assert torch.allclose(aggregate(a, x, reduce="mean"), a.detach().to_dense() @ x / degree)


def test_parallel_edges_are_summed_in_products_and_kept_in_softmaxes():
    graph = Pattern.from_edge_index(DOUBLED, nodes=3, parallel=True)
    values, x = random(5), random(3, 2)
    adjacency = torch.zeros(3, 3, dtype=torch.float64).index_put((DOUBLED[1], DOUBLED[0]), values, accumulate=True)

    assert torch.allclose(matmul((graph, values), x), adjacency @ x)
    weights = row_softmax((graph, values))
    assert torch.allclose(weights[:3], values[:3].softmax(0))
    simple, sums = merged((graph, values))
    assert simple.entries == 4
    assert torch.allclose(whole((simple, sums)), adjacency)
    assert torch.allclose(repack(values, graph).to_dense(), adjacency)
    assert not repack(values, graph).is_coalesced()


@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_with_parallel_edges_are_verified(order):
    graph = Pattern.from_edge_index(DOUBLED, nodes=3, parallel=True)

    def convolve(values, x):
        return matmul((graph, row_softmax((graph, values))), x), merged((graph, values))[1].square()

    report = gradproof.check(convolve, (random(5), random(3, 2)), modes=MODES, order=order, seed=0)

    assert report.passed, report


def joined(a, b):
    """Name, what is made of two sparse matrices, and the same of dense ones."""
    return {
        "sum": (add, lambda a, b: a + b),
        "product": (multiply, lambda a, b: a * b),
        "below": (lambda a, b: concatenate([a, b]), lambda a, b: torch.cat([a, b])),
        "beside": (lambda a, b: concatenate([a, b], dim=1), lambda a, b: torch.cat([a, b], 1)),
        "diagonal": (lambda a, b: block_diagonal([a, b]), torch.block_diag),
        "cut": (
            lambda a, _b: select(a, rows=[2, 0], columns=slice(1, 5)),
            lambda a, _b: a[[2, 0]][:, 1:5],
        ),
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_sparse_matrices_are_joined_as_dense_ones_are(layout):
    a, b = sparse_matrix(layout), torch.eye(ROWS, COLUMNS, dtype=torch.float64).to_sparse().coalesce()
    b = (b * 3).coalesce().requires_grad_()
    dense = [tensor.detach().to_dense().requires_grad_() for tensor in (a, b)]
    for name, (ours, theirs) in joined(a, b).items():
        result, expected = ours(a, b), theirs(*dense)
        assert torch.allclose(result.detach().to_dense(), expected), name
        a.grad = b.grad = dense[0].grad = dense[1].grad = None
        unpack(result)[0].square().sum().backward()
        expected.square().sum().backward()
        assert torch.allclose(a.grad.to_dense(), dense[0].grad * Pattern.of(a).mask()), name


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128])
def test_derivatives_of_joined_matrices_are_verified(dtype, order):
    a = Pattern.from_indices(torch.tensor([[2, 0, 1], [0, 2, 1]]), (3, 4))
    b = Pattern.random((3, 4), 0.5)
    for name, (ours, _) in joined(a, b).items():
        report = gradproof.check(
            lambda v, w, ours=ours: ours((a, v), (b, w))[1],
            (random(3, dtype=dtype), random(6, dtype=dtype)),
            modes=MODES,
            order=order,
            seed=0,
        )

        assert report.passed, f"{name}\n{report}"


@pytest.mark.parametrize("order", [1, 2])
def test_sums_and_products_of_sparse_tensors_are_verified(order):
    a, b = sparse_matrix("csr"), sparse_matrix("coo")
    for made in (add, multiply):
        report = gradproof.check(made, (a, b), masked=True, order=order, seed=0)

        assert report.passed, report


def test_a_batch_of_graphs_is_one_graph():
    graphs = [Pattern.random((n, n), 0.5) for n in (2, 4)]
    values, features = [random(2), random(8)], [random(2, 3), random(4, 3)]

    batch = block_diagonal(list(zip(graphs, values, strict=True)))

    single = [matmul(pair, x) for pair, x in zip(zip(graphs, values, strict=True), features, strict=True)]
    assert torch.allclose(matmul(batch, torch.cat(features)), torch.cat(single))


class EdgeIndex(torch.Tensor):
    """A subclass like PyTorch Geometric's, whose operations refuse what its own metadata does not allow."""

    def as_tensor(self):
        return self.as_subclass(torch.Tensor)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if getattr(func, "__name__", "") in ("as_subclass", "__get__"):
            return super().__torch_function__(func, types, args, kwargs)
        raise AssertionError(func)


def test_edge_indices_of_other_libraries_are_taken_as_they_are():
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]])
    expected = Pattern.from_edge_index(edges, nodes=3)

    assert Pattern.from_edge_index(edges.as_subclass(EdgeIndex), nodes=3) == expected
    assert Pattern.from_edge_index((edges[0], edges[1]), nodes=3) == expected
    assert Pattern.from_edge_index(edges.int(), nodes=3) == expected


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda p: aggregate(p, torch.ones(5, 2)), "one line of features"),
        (lambda p: aggregate(p, torch.ones(6, 2), reduce="median"), "sum, mean, max, min"),
        (lambda p: aggregate(p, torch.ones(6, 2).long()), "floating-point"),
        (lambda p: aggregate(p, torch.ones(6, 2).cfloat(), reduce="max"), "no order"),
        (lambda p: aggregate((p, torch.ones(12)), torch.ones(6, 2), reduce="max"), "takes no weights"),
        (lambda p: add((p, torch.ones(12)), torch.eye(3).to_sparse()), "The shapes differ"),
        (lambda p: block_diagonal([]), "in a list"),
        (lambda p: concatenate([(p, torch.ones(12))], dim=2), "dim=2"),
        (lambda p: concatenate([(p, torch.ones(12)), torch.eye(3).to_sparse()]), "differ along"),
        (lambda p: select((p, torch.ones(12)), rows=[4]), "out of range"),
        (lambda p: select((p, torch.ones(12)), rows=[1, 1]), "occurs twice"),
        (lambda p: multiply((p, torch.ones(12)), torch.eye(3).to_sparse()), "The shapes differ"),
        (lambda p: block_diagonal([torch.ones(2, 2, 2).to_sparse()]), "not a single matrix"),
        (lambda p: Pattern.from_edge_index(DOUBLED, nodes=3).as_csr(), "stored 2 times"),
        (lambda p: Pattern.from_edge_index(DOUBLED, nodes=3, parallel=True).as_csr(), "may store a position"),
        (lambda p: Pattern.from_edge_index([1, 2], nodes=3), "not a tensor"),
    ],
)
def test_graphs_that_do_not_fit_are_refused(ask, words):
    with pytest.raises(InputError, match=words):
        ask(Pattern.random((4, 6), 0.5))
