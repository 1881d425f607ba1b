"""Wrong in arrangement: transposes, conjugates, shifts, mixed arguments."""

from __future__ import annotations

import torch
from torch import Tensor

from gradproof.gallery.specimen import complex_normal, normal, specimen

ROTATION = torch.complex(torch.tensor([0.6, -1.2, 0.3, 2.0]), torch.tensor([0.8, 0.4, -1.1, 0.5])).to(torch.complex128)
KERNEL = torch.tensor([0.9, -0.4, 0.2, 0.0, 0.0, 0.0, 0.1], dtype=torch.float64)


def _circular(x: Tensor) -> Tensor:
    return sum(KERNEL[k] * x.roll(k) for k in range(len(KERNEL)))  # type: ignore[return-value]  # sum begins at 0


def _differences(x: Tensor) -> Tensor:
    return (x[1:] - x[:-1]) ** 2


def _differences_off(g: Tensor, x: Tensor) -> Tensor:
    flow = 2 * g * (x[1:] - x[:-1])
    result = torch.zeros_like(x)
    result[:-1] += flow
    result[:-2] -= flow[1:]
    return result


def _in_front(g: Tensor, x: Tensor) -> Tensor:
    result = torch.zeros_like(x)
    result[:, :3] = g
    return result


ARRANGEMENTS = (
    specimen(
        "matmul-not-transposed",
        "x @ W whose gradient for x uses W, not its transpose",
        lambda x, w: x @ w,
        lambda g, x, w: (g @ w, x.T @ g),
        normal(4, 4),
        normal(4, 4, seed=2),
        diagnosis="transposed",
    ),
    specimen(
        "transpose-reshaped",
        "A transpose undone by a reshape",
        lambda x: x.T.sin(),
        lambda g, x: (g * x.T.cos()).reshape(x.shape),
        normal(3, 4),
        diagnosis="transposed",
    ),
    specimen(
        "weight-transposed",
        "A square linear layer whose weight gradient comes out transposed",
        lambda x, w: x @ w.T,
        lambda g, x, w: (g @ w, x.T @ g),
        normal(5, 3),
        normal(3, 3, seed=2),
        diagnosis="transposed",
    ),
    specimen(
        "permute-wrong-way",
        "A permutation of three dimensions undone by the same permutation",
        lambda x: x.permute(1, 2, 0).tanh(),
        lambda g, x: (g * (1 - x.permute(1, 2, 0).tanh() ** 2)).permute(2, 1, 0),
        normal(3, 3, 3),
        diagnosis="transposed",
    ),
    specimen(
        "solve-not-transposed",
        "A linear solve whose gradient solves with A, not with its transpose",
        lambda b: torch.linalg.solve(_system(), b),
        lambda g, _b: torch.linalg.solve(_system(), g),
        normal(5),
        diagnosis="transposed",
    ),
    specimen(
        "kernel-not-flipped",
        "A circular convolution whose backward does not flip the kernel",
        _circular,
        lambda g, _x: _circular(g),
        normal(7),
        diagnosis="transposed",
    ),
    specimen(
        "sum-over-wrong-dimension",
        "A column bias whose gradient is summed over the wrong dimension of a square output",
        lambda x, b: x * b,
        lambda g, x, b: (g * b, (g * x).sum(0)[:, None]),
        lambda: torch.ones(4, 4, dtype=torch.float64).requires_grad_(),
        normal(4, 1, seed=2),
        diagnosis="transposed",
    ),
    specimen(
        "complex-product",
        "A complex product without the conjugate of the other factor",
        lambda z: z * ROTATION,
        lambda g, _z: g * ROTATION,
        complex_normal(4),
        diagnosis="conjugate",
    ),
    specimen(
        "complex-exponential",
        "A complex exponential whose gradient is not conjugated",
        lambda z: z.exp(),
        lambda g, z: g * z.exp(),
        complex_normal(3, 2),
        diagnosis="conjugate",
    ),
    specimen(
        "squared-modulus",
        "A squared modulus whose gradient is conjugated once too often",
        lambda z: (z * z.conj()).real,
        lambda g, z: 2 * g * z.conj(),
        complex_normal(6),
        diagnosis="conjugate",
    ),
    specimen(
        "complex-matmul",
        "A complex matrix product with the transpose in place of the adjoint",
        lambda z: z @ _complex_system(),
        lambda g, _z: g @ _complex_system().T,
        complex_normal(2, 3),
        diagnosis="conjugate",
    ),
    specimen(
        "fourier",
        "A Fourier transform whose backward is the same transform",
        lambda z: torch.fft.fft(z),
        lambda g, _z: torch.fft.fft(g),
        complex_normal(5),
        diagnosis="conjugate",
    ),
    specimen(
        "differences-off-by-one",
        "Squared differences whose gradient lands one place too early",
        _differences,
        _differences_off,
        normal(9),
        diagnosis="shifted",
    ),
    specimen(
        "exclusive-sum",
        "A running sum whose gradient leaves out the entry itself",
        lambda x: x.cumsum(0),
        lambda g, _x: g.flip(0).cumsum(0).flip(0) - g,
        normal(8),
        diagnosis="shifted",
    ),
    specimen(
        "roll-twice",
        "A roll by one that is undone by a roll by two",
        lambda x: x.sin().roll(1, 0),
        lambda g, x: g.roll(-2, 0) * x.cos(),
        normal(6, 2),
        diagnosis="shifted",
    ),
    specimen(
        "padding-on-wrong-side",
        "A padding whose gradient is cropped on the wrong side",
        lambda x: torch.nn.functional.pad(x, (1, 0)),
        lambda g, _x: g[:, :-1],
        normal(3, 6),
        diagnosis="shifted",
    ),
    specimen(
        "top-k-in-front",
        "A top-k whose gradient is written to the first k places",
        lambda x: x.topk(3, -1).values,
        _in_front,
        normal(4, 7),
        diagnosis="misplaced",
    ),
    specimen(
        "sort-not-inverted",
        "A sort whose gradient is gathered where it should be scattered",
        lambda x: x.sort(-1).values ** 2,
        lambda g, x: (2 * g * x.sort(-1).values).gather(-1, x.argsort(-1)),
        normal(3, 6),
        diagnosis="misplaced",
    ),
    specimen(
        "flip-forgotten",
        "A reversed sequence whose gradient is not reversed",
        lambda x: x.exp().flip(0),
        lambda g, x: g * x.exp(),
        normal(6, 2),
        diagnosis="flipped",
    ),
    specimen(
        "gain-over-columns",
        "A gain whose gradient is summed over the columns, not the rows",
        lambda x, w: x * w,
        lambda g, x, w: (g * w, (g * x).sum(1)),
        normal(5, 5),
        normal(5, seed=2),
        diagnosis="wrong-dimension",
    ),
    specimen(
        "product-mixed",
        "A product that gives each factor its own multiple",
        lambda a, b: a * b,
        lambda g, a, b: (g * a, g * b),
        normal(2, 3),
        normal(2, 3, seed=2),
        diagnosis="mixed",
    ),
    specimen(
        "arguments-exchanged",
        "Two gradients returned in the wrong order",
        lambda a, b: a.sin() * b.exp(),
        lambda g, a, b: (g * a.sin() * b.exp(), g * a.cos() * b.exp()),
        normal(5),
        normal(5, seed=2),
        diagnosis="mixed",
    ),
    specimen(
        "outputs-exchanged",
        "Sine and cosine together, with their incoming gradients exchanged",
        lambda x: (x.sin(), x.cos()),
        lambda g, x: g[1] * x.cos() - g[0] * x.sin(),
        normal(6),
        diagnosis="mixed",
    ),
)


def _system() -> Tensor:
    return torch.eye(5, dtype=torch.float64) * 2 + torch.randn(
        5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(3)
    )


def _complex_system() -> Tensor:
    return torch.randn(3, 3, dtype=torch.complex128, generator=torch.Generator().manual_seed(4))
