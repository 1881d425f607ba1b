import copy
import gc
import pickle
import weakref

import pytest
import scipy.sparse
import torch
from hypothesis import given
from hypothesis import strategies as st

from gradproof import InputError
from gradproof.sparse import Pattern, repack
from support.sparse_matrices import BLOCKS, LAYOUTS, dense_matrix, sparse_matrix, stored_mask

EVERY = [(layout, batch) for layout in LAYOUTS for batch in ((), (2,), (2, 3))]


@pytest.mark.parametrize(("layout", "batch"), EVERY)
def test_a_pattern_knows_where_a_tensors_entries_are(layout, batch):
    sparse = sparse_matrix(layout, batch=batch)

    pattern = Pattern.of(sparse)

    assert pattern.mask().equal(stored_mask(sparse))
    assert pattern.entries == int(stored_mask(sparse).sum())


@pytest.mark.parametrize(("layout", "batch"), EVERY)
def test_values_go_back_to_where_they_came_from(layout, batch):
    sparse = sparse_matrix(layout, batch=batch).detach()
    values = sparse.values()

    again = repack(values, Pattern.of(sparse))

    assert again.layout is sparse.layout
    assert again.to_dense().equal(sparse.to_dense())


@pytest.mark.parametrize("layout", LAYOUTS)
def test_dense_dimensions_belong_to_the_values(layout):
    sparse = sparse_matrix(layout, dense=(2,)).detach()

    pattern = Pattern.of(sparse)

    assert pattern.shape == (4, 6)
    assert repack(sparse.values(), pattern).to_dense().equal(sparse.to_dense())


@pytest.mark.parametrize(("layout", "batch"), EVERY)
def test_coordinates_are_in_the_order_of_storage(layout, batch):
    sparse = sparse_matrix(layout, batch=batch).detach()
    pattern = Pattern.of(sparse)

    assert sparse.to_dense()[tuple(pattern.coordinates)].equal(sparse.values().reshape(-1))


@pytest.mark.parametrize(("layout", "batch"), EVERY)
def test_entries_are_found_in_row_order_and_in_column_order(layout, batch):
    sparse = sparse_matrix(layout, batch=batch).detach()
    pattern = Pattern.of(sparse)
    flat = sparse.values().reshape(-1)
    whole = torch.block_diag(*sparse.to_dense().reshape(-1, 4, 6))

    for order, expected in ((pattern.by_rows, whole), (pattern.by_columns, whole.mT)):
        found = torch.sparse_csr_tensor(
            order.crow_indices, order.col_indices, order.in_row_order(flat), expected.shape, check_invariants=True
        )
        assert found.to_dense().equal(expected)
        assert order.in_storage_order(order.in_row_order(flat)).equal(flat)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_patterns_are_equal_by_content_and_hash_alike(layout):
    one, other = (Pattern.of(sparse_matrix(layout)) for _ in range(2))

    assert one == other
    assert hash(one) == hash(other)
    assert one == Pattern(one.layout, one.shape, tuple(index.int() for index in one.indices), one.blocksize)


def test_patterns_of_other_positions_layouts_or_shapes_differ():
    mask = torch.eye(4, dtype=torch.bool)
    pattern = Pattern.from_mask(mask)

    assert pattern != Pattern.from_mask(mask.flip(0))
    assert pattern != Pattern.from_mask(mask, layout=torch.sparse_csc)
    assert pattern != Pattern.from_indices(torch.stack([torch.arange(4)] * 2), (4, 5))
    assert pattern != "a pattern"
    assert len({pattern, Pattern.from_mask(mask.flip(0)), Pattern.from_mask(mask)}) == 2


def test_a_pattern_is_looked_at_once_a_tensor_and_forgotten_with_it():
    sparse = sparse_matrix("csr")
    pattern = Pattern.of(sparse)

    assert Pattern.of(sparse) is pattern

    gone = weakref.ref(pattern)
    del pattern, sparse
    gc.collect()
    assert gone() is None


