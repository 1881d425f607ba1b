"""`gradproof.compare` on kernels: right ones pass, wrong ones are found, and nothing of the caller's changes."""

from __future__ import annotations

import pytest
import torch

import gradproof
from gradproof import Reason, Verdict, assert_equivalent, compare

HALVES = [torch.float16, torch.bfloat16]


def plain(x):
    return x * torch.sigmoid(x)


def fused(x):
    return torch.nn.functional.silu(x.float()).to(x.dtype)


class Backward(torch.autograd.Function):
    """silu with a backward that is `change`d."""

    change = staticmethod(lambda gradient: gradient)

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return fused(x)

    @classmethod
    def backward(cls, ctx, gradient):
        (x,) = ctx.saved_tensors
        s = torch.sigmoid(x.float())
        found = gradient.float() * (s + x.float() * s * (1 - s))
        return changes[-1](found).to(x.dtype)


changes = [lambda gradient: gradient]


@pytest.fixture
def changed(request):
    """A kernel whose gradient goes through the function that a test gives."""

    def kernel_with(change):
        changes.append(change)
        return Backward.apply

    yield kernel_with
    del changes[1:]


def point(*shape, dtype=torch.bfloat16, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_a_right_kernel_passes(dtype):
    def kernel(x):
        return torch.nn.functional.silu(x)

    report = compare(kernel, plain, point(32, 16, dtype=dtype), seed=0)

    assert report.verdict is Verdict.PASS
    assert 0 < report.resolution.relative < 64 * torch.finfo(dtype).eps


def test_a_kernel_that_is_better_than_the_plain_reference_passes():
    def coarse(x):
        for _ in range(6):
            x = x * 1.1 / 1.1
        return x

    assert compare(lambda x: x.clone(), coarse, point(32, 16), seed=0).passed


@pytest.mark.parametrize(
    ("mistake", "name"),
    [
        (lambda y: torch.cat([y[:-3], 0 * y[-3:]]), "last-rows"),
        (lambda y: torch.cat([y[:, :-2], 1.5 * y[:, -2:]], 1), "last-columns"),
        (lambda y: torch.cat([y[:8], torch.cat([y[8:16, :4], -y[8:16, 4:8], y[8:16, 8:]], 1), y[16:]]), "tile"),
        (lambda y: 1.2 * y, "factor"),
        (lambda y: -y, "sign"),
        (lambda y: 0 * y, "zero"),
        (lambda y: y.roll(1, 1), "shifted"),
    ],
)
def test_a_wrong_value_is_found_and_named(mistake, name):
    report = compare(lambda x: mistake(fused(x)), plain, point(32, 16), wrt=0, seed=0)

    finding = report.findings[0]
    assert (report.verdict, finding.kind, finding.argument) == (Verdict.FAIL, "wrong-value", "output")
    assert name in [diagnosis.name for diagnosis in finding.diagnoses]


def test_a_small_common_factor_is_found():
    def kernel(x):
        return (1 + 4e-7) * torch.nn.functional.silu(x)

    report = compare(kernel, plain, point(64, 64, dtype=torch.float32), seed=0)

    assert report.findings[0].kind == "wrong-value"
    assert "factor" in report.findings[0].message


@pytest.mark.parametrize(
    ("dtype", "factor"), [(torch.bfloat16, 1.02), (torch.float16, 1.003), (torch.float32, 1 + 5e-7)]
)
def test_a_factor_of_a_few_columns_is_found_that_no_single_entry_shows(dtype, factor):
    def kernel(x):
        y = fused(x)
        return torch.cat([y[:, :8], (factor * y[:, 8:16].double()).to(y.dtype), y[:, 16:]], 1)

    report = compare(kernel, plain, point(64, 48, dtype=dtype).detach(), seed=0)

    (finding,) = report.findings
    assert "common factor" in finding.message
    assert "in [:, 8:16]" in finding.message


@pytest.mark.parametrize("dtype", HALVES)
def test_a_wrong_gradient_is_found_where_values_are_right(changed, dtype):
    def change(gradient):
        gradient = gradient.clone()
        gradient[5, 7] *= 1.25
        return gradient

    report = compare(changed(change), plain, point(32, 16, dtype=dtype), seed=0)

    (finding,) = report.findings
    assert (finding.kind, finding.argument) == ("wrong-gradient", "x")
    assert [entry.index for entry in finding.entries] == [(5, 7)]
    (entry,) = finding.entries
    assert abs(entry.claimed - entry.numerical) > entry.bar


def test_the_message_holds_the_errors_of_both(changed):
    report = compare(changed(lambda gradient: 2 * gradient), plain, point(32, 16), seed=0)

    assert "Its largest error" in report.message
    assert "the plain reference's" in report.message
    assert any("False alarms: at most 1e-06" in note for note in report.notes)


def test_a_missing_gradient_is_wrong():
    report = compare(lambda x: fused(x).detach(), plain, point(8, 8), seed=0)

    assert [finding.kind for finding in report.findings] == ["wrong-gradient"]


def test_a_backward_that_raises_is_a_finding(changed):
    def change(gradient):
        raise RuntimeError("out of registers")

    report = compare(changed(change), plain, point(8, 8), seed=0)

    assert report.findings[0].kind == "backward-raised"
    assert "out of registers" in report.message


def test_a_scalar_loss_and_integer_inputs_are_compared():
    logits, target = point(16, 32, dtype=torch.float32), torch.arange(16)

    def kernel(x, t):
        return torch.logsumexp(x, -1).mean() - x.gather(-1, t[:, None]).mean()

    assert compare(kernel, torch.nn.functional.cross_entropy, (logits, target), seed=0).passed


def test_several_outputs_and_nested_inputs_are_compared():
    def kernel(pair):
        return {"sum": (pair["a"].float() + pair["b"].float()).to(pair["a"].dtype), "product": pair["a"] * pair["b"]}

    def reference(pair):
        return {"sum": pair["a"] + pair["b"], "product": pair["a"] * pair["b"] * 1.1}

    report = compare(kernel, reference, ({"a": point(8, 8), "b": point(8, 8, seed=1)},), seed=0)

    assert {finding.argument for finding in report.findings} == {
        "output['product']",
        "pair['a']",
        "pair['b']",
    }


def test_complex_numbers_are_compared_by_their_parts():
    x = torch.randn(8, 8, dtype=torch.complex64, generator=torch.Generator().manual_seed(0)).requires_grad_()

    assert compare(lambda x: x * x, lambda x: x**2, x, seed=0).passed
    report = compare(lambda x: x * x.conj(), lambda x: x**2, x, seed=0)
    assert report.findings[0].entries[0].part in ("real", "imag")


def test_modules_with_the_same_parameters_are_compared_by_name():
    torch.manual_seed(0)
    kernel, reference = torch.nn.Linear(16, 8).bfloat16(), torch.nn.Linear(16, 8)
    report = compare(kernel, reference, point(4, 16), seed=0)

    assert report.passed
    assert [argument.split(":")[0] for argument in report.subject.arguments] == ["input", "weight", "bias"]


def test_a_reference_may_return_a_wider_dtype():
    assert compare(fused, lambda x: plain(x.float()), point(8, 8), seed=0).passed


def test_a_reference_without_double_precision_is_evaluated_in_single():
    def reference(x):
        if x.dtype == torch.float64:
            raise RuntimeError("not implemented for double")
        return plain(x)

    report = compare(fused, reference, point(8, 8), seed=0)

    assert report.passed
    assert any("single" in note for note in report.notes)


def test_a_reference_that_does_not_run_in_half_precision_leaves_conditioning_and_storage():
    def reference(x):
        if x.dtype == torch.bfloat16:
            raise RuntimeError("not implemented for BFloat16")
        return plain(x)

    report = compare(fused, reference, point(32, 32), seed=0)

    assert report.passed
    assert any("not known" in note for note in report.notes)


def test_atomics_are_allowed_for_and_races_are_inconclusive():
    state = {"calls": 0}

    def atomics(x):
        state["calls"] += 1
        generator = torch.Generator().manual_seed(state["calls"])
        return x[:, torch.randperm(x.shape[1], generator=generator)].sum(1)

    def race(x):
        state["calls"] += 1
        y = x.sum(1)
        return torch.cat([y[:-1], y[-1:] * (1 + 0.1 * (state["calls"] % 3))])

    x = point(64, 256, dtype=torch.float32)
    allowed, found = (compare(kernel, lambda x: x.sum(1), x, seed=0) for kernel in (atomics, race))

    assert allowed.passed
    assert any("nondeterministic" in note for note in allowed.notes)
    assert (found.verdict, found.reason) == (Verdict.INCONCLUSIVE, Reason.NONDETERMINISTIC)


def test_overflow_of_the_format_is_right_and_of_the_kernel_alone_is_wrong():
    x = torch.tensor([100.0, 300.0, 1.0], dtype=torch.float16, requires_grad=True)

    assert compare(lambda x: (x.float() ** 2).to(x.dtype), lambda x: x**2, x.detach(), seed=0).passed
    report = compare(lambda x: x**3 / x, lambda x: x**2, x.detach()[:1], seed=0)
    assert report.findings[0].kind == "wrong-value"


def test_no_entry_that_is_finite_in_both_is_inconclusive():
    x = torch.full((4,), 300.0, dtype=torch.float16)
    report = compare(lambda x: x * x / x, lambda x: x * x / x, x, seed=0)

    assert (report.verdict, report.reason) == (Verdict.INCONCLUSIVE, Reason.NON_FINITE)


def test_without_gradients_values_alone_are_compared():
    report = compare(fused, plain, point(8, 8).detach(), seed=0)

    assert report.passed
    assert any("values alone" in note for note in report.notes)


def test_a_reference_that_is_not_differentiable_is_inconclusive():
    report = compare(fused, lambda x: plain(x).detach(), point(8, 8), seed=0)

    assert (report.verdict, report.reason) == (Verdict.INCONCLUSIVE, Reason.UNSUPPORTED)


def test_empty_tensors_pass():
    assert compare(fused, plain, torch.zeros(0, 4, requires_grad=True), seed=0).passed


def test_nothing_of_the_callers_changes():
    x = point(8, 8)
    x.grad = torch.ones_like(x)
    before, state = x.detach().clone(), torch.get_rng_state()

    def kernel(x):
        y = fused(x)
        with torch.no_grad():
            x.detach().zero_()
        torch.rand(3)
        return y

    with torch.no_grad():
        compare(kernel, plain, x, wrt=0, seed=0)
        assert not torch.is_grad_enabled()

    assert torch.equal(x, before)
    assert torch.equal(x.grad, torch.ones_like(x))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_seed_repeats_a_comparison(changed):
    kernel = changed(lambda gradient: 1.01 * gradient)
    one, other = (compare(kernel, plain, point(16, 16), seed=3) for _ in range(2))

    assert one.findings == other.findings
    assert one.resolution == other.resolution


def test_contracts_of_the_kernel_are_checked_where_they_are_named(changed):
    kernel = changed(lambda gradient: gradient)

    assert compare(kernel, plain, point(8, 8), contracts=("linear",), seed=0).passed


def test_asserting_raises_with_the_report():
    assert_equivalent(fused, plain, point(8, 8))
    with pytest.raises(gradproof.GradientError, match="value of output is wrong") as raised:
        assert_equivalent(lambda x: 2 * fused(x), plain, point(8, 8))
    assert raised.value.report.findings


def test_reports_are_rendered_and_read_back():
    report = compare(lambda x: 2 * fused(x), plain, point(8, 8), seed=0)

    assert gradproof.Report.from_json(report.to_json()) == report
    assert "gradproof.compare(" in report._repr_html_()
    assert "against plain" in str(report)
    assert "columns 0 ▇" in str(report) or "columns 0 █" in str(report)
    assert [found.name for found in report.errors] == ["output", "gradient of x"]
    assert "error over the plain reference" in report._repr_html_()


def test_points_that_a_kernel_does_not_accept_are_left_out():
    def kernel(x):
        if bool((x.detach() != x0.detach()).any()):
            raise ValueError("not these")
        return fused(x)

    x0 = point(8, 8)
    report = compare(kernel, plain, x0, seed=0)

    assert report.passed
    assert any("left out" in note for note in report.notes)


class OnlyIn(torch.autograd.Function):
    """A product whose backward knows some dtypes alone."""

    @staticmethod
    def forward(ctx, x, dtypes):
        ctx.dtypes = dtypes
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        if gradient.dtype not in ctx.dtypes:
            raise NotImplementedError(f"no {gradient.dtype}")
        return 2 * gradient, None


def test_a_reference_whose_backward_raises_in_double_precision_is_refused():
    with pytest.raises(gradproof.InputError, match="backward of"):
        compare(lambda x: 2 * x, lambda x: OnlyIn.apply(x, [torch.bfloat16]), point(8, 8), seed=0)


def test_a_reference_whose_backward_raises_in_half_precision_leaves_conditioning_and_storage():
    report = compare(lambda x: 2 * x, lambda x: OnlyIn.apply(x, [torch.float64]), point(8, 8), seed=0)

    assert report.passed
    assert any("not known" in note for note in report.notes)


def test_a_reference_of_a_fixed_precision_does_not_judge_a_kernel_that_is_as_precise():
    def reference(x):
        y = x.float()
        return (0.5 * y * (1 + torch.erf(y / 2**0.5))).to(x.dtype)

    def kernel(x):
        return 0.5 * x * torch.special.erfc(-x / 2**0.5)

    x = point(16, 32, dtype=torch.float32)
    undecided, wrong = (compare(function, reference, x, seed=0) for function in (kernel, lambda x: 1.0001 * kernel(x)))

    assert (undecided.verdict, undecided.reason) == (Verdict.INCONCLUSIVE, Reason.QUANTISED)
    assert wrong.verdict is Verdict.FAIL


def test_a_wrong_entry_of_a_function_without_rounding_errors_is_found():
    def kernel(x):
        y = x.clone()
        y[3, 4] = y[3, 4] * (1 + 16 * torch.finfo(x.dtype).eps)
        return y

    report = compare(kernel, lambda x: x.clone(), point(16, 32, dtype=torch.float32), seed=0)

    assert [entry.index for entry in report.findings[0].entries] == [(3, 4)]
