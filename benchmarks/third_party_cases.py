"""Functions and modules of packages that others wrote, at points where they have a derivative.

A case names its package, and how to call it with the package's module once that is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

Inputs = tuple[Tensor, ...]


@dataclass(frozen=True)
class Case:
    """A function or module of a package, and how to make it and its inputs."""

    package: str
    name: str
    factory: Callable[[], tuple[Callable[..., Any], Inputs]]


def drawn(*shape: int, low: float = 0.1, high: float = 0.9) -> Tensor:
    """Draw uniform numbers that require grad."""
    return (low + (high - low) * torch.rand(shape, dtype=torch.float64)).requires_grad_()


def normal(*shape: int) -> Tensor:
    """Draw normal numbers that require grad."""
    return torch.randn(shape, dtype=torch.float64).requires_grad_()


def fixed(*shape: int) -> Tensor:
    """Draw uniform numbers that do not require grad."""
    return drawn(*shape).detach()


def rotation(x: Tensor) -> Tensor:
    """Return a rotation matrix for each three numbers."""
    zero = torch.zeros_like(x[..., 0])
    rows = (zero, -x[..., 2], x[..., 1], x[..., 2], zero, -x[..., 0], -x[..., 1], x[..., 0], zero)
    return torch.matrix_exp(torch.stack(rows, -1).reshape(*x.shape[:-1], 3, 3))


Row = tuple[str, Callable[[Any], Callable[..., Any]], Callable[[], Inputs]]
IMAGE: Callable[[], Inputs] = lambda: (drawn(1, 3, 6, 6),)  # noqa: E731  # a row of the table below
TWO_IMAGES: Callable[[], Inputs] = lambda: (drawn(1, 3, 12, 12), drawn(1, 3, 12, 12))  # noqa: E731  # a row
VECTOR: Callable[[], Inputs] = lambda: (normal(3, 5),)  # noqa: E731  # a row
TWO: Callable[[], Inputs] = lambda: (normal(3, 5), normal(3, 5))  # noqa: E731  # a row
SIGNAL: Callable[[], Inputs] = lambda: (normal(2, 16),)  # noqa: E731  # a row
LABELS = torch.tensor([0, 2, 1])
MASK = (torch.arange(36).reshape(1, 1, 6, 6) % 3 == 0).double()


def attribute(path: str, *arguments: Any, **options: Any) -> Callable[[Any], Callable[..., Any]]:
    """Return how to take a function out of a package by its path, with the last arguments given."""

    def taken(package: Any) -> Callable[..., Any]:
        function = partial_path(package, path)
        return lambda *inputs: function(*inputs, *arguments, **options)

    return taken


def made(path: str, *arguments: Any, **options: Any) -> Callable[[Any], Callable[..., Any]]:
    """Return how to make a module of a package by the path of its class."""
    return lambda package: partial_path(package, path)(*arguments, **options)


def partial_path(package: Any, path: str) -> Any:
    """Return an attribute of an attribute of a package, importing submodules on the way."""
    found = package
    for name in path.split("."):
        if not hasattr(found, name):
            import_module(f"{found.__name__}.{name}")
        found = getattr(found, name)
    return found


def unary(prefix: str, names: str, inputs: Callable[[], Inputs], **options: Any) -> list[Row]:
    """Return a row for each of several functions that take the same inputs."""
    return [(f"{prefix}{name}", attribute(f"{prefix}{name}", **options), inputs) for name in names.split()]


def modules(prefix: str, names: str, inputs: Callable[[], Inputs]) -> list[Row]:
    """Return a row for each of several modules that need no arguments."""
    return [(f"{prefix}{name}", made(f"{prefix}{name}"), inputs) for name in names.split()]


def entropic(name: str, **options: Any) -> Row:
    """Return a row for one of entmax's mappings, away from the edges of its support."""
    return (f"{name} {options or ''}".strip(), attribute(name, **options), VECTOR)