def test_a_tensor_whose_indices_were_written_to_is_looked_at_again():
    sparse = torch.eye(3).to_sparse_csr()
    before = Pattern.of(sparse)
    sparse.col_indices()[2] = 0

    assert Pattern.of(sparse).mask().tolist() == [[True, False, False], [False, True, False], [True, False, False]]
    assert Pattern.of(sparse) is not before


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_mask_makes_a_pattern_of_any_layout(layout):
    mask = dense_matrix() != 0
    blocksize = BLOCKS if layout in ("bsr", "bsc") else None

    pattern = Pattern.from_mask(mask, layout=LAYOUTS[layout], blocksize=blocksize)

    assert pattern.layout is LAYOUTS[layout]
    assert (pattern.mask() & mask).equal(mask)
    assert blocksize or pattern.mask().equal(mask)


def test_indices_in_any_order_are_the_order_of_the_values():
    indices = torch.tensor([[2, 0, 1], [0, 2, 1]])
    pattern = Pattern.from_indices(indices, (3, 3))

    tensor = repack(torch.tensor([1.0, 2.0, 3.0]), pattern)

    assert tensor.is_coalesced()
    assert tensor.to_dense().tolist() == [[0, 0, 2], [0, 3, 0], [1, 0, 0]]
    indices[:] = 0
    assert pattern.coordinates.tolist() == [[2, 0, 1], [0, 2, 1]]


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "bsr", "lil"])
def test_scipy_matrices_go_both_ways(kind):
    whole = dense_matrix().numpy()
    matrix = scipy.sparse.csr_array(whole).asformat(kind)

    pattern = Pattern.from_scipy(matrix)
    values = torch.from_numpy(matrix.tocsr().data if kind == "lil" else matrix.data)

    assert repack(values, pattern).to_dense().numpy().tolist() == whole.tolist()
    assert pattern.scipy(values).toarray().tolist() == whole.tolist()
    assert pattern.scipy(values).format == ("csr" if kind == "lil" else kind)
    assert (pattern.scipy().toarray() != 0).tolist() == pattern.mask().tolist()


def test_edges_carry_messages_from_sources_to_targets():
    edges = torch.tensor([[0, 0, 3], [1, 2, 0]])
    pattern = Pattern.from_edge_index(edges, nodes=4)

    messages = repack(torch.tensor([10.0, 20.0, 30.0]), pattern).to_dense() @ torch.tensor([1.0, 2.0, 3.0, 4.0])

    assert messages.tolist() == [120, 10, 20, 0]
    assert pattern.edge_index().equal(edges)
    assert Pattern.from_edge_index(edges, nodes=(5, 4)).shape == (5, 4)
    assert Pattern.from_edge_index(edges).shape == (4, 4)


@given(rows=st.integers(1, 30), columns=st.integers(1, 30), density=st.floats(0, 1))
def test_a_random_pattern_has_the_density_requested(rows, columns, density):
    pattern = Pattern.random((rows, columns), density)

    assert pattern.entries == round(density * rows * columns)
    assert int(pattern.mask().sum()) == pattern.entries


def test_random_positions_are_all_equally_likely():
    counts = sum(Pattern.random((5, 4), 0.2).mask().double() for _ in range(2000))

    assert float((counts / 400 - 1).abs().max()) < 0.25


@pytest.mark.parametrize(("layout", "batch"), EVERY)
def test_the_transposed_pattern_keeps_the_order_of_values(layout, batch):
    sparse = sparse_matrix(layout, batch=batch).detach()
    pattern, values = Pattern.of(sparse), sparse.values()
    values = values.mT if pattern.blocksize else values

    assert repack(values.contiguous(), pattern.transposed).to_dense().equal(sparse.to_dense().mT)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_matrix_becomes_csr(layout):
    sparse = sparse_matrix(layout).detach()
    pattern = Pattern.of(sparse)

    csr, order = pattern.as_csr()
    values = sparse.values().reshape(-1)

    assert csr.layout is torch.sparse_csr
    assert repack(values if order is None else values[order], csr).to_dense().equal(sparse.to_dense())


