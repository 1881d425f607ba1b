"""What cannot work is reported in words, before anything is changed."""

import pytest
import torch

from gradproof import InputError, check_step
from gradproof.sparse import (
    GraphAttention,
    GraphConvolution,
    Pattern,
    SparseLinear,
    add,
    aggregate,
    apply_gradient_,
    attention,
    block_diagonal,
    change_pattern_,
    clip_grad_norm_,
    clip_grad_value_,
    concatenate,
    convert,
    drop_and_grow_,
    fan_in,
    full_gradient,
    mask,
    matmul,
    merged,
    multiply,
    optimizer,
    repack,
    scaled_by_fan_in_,
    select,
    solve,
    unpack,
)

EYE = torch.eye(2).to_sparse_csr()
NOWHERE = torch.zeros(2, 0, dtype=torch.int64)
GRAPH, EDGES = Pattern.of(EYE), torch.tensor([[0, 1], [1, 0]])
X = torch.ones(2, 2)


def sparse_layer():
    return SparseLinear(2, 2, density=0.5)


def attend(**options):
    return attention(GRAPH, X, X, X, **options)


CASES = {
    "sparse features": lambda: aggregate(GRAPH, EYE),
    "a sparse query": lambda: attention(GRAPH, EYE, X, X),
    "a sparse bias": lambda: attend(bias=EYE),
    "a bias that does not fit": lambda: attend(bias=torch.ones(2, 3)),
    "a bias elsewhere": lambda: attend(bias=torch.ones(2, device="meta")),
    "a scale in words": lambda: attend(scale="one"),
    "several scales": lambda: attend(scale=torch.ones(2)),
    "a sparse right side": lambda: solve(EYE, EYE),
    "a fraction of iterations": lambda: solve(EYE, torch.ones(2), method="cg", max_iterations=2.5),
    "a preconditioner that gives nothing": lambda: solve(
        EYE, torch.ones(2), method="cg", preconditioner=lambda residual: None
    ),
    "a preconditioner that gives another shape": lambda: solve(
        EYE, torch.ones(2), method="cg", preconditioner=lambda residual: residual[:1]
    ),
    "a tensor to merge": lambda: merged(EYE),
    "a dimension in several numbers": lambda: concatenate([EYE, EYE], dim=torch.ones(2)),
    "scores that are true or false": lambda: drop_and_grow_(sparse_layer(), 0.5, scores=torch.ones(2, 2) > 0),
    "scores elsewhere": lambda: drop_and_grow_(sparse_layer(), 0.5, scores=torch.ones(2, 2, device="meta")),
    "a tensor for optimizers": lambda: change_pattern_(sparse_layer(), GRAPH, optimizers=torch.tensor(1.0)),
    "true for a size": lambda: SparseLinear(2, True, density=1.0),
    "a tensor for a size": lambda: SparseLinear(torch.ones(2), 2, pattern=GRAPH),
    "a number for a pattern": lambda: SparseLinear(2, 2, pattern=3),
    "a dtype in words": lambda: SparseLinear(2, 2, density=1.0, dtype="float"),
    "a density in words": lambda: SparseLinear.from_linear(torch.nn.Linear(2, 2), density="half"),
    "features of another dtype in a convolution": lambda: GraphConvolution(2, 2, edge_index=EDGES, nodes=2)(X.double()),
    "features of another dtype in attention": lambda: GraphAttention(2, 2)(X.double(), EDGES),
    "three kinds of nodes": lambda: GraphAttention(2, 2)((X, X, X), EDGES),
    "a convolution of sparse features": lambda: GraphConvolution(2, 2, edge_index=EDGES, nodes=2)(EYE),
    "numbers for parameters": lambda: optimizer(torch.optim.SGD, [1, 2], lr=0.1),
    "no parameters": lambda: optimizer(torch.optim.SGD, [], lr=0.1),
    "several rates": lambda: apply_gradient_(EYE.clone(), EYE, torch.ones(2)),
    "true for a rate": lambda: apply_gradient_(EYE.clone(), EYE, True),
    "tensors for flags": lambda: unpack(EYE, masked=torch.ones(2)),
    "words for flags": lambda: Pattern.from_edge_index(EDGES, nodes=2, parallel="yes"),
    "a product with nothing": lambda: matmul(EYE, None),
    "a pair without a pattern": lambda: matmul((1, 2), torch.ones(2)),
    "a multiple by a number": lambda: multiply(EYE, 2.0),
    "values for a tensor": lambda: repack(torch.ones(2), EYE),
    "values as a list": lambda: repack([1.0, 2.0], Pattern.of(EYE)),
    "nothing to aggregate": lambda: aggregate(Pattern.of(EYE), None),
    "nothing to add": lambda: add(None),
    "nothing to merge": lambda: merged(EYE.to_dense()),
    "a batch of nothing": lambda: block_diagonal([None]),
    "rows in words": lambda: select(EYE, "first"),
    "no graph": lambda: GraphAttention(2, 2)(torch.ones(2, 2), None),
    "whole numbers as features": lambda: GraphAttention(2, 2)(torch.ones(2, 2).long(), torch.tensor([[0], [1]])),
    "heads in words": lambda: GraphAttention(2, 2, heads="two"),
    "no fan-in": lambda: fan_in(None),
    "values of no pattern": lambda: scaled_by_fan_in_(None, torch.ones(2)),
    "optimizers that are none": lambda: change_pattern_(SparseLinear(2, 2, density=1.0), Pattern.of(EYE), optimizers=3),
    "a backward that is none": lambda: full_gradient(SparseLinear(2, 2, density=1.0), None),
    "indices that are none": lambda: Pattern.from_indices(None, (2, 2)),
    "a shape that is none": lambda: Pattern.from_indices(NOWHERE, None),
    "parameters that are none": lambda: optimizer(torch.optim.SGD, None, lr=0.1),
    "several bounds": lambda: clip_grad_norm_([EYE], torch.ones(2)),
    "a conversion without memory": lambda: convert(torch.ones(2, 2, device="meta"), torch.sparse_csr),
    "a product with a sparse matrix of another shape": lambda: multiply(EYE, torch.eye(3).to_sparse()),
    "nothing to convert": lambda: convert(None, torch.sparse_csr),
    "blocks in three dimensions": lambda: convert(torch.eye(2), torch.sparse_bsr, blocksize=(1, 1, 1)),
    "blocks of one number": lambda: convert(torch.eye(2), torch.sparse_bsr, blocksize=2),
    "nothing to mask": lambda: mask(None, EYE),
    "nothing to mask by": lambda: mask(torch.eye(2), None),
    "nothing to unpack": lambda: unpack(None, masked=True),
    "a form that is none": lambda: repack(torch.ones(2), 3),
    "a mask that is none": lambda: Pattern.from_mask(None),
    "a negative shape": lambda: Pattern.from_indices(NOWHERE, (-2, 2)),
    "a shape of one number": lambda: Pattern.from_indices(NOWHERE, 2),
    "a negative number of nodes": lambda: Pattern.from_edge_index(NOWHERE, nodes=-1),
    "nodes in words": lambda: Pattern.from_edge_index(NOWHERE, nodes="two"),
    "chance in one dimension": lambda: Pattern.random((3,), 0.5),
    "chance in a negative shape": lambda: Pattern.random((-3, 2), 0.5),
    "a strided pattern": lambda: Pattern(torch.strided, (2, 2), ()),
    "an optimizer of one tensor": lambda: optimizer(torch.optim.SGD, EYE.clone().requires_grad_(), lr=0.1),
    "a loss that is a number": lambda: check_step(lambda: None, 3.0, [torch.ones(1, requires_grad=True)]),
    "whole numbers to train": lambda: SparseLinear(2, 2, density=1.0, dtype=torch.long),
    "nothing to clip": lambda: clip_grad_norm_(None, 1.0),
    "a number to clip": lambda: clip_grad_value_([3], 1.0),
    "an input that is none": lambda: SparseLinear(2, 2, density=1.0)(None),
    "weights of a convolution": lambda: SparseLinear.from_linear(torch.nn.Conv1d(1, 1, 1), density=1.0),
    "a length in words": lambda: apply_gradient_(EYE.clone(), EYE, "one"),
    "a step that is a number": lambda: check_step(3, lambda: torch.ones(()), [torch.ones(1, requires_grad=True)]),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_bad_input_is_reported(case):
    with pytest.raises(InputError):
        case()


@pytest.mark.parametrize("clip", [clip_grad_norm_, clip_grad_value_])
@pytest.mark.parametrize("bound", [-1.0, float("nan"), "one", None])
def test_a_bound_that_is_none_leaves_gradients_alone(clip, bound):
    weight = EYE.clone().requires_grad_()
    weight.grad = EYE.clone()

    with pytest.raises(InputError, match="not negative"):
        clip([weight], bound)

    assert torch.equal(weight.grad.values(), torch.ones(2))


@pytest.mark.parametrize("loss", [lambda x: x, lambda x: x.sum().detach(), lambda x: 1.0])
def test_a_loss_that_is_none_leaves_gradients_alone(loss):
    x = torch.ones(2, requires_grad=True)
    x.grad = torch.ones(2)

    with pytest.raises(InputError):
        check_step(torch.optim.SGD([x], lr=0.1), lambda: loss(x), [x])

    assert torch.equal(x.grad, torch.ones(2))