TABLE: dict[str, list[Row]] = {
    "entmax": [
        *(entropic(name, dim=-1) for name in ["sparsemax", "entmax15", "sparsemax_bisect"]),
        entropic("entmax_bisect", alpha=1.3),
        entropic("entmax_bisect", alpha=1.7),
        ("entmax_bisect of alpha", attribute("entmax_bisect"), lambda: (normal(3, 5), drawn(3, 1, low=1.2, high=1.8))),
        ("normmax_bisect", attribute("normmax_bisect", alpha=2.5), VECTOR),
        ("budget_bisect", attribute("budget_bisect", budget=2), VECTOR),
        ("sparsemax_loss", attribute("sparsemax_loss", LABELS), VECTOR),
        ("entmax15_loss", attribute("entmax15_loss", LABELS), VECTOR),
        ("sparsemax_bisect_loss", attribute("sparsemax_bisect_loss", LABELS), VECTOR),
        ("entmax_bisect_loss", attribute("entmax_bisect_loss", LABELS), VECTOR),
    ],
    "sparsemax": [("Sparsemax", made("Sparsemax", dim=-1), VECTOR)],
    "timm": [
        *unary("layers.activations.", "swish mish sigmoid tanh gelu quick_gelu", VECTOR),
        *unary(
            "layers.activations_me.",
            "swish_me mish_me hard_sigmoid_me hard_swish_me hard_mish_me",
            lambda: (drawn(3, 5),),
        ),
        *modules("layers.", "GELU Mish Swish", VECTOR),
        ("layers.LayerNorm2d", made("layers.LayerNorm2d", 3), IMAGE),
        ("layers.GroupNorm1", made("layers.GroupNorm1", 3), IMAGE),
        ("layers.RmsNorm", made("layers.RmsNorm", 5), VECTOR),
        ("layers.Mlp", made("layers.Mlp", 5, 7), VECTOR),
        ("layers.GluMlp", made("layers.GluMlp", 5, 8), VECTOR),
        ("layers.SwiGLU", made("layers.SwiGLU", 5, 8), VECTOR),
        ("layers.GatedMlp", made("layers.GatedMlp", 5, 8), VECTOR),
        ("layers.SEModule", made("layers.SEModule", 3, rd_channels=2, act_layer=nn.Tanh), IMAGE),
        ("layers.EcaModule", made("layers.EcaModule", 3), IMAGE),
        ("layers.Attention", made("layers.Attention", 4, num_heads=2), lambda: (normal(1, 3, 4),)),
        ("layers.StdConv2d", made("layers.StdConv2d", 3, 4, 3), IMAGE),
        ("layers.ScaledStdConv2d", made("layers.ScaledStdConv2d", 3, 4, 3), IMAGE),
        ("layers.BlurPool2d", made("layers.BlurPool2d", 3), IMAGE),
        ("layers.SelectAdaptivePool2d", made("layers.SelectAdaptivePool2d", pool_type="catavgmax"), IMAGE),
        ("layers.LayerScale", made("layers.LayerScale", 5), VECTOR),
        ("loss.LabelSmoothingCrossEntropy", lambda t: partial(_loss, t.loss.LabelSmoothingCrossEntropy()), VECTOR),
        ("loss.JsdCrossEntropy", lambda t: partial(_loss, t.loss.JsdCrossEntropy()), lambda: (normal(9, 5),)),
    ],
    "kornia": [
        *unary("color.", "rgb_to_grayscale rgb_to_ycbcr rgb_to_yuv rgb_to_xyz rgb_to_lab rgb_to_luv rgb_to_hsv", IMAGE),
        *unary("color.", "rgb_to_hls rgb_to_linear_rgb linear_rgb_to_rgb", IMAGE),
        ("filters.gaussian_blur2d", attribute("filters.gaussian_blur2d", (3, 3), (1.0, 1.0)), IMAGE),
        ("filters.box_blur", attribute("filters.box_blur", (3, 3)), IMAGE),
        ("filters.median_blur", attribute("filters.median_blur", (3, 3)), IMAGE),
        ("filters.sobel", attribute("filters.sobel"), IMAGE),
        ("filters.laplacian", attribute("filters.laplacian", 3), IMAGE),
        ("filters.bilateral_blur", attribute("filters.bilateral_blur", (3, 3), 0.1, (1.5, 1.5)), IMAGE),
        ("filters.spatial_gradient", attribute("filters.spatial_gradient"), IMAGE),
        ("filters.unsharp_mask", attribute("filters.unsharp_mask", (3, 3), (1.0, 1.0)), IMAGE),
        ("filters.motion_blur", attribute("filters.motion_blur", 3, 30.0, 0.5), IMAGE),
        ("enhance.adjust_gamma", attribute("enhance.adjust_gamma", 1.4), IMAGE),
        ("enhance.adjust_saturation", attribute("enhance.adjust_saturation", 0.8), IMAGE),
        ("enhance.adjust_hue", attribute("enhance.adjust_hue", 0.3), IMAGE),
        ("enhance.normalize_min_max", attribute("enhance.normalize_min_max"), IMAGE),
        ("morphology.dilation", lambda k: lambda x: k.morphology.dilation(x, torch.ones(3, 3)), IMAGE),
        ("morphology.erosion", lambda k: lambda x: k.morphology.erosion(x, torch.ones(3, 3)), IMAGE),
        (
            "geometry.transform.rotate",
            lambda k: lambda x, a: k.geometry.transform.rotate(x, a),
            lambda: (drawn(1, 3, 6, 6), drawn(1, low=10.0, high=20.0)),
        ),
        ("geometry.transform.resize", attribute("geometry.transform.resize", (5, 7)), IMAGE),
        (
            "geometry.transform.warp_affine",
            attribute("geometry.transform.warp_affine", dsize=(6, 6)),
            lambda: (drawn(1, 3, 6, 6), (torch.eye(2, 3)[None] + 0.1 * fixed(1, 2, 3)).requires_grad_()),
        ),
        (
            "geometry.axis_angle_to_rotation_matrix",
            attribute("geometry.axis_angle_to_rotation_matrix"),
            lambda: (normal(2, 3),),
        ),
        (
            "geometry.rotation_matrix_to_axis_angle",
            lambda k: lambda x: k.geometry.rotation_matrix_to_axis_angle(rotation(x)),
            lambda: (drawn(2, 3),),
        ),
        ("geometry.axis_angle_to_quaternion", attribute("geometry.axis_angle_to_quaternion"), lambda: (drawn(2, 3),)),
        ("losses.ssim_loss", attribute("losses.ssim_loss", 5), TWO_IMAGES),
        ("losses.psnr_loss", attribute("losses.psnr_loss", 1.0), TWO_IMAGES),
        ("losses.total_variation", attribute("losses.total_variation"), IMAGE),
        ("losses.focal_loss", lambda k: lambda x: k.losses.focal_loss(x, LABELS, 0.5, 2.0), VECTOR),
        ("losses.dice_loss", lambda k: lambda x: k.losses.dice_loss(x, torch.zeros(1, 6, 6, dtype=torch.long)), IMAGE),
        ("losses.charbonnier_loss", attribute("losses.charbonnier_loss"), TWO),
        ("losses.welsch_loss", attribute("losses.welsch_loss"), TWO),
        ("losses.cauchy_loss", attribute("losses.cauchy_loss"), TWO),
        ("losses.geman_mcclure_loss", attribute("losses.geman_mcclure_loss"), TWO),
        ("losses.js_div_loss_2d", attribute("losses.js_div_loss_2d"), TWO_IMAGES),
        ("feature.harris_response", attribute("feature.harris_response"), IMAGE),
        ("feature.gftt_response", attribute("feature.gftt_response"), IMAGE),
        ("feature.hessian_response", attribute("feature.hessian_response"), IMAGE),
    ],
    "einops": [
        *(
            (f"rearrange {pattern}", attribute("rearrange", pattern), IMAGE)
            for pattern in ("b c h w -> b (c h) w", "b c h w -> w h (b c)")
        ),
        *(
            (f"reduce {how}", attribute("reduce", "b c h w -> b c", how), IMAGE)
            for how in ["mean", "sum", "max", "min", "prod"]
        ),
        ("repeat", attribute("repeat", "b c h w -> b c h (w 2)"), IMAGE),
        ("einsum", lambda e: lambda a, b: e.einsum(a, b, "i j, k j -> i k"), TWO),
        ("layers.torch.Rearrange", made("layers.torch.Rearrange", "b c h w -> b (c h w)"), IMAGE),
        ("layers.torch.Reduce", made("layers.torch.Reduce", "b c (h 2) (w 2) -> b c h w", "max"), IMAGE),
        (
            "layers.torch.EinMix",
            made("layers.torch.EinMix", "b c -> b d", weight_shape="c d", bias_shape="d", c=5, d=4),
            VECTOR,
        ),
    ],
    "pytorch_msssim": [
        ("ssim", attribute("ssim", data_range=1, win_size=5), TWO_IMAGES),
        ("ms_ssim", attribute("ms_ssim", data_range=1, win_size=3), lambda: (drawn(1, 1, 36, 36), fixed(1, 1, 36, 36))),
        ("SSIM", made("SSIM", data_range=1, win_size=5, channel=3), TWO_IMAGES),
    ],
    "torchmetrics": [
        *unary(
            "functional.", "mean_squared_error mean_absolute_error mean_squared_log_error", lambda: (drawn(9), drawn(9))
        ),
        *unary(
            "functional.",
            "cosine_similarity pearson_corrcoef r2_score concordance_corrcoef",
            lambda: (drawn(9), drawn(9)),
        )[1:],
        *unary("functional.", "signal_noise_ratio scale_invariant_signal_noise_ratio", TWO),
        (
            "functional.kl_divergence",
            lambda t: lambda a, b: t.functional.kl_divergence(a.softmax(1), b.softmax(1)),
            TWO,
        ),
        *unary("functional.", "pairwise_cosine_similarity pairwise_euclidean_distance pairwise_linear_similarity", TWO),
        ("functional.image.total_variation", attribute("functional.image.total_variation"), IMAGE),
        (
            "functional.image.peak_signal_noise_ratio",
            attribute("functional.image.peak_signal_noise_ratio", data_range=1.0),
            TWO_IMAGES,
        ),
    ],
    "monai": [
        *(
            (
                f"losses.{name}",
                lambda m, name=name: partial(_masked, getattr(m.losses, name)(sigmoid=True)),
                lambda: (normal(1, 1, 6, 6),),
            )
            for name in ["DiceLoss", "TverskyLoss", "GeneralizedDiceLoss", "DiceCELoss"]
        ),
        ("losses.FocalLoss", lambda m: partial(_masked, m.losses.FocalLoss()), lambda: (normal(1, 1, 6, 6),)),
        (
            "losses.LocalNormalizedCrossCorrelationLoss",
            made("losses.LocalNormalizedCrossCorrelationLoss", spatial_dims=2, kernel_size=3),
            lambda: (drawn(1, 1, 6, 6), drawn(1, 1, 6, 6)),
        ),
        (
            "losses.GlobalMutualInformationLoss",
            made("losses.GlobalMutualInformationLoss", num_bins=5),
            lambda: (drawn(1, 1, 6, 6), fixed(1, 1, 6, 6)),
        ),
        ("losses.BendingEnergyLoss", made("losses.BendingEnergyLoss"), lambda: (normal(1, 2, 7, 7),)),
        ("networks.blocks.activation.Swish", made("networks.blocks.activation.Swish"), VECTOR),
        (
            "networks.blocks.activation.MemoryEfficientSwish",
            made("networks.blocks.activation.MemoryEfficientSwish"),
            VECTOR,
        ),
        ("networks.blocks.activation.Mish", made("networks.blocks.activation.Mish"), VECTOR),
        ("networks.layers.GaussianFilter", made("networks.layers.GaussianFilter", 2, 1.0), IMAGE),
    ],
    "segmentation_models_pytorch": [
        *(
            (
                f"losses.{name}",
                lambda s, name=name: partial(_masked, getattr(s.losses, name)("binary")),
                lambda: (normal(1, 1, 6, 6),),
            )
            for name in ["DiceLoss", "JaccardLoss", "TverskyLoss", "FocalLoss", "LovaszLoss"]
        ),
        (
            "losses.SoftBCEWithLogitsLoss",
            lambda s: partial(_masked, s.losses.SoftBCEWithLogitsLoss()),
            lambda: (normal(1, 1, 6, 6),),
        ),
    ],
    "ptwt": [
        *(
            (f"wavedec {name}", lambda p, name=name: lambda x: tuple(p.wavedec(x, name, level=2)), SIGNAL)
            for name in ("haar", "db2", "sym3")
        ),
        *(
            (f"waverec {name}", lambda p, name=name: lambda x: p.waverec(p.wavedec(x, name, level=2), name), SIGNAL)
            for name in ("haar", "db2")
        ),
        ("wavedec2", lambda p: lambda x: tuple(p.wavedec2(x, "haar", level=1)), lambda: (normal(1, 6, 6),)),
        ("cwt", lambda p: lambda x: p.cwt(x, torch.arange(1, 4), "mexh")[0], SIGNAL),
    ],
    "torchdiffeq": [
        *(
            (
                f"odeint {method}",
                lambda t, method=method: (
                    lambda y, w: t.odeint(
                        lambda _, y: torch.tanh(y @ w),
                        y,
                        torch.linspace(0, 1, 4),
                        method=method,
                        rtol=1e-11,
                        atol=1e-11,
                    )
                ),
                lambda: (normal(2, 3), normal(3, 3)),
            )
            for method in ("rk4", "midpoint", "dopri5")
        ),
        ("odeint_adjoint", lambda t: _Adjoint(t), lambda: (normal(2, 3),)),
    ],
    "torchcde": [
        *unary(
            "", "natural_cubic_coeffs hermite_cubic_coefficients_with_backward_differences", lambda: (normal(1, 6, 2),)
        ),
        ("CubicSpline", lambda t: lambda c: t.CubicSpline(c).evaluate(1.3), lambda: (normal(1, 5, 8),)),
        ("LinearInterpolation", lambda t: lambda c: t.LinearInterpolation(c).evaluate(1.3), lambda: (normal(1, 5, 2),)),
    ],
    "torchsde": [
        (
            "sdeint",
            lambda t: (
                lambda y: t.sdeint(
                    _Sde(),
                    y,
                    torch.tensor([0.0, 0.1]),
                    dt=0.05,
                    method="euler",
                    bm=t.BrownianInterval(0.0, 0.1, size=(2, 3), dtype=torch.float64, entropy=1),
                )
            ),
            lambda: (normal(2, 3),),
        ),
    ],
    "geoopt": [
        *(
            (
                f"PoincareBall.{name}",
                lambda g, name=name: getattr(g.PoincareBall(), name),
                lambda: (drawn(3, 2, high=0.4), drawn(3, 2, low=-0.4, high=0.0)),
            )
            for name in ["dist", "expmap", "logmap", "mobius_add"]
        ),
        ("Sphere.expmap", lambda g: lambda x, u: g.Sphere().expmap(x / x.norm(dim=-1, keepdim=True), u), TWO),
        (
            "Sphere.dist",
            lambda g: lambda x, y: g.Sphere().dist(x / x.norm(dim=-1, keepdim=True), y / y.norm(dim=-1, keepdim=True)),
            TWO,
        ),
        ("Lorentz.dist", lambda g: lambda x, y: g.Lorentz().dist(g.Lorentz().projx(x), g.Lorentz().projx(y)), TWO),
        ("Stiefel.projx", lambda g: g.Stiefel().projx, lambda: (normal(5, 3),)),
        ("linalg.sym_expm", lambda g: lambda x: g.linalg.sym_expm(x + x.mT), lambda: (normal(3, 3),)),
        ("linalg.sym_logm", lambda g: lambda x: g.linalg.sym_logm(x @ x.mT + torch.eye(3)), lambda: (normal(3, 3),)),
        ("linalg.sym_sqrtm", lambda g: lambda x: g.linalg.sym_sqrtm(x @ x.mT + torch.eye(3)), lambda: (normal(3, 3),)),
    ],
    "linear_operator": [
        (
            "DenseLinearOperator.solve",
            lambda m: lambda a, b: m.operators.DenseLinearOperator(_definite(a)).solve(b),
            lambda: (normal(4, 4), normal(4, 2)),
        ),
        (
            "DenseLinearOperator.logdet",
            lambda m: lambda a: m.operators.DenseLinearOperator(_definite(a)).logdet(),
            lambda: (normal(4, 4),),
        ),
        (
            "inv_quad_logdet",
            lambda m: lambda a, b: m.operators.DenseLinearOperator(_definite(a)).inv_quad_logdet(b, logdet=True),
            lambda: (normal(4, 4), normal(4, 2)),
        ),
        (
            "ToeplitzLinearOperator.matmul",
            lambda m: lambda c, b: m.operators.ToeplitzLinearOperator(c).matmul(b),
            lambda: (normal(5), normal(5, 2)),
        ),
        (
            "KroneckerProductLinearOperator.matmul",
            lambda m: (
                lambda a, b, x: m.operators.KroneckerProductLinearOperator(
                    m.operators.DenseLinearOperator(a), m.operators.DenseLinearOperator(b)
                ).matmul(x)
            ),
            lambda: (normal(2, 2), normal(3, 3), normal(6, 2)),
        ),
        (
            "RootLinearOperator.matmul",
            lambda m: lambda r, x: m.operators.RootLinearOperator(r).matmul(x),
            lambda: (normal(4, 2), normal(4, 2)),
        ),
        (
            "utils.cholesky.psd_safe_cholesky",
            lambda m: lambda a: m.utils.cholesky.psd_safe_cholesky(_definite(a)),
            lambda: (normal(4, 4),),
        ),
    ],
    "gpytorch": [
        *(
            (
                f"kernels.{name}",
                lambda g, name=name: lambda x: getattr(g.kernels, name)().double()(x).to_dense(),
                lambda: (normal(5, 2),),
            )
            for name in ["RBFKernel", "RQKernel", "PeriodicKernel", "LinearKernel", "CosineKernel"]
        ),
        *(
            (
                f"kernels.MaternKernel {nu}",
                lambda g, nu=nu: lambda x, y: g.kernels.MaternKernel(nu=nu).double()(x, y).to_dense(),
                lambda: (normal(3, 2), normal(4, 2)),
            )
            for nu in (0.5, 1.5, 2.5)
        ),
        ("functions.log_normal_cdf", attribute("functions.log_normal_cdf"), VECTOR),
        (
            "MultivariateNormal.log_prob",
            lambda g: lambda x, m, a: g.distributions.MultivariateNormal(m, _definite(a)).log_prob(x),
            lambda: (normal(4), normal(4), normal(4, 4)),
        ),
    ],
    "zuko": [
        *(
            (f"transforms.{name}", lambda z, name=name, f=f: lambda x: f(getattr(z.transforms, name), x), VECTOR)
            for name, f in {
                "SoftclipTransform": lambda t, x: t()(x),
                "CircularShiftTransform": lambda t, x: t()(x.tanh()),
            }.items()
        ),
        (
            "transforms.MonotonicRQSTransform",
            lambda z: lambda w, h, d, x: z.transforms.MonotonicRQSTransform(w, h, d)(x),
            lambda: (normal(3, 4), normal(3, 4), normal(3, 3), normal(3)),
        ),
        (
            "flows.NSF.log_prob",
            lambda z: _LogProb(z.flows.NSF(2, 0, bins=3, transforms=1, hidden_features=(5,), activation=nn.Tanh)),
            lambda: (normal(3, 2),),
        ),
        (
            "flows.MAF.log_prob",
            lambda z: _LogProb(z.flows.MAF(2, 0, transforms=1, hidden_features=(5,), activation=nn.Tanh)),
            lambda: (normal(3, 2),),
        ),
        (
            "flows.GF.log_prob",
            lambda z: _LogProb(z.flows.GF(2, 0, transforms=1, components=3)),
            lambda: (normal(3, 2),),
        ),
    ],
    "pyro": [
        (
            "distributions.Normal",
            lambda p: lambda m, s, x: p.distributions.Normal(m, s).log_prob(x),
            lambda: (normal(3), drawn(3), normal(3)),
        ),
        (
            "distributions.VonMises3D",
            lambda p: lambda c, x: p.distributions.VonMises3D(c).log_prob(x / x.norm()),
            lambda: (normal(3), normal(3)),
        ),
        (
            "distributions.ZeroInflatedPoisson",
            lambda p: lambda g, r: p.distributions.ZeroInflatedPoisson(r, gate=g).log_prob(torch.arange(3.0)),
            lambda: (drawn(3), drawn(3)),
        ),
        ("ops.tensor_utils.dct", attribute("ops.tensor_utils.dct"), VECTOR),
        ("ops.tensor_utils.idct", attribute("ops.tensor_utils.idct"), VECTOR),
        ("ops.tensor_utils.convolve", attribute("ops.tensor_utils.convolve"), lambda: (normal(6), normal(3))),
        ("ops.special.log_beta", attribute("ops.special.log_beta"), lambda: (drawn(4, high=3.0), drawn(4, high=3.0))),
        (
            "ops.special.log_binomial",
            attribute("ops.special.log_binomial"),
            lambda: (drawn(4, low=5, high=9), drawn(4, low=1, high=4)),
        ),
        (
            "distributions.transforms.LowerCholeskyAffine",
            lambda p: lambda m, a, x: p.distributions.transforms.LowerCholeskyAffine(m, a.tril())(x),
            lambda: (normal(3), normal(3, 3), normal(3)),
        ),
        ("distributions.transforms.Spline", lambda p: _Spline(p), lambda: (normal(4, 2),)),
        (
            "distributions.transforms.Planar",
            lambda p: _Once(p.distributions.transforms.Planar(3)),
            lambda: (normal(2, 3),),
        ),
        (
            "distributions.transforms.Radial",
            lambda p: _Once(p.distributions.transforms.Radial(3)),
            lambda: (normal(2, 3),),
        ),
        (
            "distributions.transforms.Sylvester",
            lambda p: _Once(p.distributions.transforms.Sylvester(3, 2)),
            lambda: (normal(2, 3),),
        ),
    ],
    "e3nn": [
        *(
            (
                f"o3.spherical_harmonics l={degree}",
                lambda e, degree=degree: lambda x: e.o3.spherical_harmonics(degree, x, normalize=True),
                lambda: (normal(3, 3),),
            )
            for degree in range(5)
        ),
        ("nn.FullyConnectedNet", lambda e: e.nn.FullyConnectedNet([3, 4, 2], torch.tanh), lambda: (normal(4, 3),)),
        ("o3.Linear", lambda e: e.o3.Linear("2x0e + 1x1o", "1x0e + 2x1o"), lambda: (normal(3, 5),)),
        (
            "o3.FullyConnectedTensorProduct",
            lambda e: e.o3.FullyConnectedTensorProduct("1x0e + 1x1o", "1x0e + 1x1o", "1x0e + 1x1o"),
            lambda: (normal(2, 4), normal(2, 4)),
        ),
        ("nn.NormActivation", lambda e: e.nn.NormActivation("2x1o", torch.sigmoid), lambda: (normal(3, 6),)),
        ("o3.angles_to_matrix", attribute("o3.angles_to_matrix"), lambda: (normal(2), normal(2), normal(2))),
        (
            "math.soft_one_hot_linspace",
            lambda e: lambda x: e.math.soft_one_hot_linspace(x, 0.0, 1.0, 4, "gaussian", cutoff=False),
            lambda: (drawn(4),),
        ),
        ("math.soft_unit_step", attribute("math.soft_unit_step"), VECTOR),
    ],
    "opt_einsum": [
        *(
            (f"contract {path}", lambda o, path=path: lambda a, b: o.contract(path, a, b, b), TWO)
            for path in ("ij,kj,lj->ikl", "ij,ij,kj->ik", "ij,ik,ij->jk")
        ),
    ],
    "deepinv": [
        (
            "physics.Blur",
            lambda d: lambda x: d.physics.Blur(filter=fixed(1, 1, 3, 3)).A(x),
            lambda: (drawn(1, 1, 6, 6),),
        ),
        ("loss.metric.PSNR", lambda d: lambda x, y: d.metric.PSNR()(x, y), TWO_IMAGES),
        ("optim.L2 data fidelity", lambda d: lambda x, y: d.optim.data_fidelity.L2().d(x, y), TWO_IMAGES),
    ],
    "torchsparsegradutils": [
        (
            "sparse_mm",
            lambda t: (
                lambda v, b: t.sparse_mm(
                    torch.sparse_coo_tensor(torch.tensor([[0, 1, 2, 2], [1, 0, 0, 2]]), v, (3, 3)), b
                )
            ),
            lambda: (normal(4), normal(3, 2)),
        ),
        (
            "sparse_triangular_solve",
            lambda t: (
                lambda v, b: t.sparse_triangular_solve(
                    torch.sparse_coo_tensor(torch.tensor([[0, 1, 1, 2, 2], [0, 0, 1, 0, 2]]), v, (3, 3)).coalesce(),
                    b,
                    upper=False,
                )
            ),
            lambda: (drawn(5), normal(3, 2)),
        ),
        (
            "sparse_generic_solve",
            lambda t: (
                lambda v, b: t.sparse_generic_solve(
                    torch.sparse_coo_tensor(torch.tensor([[0, 1, 2], [0, 1, 2]]), v, (3, 3)).coalesce(), b
                )
            ),
            lambda: (drawn(3), normal(3)),
        ),
    ],
    "performer_pytorch": [
        (
            "SelfAttention",
            lambda p: p.SelfAttention(
                dim=8, heads=2, dim_head=4, nb_features=6, generalized_attention=True, kernel_fn=nn.Softplus()
            ),
            lambda: (normal(1, 4, 8),),
        ),
        (
            "FastAttention",
            lambda p: p.FastAttention(dim_heads=4, nb_features=6),
            lambda: (normal(1, 2, 5, 4), normal(1, 2, 5, 4), normal(1, 2, 5, 4)),
        ),
    ],
    "memcnn": [
        (
            "InvertibleModuleWrapper of AdditiveCoupling",
            lambda m: m.InvertibleModuleWrapper(
                m.AdditiveCoupling(nn.Sequential(nn.Linear(3, 3), nn.Tanh())), keep_input=True
            ),
            lambda: (normal(2, 6),),
        ),
        (
            "InvertibleModuleWrapper of AffineCoupling",
            lambda m: m.InvertibleModuleWrapper(
                m.AffineCoupling(nn.Sequential(nn.Linear(3, 6), nn.Tanh()), adapter=m.AffineAdapterSigmoid),
                keep_input=True,
            ),
            lambda: (normal(2, 6),),
        ),
    ],
    "reformer_pytorch": [
        (
            "reversible.ReversibleSequence",
            lambda r: partial_path(r, "reversible.ReversibleSequence")(
                nn.ModuleList(
                    [
                        nn.ModuleList(
                            [nn.Sequential(nn.Linear(3, 3), nn.Tanh()), nn.Sequential(nn.Linear(3, 3), nn.Tanh())]
                        )
                    ]
                )
            ),
            lambda: (normal(2, 2, 6),),
        ),
    ],
}