def test_copies_and_pickles_are_equal():
    pattern = Pattern.of(sparse_matrix("bsr"))

    assert copy.deepcopy(pattern) == pattern
    assert pickle.loads(pickle.dumps(pattern)) == pattern


def test_empty_patterns_are_patterns():
    for shape in ((0, 3), (3, 0), (3, 3)):
        pattern = Pattern.from_mask(torch.zeros(shape, dtype=torch.bool))
        assert pattern.entries == 0
        assert repack(torch.zeros(0), pattern).to_dense().equal(torch.zeros(shape))
        assert pattern.by_columns.crow_indices.tolist() == [0] * (shape[1] + 1)


def csr(crow_indices, col_indices, shape=(2, 3)):
    return Pattern(torch.sparse_csr, shape, (torch.tensor(crow_indices), torch.tensor(col_indices)))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Pattern.from_indices(torch.tensor([[0, 5], [0, 0]]), (3, 3)), "index 5 .entry 1. is out of range"),
        (lambda: Pattern.from_indices(torch.tensor([[0, -1], [0, 0]]), (3, 3)), "index -1"),
        (lambda: Pattern.from_indices(torch.tensor([[0, 1, 0], [2, 0, 2]]), (3, 3)), "position .0, 2. is stored 2"),
        (lambda: Pattern.from_indices(torch.tensor([0, 1]), (3, 3)), "one row of indices for each dimension"),
        (lambda: Pattern.from_indices(torch.tensor([[0.0], [1.0]]), (3, 3)), "integer dtype"),
        (lambda: csr([0, 1, 2], [0, 3]), "index 3 .entry 1. is out of range in the columns"),
        (lambda: csr([0, 2, 1], [0, 1]), "end at 1"),
        (lambda: csr([0, 1, 3], [0, 1]), "end at 3"),
        (lambda: csr([1, 1, 2], [0, 1]), "begin at 1"),
        (lambda: csr([0, 2, 2], [1, 0]), "entry 1 is not in order"),
        (lambda: csr([0, 2, 2], [1, 1]), "entry 1 is not in order"),
        (lambda: csr([0, 1], [0]), "2 compressed indices, and needs 3"),
        (lambda: Pattern.from_mask(torch.eye(3)), "boolean"),
        (lambda: Pattern.from_mask(torch.eye(3) > 0, layout=torch.sparse_bsr), "needs a blocksize"),
        (lambda: Pattern.from_mask(torch.eye(3) > 0, layout=torch.strided), "not a sparse layout"),
        (lambda: Pattern.from_mask(torch.tensor([True])), "rows and columns"),
        (lambda: Pattern.from_mask(torch.stack([torch.eye(3), torch.ones(3, 3)]) > 0), "more entries in some"),
        (lambda: Pattern.from_edge_index(torch.tensor([[0, 1]])), "sources above targets"),
        (lambda: Pattern.from_edge_index(torch.tensor([[0, 1], [1, 4]]), nodes=3), "index 4"),
        (lambda: Pattern.from_edge_index(torch.tensor([[0, 0], [1, 1]])), "stored 2 times"),
        (lambda: Pattern.random((3, 3), 1.5), "from 0 to 1"),
        (lambda: Pattern.from_scipy([[1]]), "not a SciPy sparse matrix"),
        (lambda: Pattern.of(torch.eye(3)), "strided"),
        (lambda: Pattern.of(torch.sparse_coo_tensor([[0, 0]], [1.0, 2.0], (2,), check_invariants=True)), "coalesce"),
        (lambda: Pattern.of("a tensor"), "not a tensor"),
        (lambda: repack(torch.ones(3), Pattern.random((3, 3), 0.5)), "one for each stored entry"),
        (lambda: repack(torch.ones(4, dtype=torch.int64), Pattern.random((3, 3), 0.5)), "floating-point or complex"),
    ],
)
def test_what_is_no_pattern_is_refused_with_a_reason(make, words):
    with pytest.raises(InputError, match=words):
        make()
