import pytest
import torch
from torch import nn

import gradproof
from gradproof import InputError
from gradproof.sparse import GraphAttention, Pattern

EDGES = torch.tensor([[0, 1, 2, 3, 0, 0], [1, 2, 3, 0, 2, 2]])  # the edge from 0 to 2 occurs twice


def reference(layer, sources, targets, edges, edge_features):
    """The layer edge by edge, with a line of features for each, as PyTorch Geometric computes it."""
    one, other = edges

    def heads(linear, x):
        return linear(x).reshape(len(x), layer.heads, layer.out_features)

    value = heads(layer.value, sources)
    added = layer.edge_score(edge_features) if layer.edge_score is not None else 0
    if layer.score == "dot":
        products = heads(layer.query, targets)[other] * heads(layer.key, sources)[one]
        scores = products.sum(-1) / layer.out_features**0.5 + added
    else:
        at_targets = heads(layer.value, targets)
        scores = (value * layer.source_score).sum(-1)[one] + (at_targets * layer.target_score).sum(-1)[other]
        scores = nn.functional.leaky_relu(scores + added, layer.negative_slope)
    weights = scores.exp()
    total = torch.zeros(len(targets), layer.heads, dtype=weights.dtype).index_add(0, other, weights)
    messages = (weights / total[other]).unsqueeze(-1) * value[one]
    shape = len(targets), layer.heads, layer.out_features
    result = torch.zeros(shape, dtype=messages.dtype).index_add(0, other, messages)
    return (result.flatten(1) if layer.concatenate else result.mean(1)) + layer.bias


def case(score, **options):
    layer = GraphAttention(3, 2, heads=2, score=score, edge_features=2, dtype=torch.float64, **options)
    return layer, torch.randn(4, 3, dtype=torch.float64), torch.randn(6, 2, dtype=torch.float64)


@pytest.mark.parametrize("concatenate", [True, False])
@pytest.mark.parametrize("score", ["additive", "dot"])
def test_the_layer_is_that_of_messages_along_edges(score, concatenate):
    layer, x, edge_features = case(score, concatenate=concatenate)
    nn.init.normal_(layer.bias)

    results = layer(x, EDGES, edge_features), reference(layer, x, x, EDGES, edge_features)

    gradients = [torch.autograd.grad(result.square().sum(), list(layer.parameters())) for result in results]
    assert torch.allclose(*results)
    assert all(map(torch.allclose, *gradients))


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("score", ["additive", "dot"])
def test_derivatives_of_graph_attention_are_verified(score, order):
    layer, x, edge_features = case(score)
    operands = x.requires_grad_(), edge_features.requires_grad_()

    report = gradproof.check(
        lambda x, e: layer(x, EDGES, e), operands, modes=("reverse", "forward"), order=order, seed=0
    )

    assert report.passed, report


@pytest.mark.parametrize("score", ["additive", "dot"])
def test_sources_and_targets_may_be_different_nodes(score):
    layer = GraphAttention(3, 2, score=score, dtype=torch.float64)
    sources, targets = torch.randn(5, 3, dtype=torch.float64), torch.randn(4, 3, dtype=torch.float64)

    result = layer((sources, targets), EDGES)

    assert torch.allclose(result, reference(layer, sources, targets, EDGES, None))


def test_the_pattern_of_an_edge_index_is_built_once():
    edges = EDGES.clone()
    before = Pattern.of_graph(edges, nodes=(4, 4))

    assert Pattern.of_graph(edges, nodes=(4, 4)) is before
    edges[1, 0] = 3
    assert Pattern.of_graph(edges, nodes=(4, 4)) != before


@pytest.mark.parametrize("score", ["additive", "dot"])
def test_the_layer_is_compiled_and_runs_in_mixed_precision(score):
    layer, x, edge_features = case(score)
    torch.compiler.reset()
    run = torch.compile(layer, backend="aot_eager", fullgraph=True)

    assert torch.allclose(run(x, EDGES, edge_features), layer(x, EDGES, edge_features))
    torch.compiler.reset()
    layer.float()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = layer(x.float(), EDGES, edge_features.float())
    assert torch.allclose(low.float(), layer(x.float(), EDGES, edge_features.float()), atol=0.05)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda: GraphAttention(3, 2, score="cosine"), "additive, dot"),
        (lambda: GraphAttention(3, 2, heads=0), "heads=0"),
        (lambda: GraphAttention(3, 2, dtype=torch.complex64), "real dtype"),
        (lambda: GraphAttention(3, 2)(torch.ones(4, 2), EDGES), r"pass \[nodes, 3\]"),
        (lambda: GraphAttention(3, 2)(torch.ones(3, 3), EDGES), "out of range"),
        (lambda: GraphAttention(3, 2)(torch.ones(3, 3), Pattern.random((4, 4), 0.5)), "its rows are targets"),
        (lambda: GraphAttention(3, 2)(torch.ones(4, 3), EDGES, torch.ones(6, 1)), "edge features: none"),
        (lambda: GraphAttention(3, 2, edge_features=1)(torch.ones(4, 3), EDGES), "1 for each edge"),
        (
            lambda: GraphAttention(3, 2, edge_features=1)(torch.ones(4, 3), EDGES, torch.ones(5, 1)),
            "order of the edges",
        ),
    ],
)
def test_bad_input_is_refused_with_a_reason(ask, words):
    with pytest.raises(InputError, match=words):
        ask()
