"""The autograd Functions behind some results are found, and what rules they have."""

import pytest
import torch
from torch.autograd.function import once_differentiable

from gradproof.frameworks.torch.introspection.autograd_graph import (
    custom_functions,
    has_batching_rule,
    has_forward_rule,
    nodes,
    refusal,
)


class Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return 2 * gradient


class WithRules(Plain):
    @staticmethod
    def jvp(ctx, tangent):
        return 2 * tangent

    @staticmethod
    def vmap(info, in_dims, x):
        return 2 * x, in_dims[0]


@pytest.fixture
def x():
    return torch.ones(2, requires_grad=True)


def test_every_node_is_visited_once(x):
    y = x.sin()

    names = [node.name() for node in nodes([y * y, y])]

    assert sorted(names) == ["MulBackward0", "SinBackward0", "torch::autograd::AccumulateGrad"]


def test_functions_of_the_user_are_distinguished_from_those_of_torch(x):
    assert set(custom_functions([WithRules.apply(Plain.apply(x.sin())), Plain.apply(x)])) == {WithRules, Plain}
    assert custom_functions([x.sin()]) == []


def test_rules_are_those_that_a_function_defines_itself():
    assert (has_forward_rule(Plain), has_batching_rule(Plain)) == (False, False)
    assert (has_forward_rule(WithRules), has_batching_rule(WithRules)) == (True, True)


def test_a_backward_that_refuses_to_be_differentiated_is_found(x):
    (gradient,) = torch.autograd.grad(Plain.apply(x).square().sum(), x, create_graph=True)

    assert "once_differentiable" in refusal([gradient])
    assert refusal([Plain.apply(x)]) is None