class _Adjoint(nn.Module):
    """An ODE whose gradient is the solution of another ODE."""

    def __init__(self, package: Any) -> None:
        super().__init__()
        self.solve, self.rate = package.odeint_adjoint, nn.Sequential(nn.Linear(3, 3), nn.Tanh())

    def forward(self, y: Tensor) -> Any:
        rate = _Rate(self.rate)
        return self.solve(rate, y, torch.linspace(0, 1, 3), rtol=1e-11, atol=1e-11, method="dopri5")


class _Rate(nn.Module):
    """A right-hand side that does not depend on time."""

    def __init__(self, rate: nn.Module) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, _: Tensor, y: Tensor) -> Any:
        return self.rate(y)


class _Sde(nn.Module):
    """dy = −y dt + sin y dW."""

    noise_type, sde_type = "diagonal", "ito"

    def f(self, _: Tensor, y: Tensor) -> Tensor:
        return -y

    def g(self, _: Tensor, y: Tensor) -> Tensor:
        return y.sin()


class _LogProb(nn.Module):
    """The log-density of a normalising flow."""

    def __init__(self, flow: Any) -> None:
        super().__init__()
        self.flow = flow

    def forward(self, x: Tensor) -> Any:
        return self.flow().log_prob(x)


class _Once(nn.Module):
    """A transform of pyro and its log-determinant, without its cache."""

    def __init__(self, transform: Any) -> None:
        super().__init__()
        self.transform = transform

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.transform._cached_x_y = None, None
        y = self.transform._call(x)
        return y, self.transform.log_abs_det_jacobian(x, y)


def _Spline(package: Any) -> nn.Module:  # noqa: N802  # a module
    return _Once(package.distributions.transforms.Spline(2, count_bins=3))


def _definite(a: Tensor) -> Tensor:
    return a @ a.mT + torch.eye(a.shape[-1])


def _loss(loss: Callable[..., Any], x: Tensor) -> Any:
    return loss(x, LABELS)


def _masked(loss: Callable[..., Any], x: Tensor) -> Any:
    return loss(x, MASK)


SUBMODULES = {"e3nn": ("o3", "nn", "math"), "timm": ("layers", "loss"), "segmentation_models_pytorch": ("losses",)}


def cases() -> Iterator[Case]:
    """Yield every case; nothing is imported before its factory is called."""
    for package, rows in TABLE.items():
        for name, take, inputs in rows:
            yield Case(package, name, partial(_made, package, take, inputs))


def _made(
    package: str, take: Callable[[Any], Callable[..., Any]], inputs: Callable[[], Inputs]
) -> tuple[Callable[..., Any], Inputs]:
    for name in SUBMODULES.get(package, ()):
        import_module(f"{package}.{name}")
    function = take(import_module(package))
    return function, inputs()
