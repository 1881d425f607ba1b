"""Sparse gradients of dense inputs, as embeddings give them."""

import pytest
import torch
import torch.nn.functional as F  # noqa: N812  # torch's own convention

import gradproof
from gradproof import Verdict
from support.findings import entries_of
from support.points import point

WHICH = torch.tensor([[0, 2], [2, 4]])

TABLES = {
    "an embedding": lambda w: F.embedding(WHICH, w, sparse=True),
    "a bag of embeddings": lambda w: F.embedding_bag(WHICH, w, sparse=True, mode="sum"),
    "a mean of embeddings": lambda w: F.embedding_bag(WHICH, w, sparse=True, mode="mean"),
    "a gather": lambda w: torch.gather(w, 0, torch.tensor([[0, 1, 2], [0, 0, 4]]), sparse_grad=True),
    "two gradients that are added": lambda w: (
        F.embedding(WHICH, w, sparse=True).sum(0) * F.embedding(WHICH[0], w, sparse=True)
    ),
    "a sparse and a dense gradient that are added": lambda w: F.embedding(WHICH, w, sparse=True).sum() * w,
}


@pytest.mark.parametrize("coverage", ["probe", "full"])
@pytest.mark.parametrize("name", TABLES)
def test_a_sparse_gradient_of_a_dense_input_is_right(name, coverage):
    report = gradproof.check(TABLES[name], point(5, 3), coverage=coverage, seed=0)

    assert report.verdict is Verdict.PASS


class Looked(torch.autograd.Function):
    """An embedding whose gradient forgets a row, or holds every row twice."""

    @staticmethod
    def forward(ctx, table, rows, mistake):
        ctx.save_for_backward(rows)
        ctx.shape, ctx.mistake = table.shape, mistake
        return table[rows]

    @staticmethod
    def backward(ctx, gradient):
        (rows,) = ctx.saved_tensors
        gradient = gradient * 2 if ctx.mistake == "twice" else gradient
        kept = slice(1, None) if ctx.mistake == "forgotten" else slice(None)
        found = torch.sparse_coo_tensor(rows[kept][None], gradient[kept], ctx.shape, check_invariants=True)
        return found, None, None


@pytest.mark.parametrize(
    ("mistake", "rows"), [("none", set()), ("forgotten", {1}), ("twice", {1, 3})], ids=lambda each: str(each)
)
@pytest.mark.parametrize("coverage", ["probe", "full"])
def test_a_mistake_in_a_sparse_gradient_of_a_dense_input_is_found_in_its_rows(mistake, rows, coverage):
    function = lambda table: Looked.apply(table, torch.tensor([1, 3, 3]), mistake)  # noqa: E731  # a case
    report = gradproof.check(function, point(5, 3), coverage=coverage, seed=0)

    assert {entry.index[0] for entry in entries_of(report)} == rows
    assert report.passed is not bool(rows)


def test_an_embedding_layer_with_sparse_gradients_passes():
    layer = torch.nn.Embedding(5, 3, sparse=True, dtype=torch.float64)

    assert gradproof.check(layer, WHICH, seed=0).passed
