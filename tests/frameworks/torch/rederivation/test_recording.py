"""A recorded forward has the function's values and its gradient, whatever the function does."""

import pytest
import torch
from torch import Tensor

from gradproof.frameworks.torch.rederivation.expansions import EXPANSIONS
from gradproof.frameworks.torch.rederivation.recording import Recording
from gradproof.frameworks.torch.rederivation.tape import Tape

TABLE = torch.tensor([2, 0, 2, 1])


def filled(x):
    y = torch.zeros_like(x)
    y[1:] = x[:-1].sin()
    y[0] += 2 * x[1]
    y.mul_(x)
    return y


def scattered(x):
    return torch.zeros(3, 3, dtype=x.dtype).index_add_(0, TABLE, x) ** 2


def written_through_a_view(x):
    y = x.clone()
    y.view(-1)[2::3] = y[0, 1].clone() * x.flatten()[0]
    y.T[0].exp_()
    return y


class Detaching(torch.autograd.Function):
    """A Function whose forward is an exponential of a detached tensor."""

    @staticmethod
    def forward(ctx, x):
        return x.detach().exp() * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


RIGHT = {
    "softmax": lambda x: x.softmax(-1),
    "log-softmax": lambda x: x.log_softmax(0),
    "logsumexp": lambda x: x.logsumexp(-1),
    "layer norm": lambda x: torch.nn.functional.layer_norm(x, (3,)),
    "norm": lambda x: x.norm(dim=-1) + x.norm(p=3),
    "variance": lambda x: x.var() + x.std(-1) + torch.var_mean(x, 0)[0].sum(),
    "gelu": lambda x: torch.nn.functional.gelu(x) + torch.nn.functional.gelu(x, approximate="tanh"),
    "softplus": lambda x: torch.nn.functional.softplus(x, beta=2) + torch.nn.functional.silu(x),
    "addmm": lambda x: torch.addmm(x[:3], x[1:], x[:3], alpha=0.5),
    "attention": lambda x: torch.nn.functional.scaled_dot_product_attention(x[None], x[None] ** 2, x[None].cos()),
    "written in place": filled,
    "scattered": scattered,
    "written through a view": written_through_a_view,
    "sorted": lambda x: x.sort(0).values * x,
    "split": lambda x: x.split(2)[1] * x.chunk(2)[0],
    "a product with itself": lambda x: x @ x.T @ x,
    "a constant in between": lambda x: x * TABLE[:, None] + torch.arange(3),
}


def taped(function, x: Tensor) -> tuple[Tape, Tensor]:
    given = x.detach().clone()
    with torch.no_grad(), Recording([given], EXPANSIONS) as recording:
        result = function(given)
    return Tape(recording, [recording.number_of(result)]), result


@pytest.mark.parametrize("name", RIGHT)
def test_the_gradient_of_a_record_is_that_of_autograd(name):
    function, generator = RIGHT[name], torch.Generator().manual_seed(3)
    x = torch.randn(4, 3, dtype=torch.float64, generator=generator).requires_grad_()
    value = function(x)
    incoming = torch.randn(value.shape, dtype=torch.float64, generator=generator)
    (expected,) = torch.autograd.grad(value, x, incoming)

    tape, result = taped(function, x)
    gradients, sites = tape.sites([incoming])
    ends = [site for site in sites.values() if site.value == tape.recording.inputs[0]]
    received = sum(tape.contribution(site.value, site.right, site.value) for site in ends)

    torch.testing.assert_close(result, value.detach())
    torch.testing.assert_close(gradients[tape.recording.inputs[0]], expected)
    torch.testing.assert_close(received, expected)


def test_what_a_function_computes_is_recorded_and_not_how_its_derivative_is_claimed():
    x = torch.tensor([0.3, -1.2], dtype=torch.float64)

    tape, _ = taped(Detaching.apply, x)
    gradients, _ = tape.sites([torch.ones_like(x)])

    torch.testing.assert_close(gradients[tape.recording.inputs[0]], x.exp() * (1 + x))


def test_a_tangent_is_the_slope_along_a_direction():
    x, along = torch.tensor([0.3, -1.2], dtype=torch.float64), torch.tensor([1.0, 2.0], dtype=torch.float64)

    tape, _ = taped(lambda x: x.sin().exp(), x)
    found = tape.tangent(tape.outputs[0], tape.recording.inputs[0], along)

    torch.testing.assert_close(found, x.sin().exp() * x.cos() * along)
