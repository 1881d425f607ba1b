"""Nothing outside of a tensor's bounds is read into results, or written to."""

from __future__ import annotations

import pytest
import torch

from gradproof import check
from gradproof.frameworks.torch.contracts.memory_guards import Guard, guarded
from support.functions import identity, with_context
from support.kernels import at_address, doubled_in_place_of_empty, saving, surrounded
from support.points import normal, point


def one_more(x):
    """The entries of a vector and the one after its end."""
    return x.as_strided((x.numel() + 1,), (1,))


def test_right_functions_keep_it(asked, right):
    assert asked("bounds", *right) == []


@pytest.mark.parametrize("count", [1, 5, 16])
def test_a_forward_that_reads_past_the_end_breaks_it(asked, count):
    smoothed = saving(lambda x: x + 0.5 * one_more(x)[1:], lambda g, x: g)

    (finding,) = asked("bounds", smoothed, surrounded(count))

    assert "reads outside of x" in finding.message
    assert "value of output" in finding.message
    assert "nan instead of" in finding.message
    assert f"output[{count - 1}]" in finding.message
    assert "mask" in finding.hint


def test_a_read_past_the_end_whose_nan_is_ignored_breaks_it(asked):
    def peak(x):
        return torch.fmax(x, torch.stack([*x[1:], *one_more(x)[-1:]]))

    (finding,) = asked("bounds", saving(peak, lambda g, x: g), surrounded(4))

    assert "a large number around it" in finding.message


def test_a_read_past_the_end_that_only_minima_show_breaks_it(asked):
    lowest = saving(lambda x: torch.fmin(x, one_more(x)[-1].clamp(max=0)), lambda g, x: g)

    (finding,) = asked("bounds", lowest, surrounded(4))

    assert "around it" in finding.message


def test_a_backward_that_reads_past_what_it_saved_breaks_it(asked):
    (finding,) = asked("bounds", saving(torch.sin, lambda g, x: g * one_more(x)[1:].cos()), surrounded(4))

    assert "reads outside of x" in finding.message
    assert finding.argument == "x"


def test_a_backward_that_reads_past_its_incoming_gradient_breaks_it(asked):
    (finding,) = asked(
        "bounds", with_context(identity, lambda ctx, g: g + 1e-9 * at_address(g, g.numel() + 1)[1:]), point(4)
    )

    assert "reads outside of the incoming gradient of output" in finding.message


def test_a_read_past_the_end_of_indices_breaks_it(asked):
    index = torch.tensor([0, 2, 1, 3])[:3]

    def picked(ctx, x, index):
        ctx.index = index
        return x[one_more(index)[1:]]

    def backward(ctx, g):
        return torch.zeros(4, dtype=g.dtype).index_add(0, ctx.index, g), None

    (finding,) = asked("bounds", with_context(picked, backward), (point(4), index))

    assert "reads outside of index" in finding.message


def test_a_read_between_the_entries_of_a_view_breaks_it(asked):
    spread = normal(8)[::2].requires_grad_()
    dense = saving(lambda x: x.as_strided(x.shape, (1,)).clone(), lambda g, x: g)

    assert "reads outside of x" in asked("bounds", dense, spread)[0].message


def test_a_read_past_an_allocated_tensor_breaks_it(asked):
    def scratch(x):
        partial = torch.zeros_like(x)
        partial += x
        return at_address(partial, x.numel() + 1)[1:] + x

    (finding,) = asked("bounds", saving(scratch, lambda g, x: g), point(4))

    assert "a tensor that it allocates" in finding.message


def test_a_forward_that_writes_past_its_input_breaks_it(asked):
    def forward(x):
        at_address(x, x.numel() + 1)[-1] = 1.5
        return 2 * x

    (finding,) = asked("bounds", saving(forward, lambda g, x: 2 * g), point(4))

    assert finding.message == "The forward writes outside of x: 1 entry past its end."
    assert "stores" in finding.hint


def test_a_forward_that_writes_past_its_output_breaks_it(asked):
    def forward(x):
        result = torch.empty_like(x)
        at_address(result, x.numel() + 1)[:] = 2 * torch.cat([x, x[-1:]])
        return result

    (finding,) = asked("bounds", saving(forward, lambda g, x: 2 * g), point(4))

    assert finding.message == (
        "The forward writes outside of a tensor of shape (4,) that it allocates: 1 entry past its end."
    )


def test_a_backward_that_writes_past_the_gradient_that_it_allocates_breaks_it(asked):
    def backward(g, x):
        result = g.new_zeros(g.shape)
        at_address(result, g.numel() + 1)[:] = 2 * torch.cat([g, g[-1:]])
        return result

    (finding,) = asked("bounds", saving(lambda x: 2 * x, backward), point(4))

    assert "The backward writes" in finding.message


def test_kernels_that_stay_inside_keep_it(asked):
    def copied(x):
        result = torch.empty_like(x)
        at_address(result, x.numel())[:] = 2 * at_address(x, x.numel())
        return result

    assert asked("bounds", saving(copied, lambda g, x: copied(g)), point(4)) == []
    assert asked("bounds", saving(doubled_in_place_of_empty, lambda g, x: 2 * g), surrounded(5)) == []


def test_a_result_that_grows_into_its_memory_keeps_it(asked):
    def grown(x):
        result = torch.empty(2, dtype=x.dtype)
        with pytest.warns(UserWarning, match="resized"):
            torch.mul(x, 2, out=result)
        return result

    assert asked("bounds", saving(grown, lambda g, x: 2 * g), point(4)) == []


def test_a_compiled_function_is_tested_as_it_is_compiled(asked):
    def reading_beyond(graph, example):
        return lambda x: (x + 0.5 * one_more(x)[1:],)

    torch.compiler.reset()
    compiled = torch.compile(lambda x: x * 1, backend=reading_beyond)

    (finding,) = asked("bounds", saving(compiled, lambda g, x: g), surrounded(4))

    assert "reads outside of x" in finding.message


def test_a_function_that_bypasses_its_arguments_is_noted():
    x = point(4)

    report = check(lambda _: x.sin(), x, contracts="kernel", seed=0)

    assert report.passed
    assert any("'bounds' was not tested" in note for note in report.notes)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_sparse_tensors_keep_it(asked, layout):
    matrix = torch.eye(3, dtype=torch.float64).to_sparse(layout=layout).requires_grad_()

    report = check(
        lambda a: torch.sparse.mm(a, torch.ones(3, 2, dtype=a.dtype)), matrix, masked=True, contracts="kernel"
    )

    assert not [finding for finding in report.findings if finding.kind != "wrong-gradient"]


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.complex64, torch.int64, torch.bool])
@pytest.mark.parametrize("fill", range(3))
def test_a_guard_says_where_it_was_written_to(dtype, fill):
    tensor = torch.tensor([0, 1, 1, 0, 1, 0]).to(dtype)[::2]
    copy, (guard,) = guarded(tensor, fill, before=4, after=4)
    untouched = guard.written()
    memory = copy.as_strided((13,), (1,), 0)
    other = ~memory if dtype == torch.bool else memory + 1
    other = torch.where(other == memory, torch.ones((), dtype=dtype), other)  # large numbers, and NaN
    found = []
    for place in (10, 9, 3, 1, 5):
        before = memory[place].clone()
        memory[place] = torch.zeros((), dtype=dtype) if other[place] != other[place] else other[place]
        found.append(guard.written())
        memory[place] = before

    assert untouched is None
    assert torch.equal(copy, tensor)
    assert copy.stride() == tensor.stride()
    assert found == [
        "2 entries past its end",
        "1 entry past its end",
        "1 entry before its beginning",
        "3 entries before its beginning",
        "between its entries, at 1 from the first",
    ]


def test_a_guard_of_an_expanded_tensor_has_its_strides():
    tensor = torch.arange(3.0).expand(4, 3)
    guard = Guard(tensor, torch.nan, before=2, after=2)

    assert torch.equal(guard.tensor, tensor)
    assert guard.tensor.stride() == tensor.stride()


def test_writes_past_a_view_are_found_beside_what_they_change():
    def forward(x):
        x.detach().as_strided((x.numel() + 1,), (1,))[-1] = 7
        return 2 * x

    x = torch.zeros(16, dtype=torch.float64)[4:8].requires_grad_()
    report = check(saving(forward, lambda g, x: 2 * g), x, contracts=("bounds",), seed=0)

    assert [finding.kind for finding in report.findings] == ["bounds"]
