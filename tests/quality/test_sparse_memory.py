"""What a check of a sparse matrix takes of memory, counted byte by byte: a few times the matrix, small ones too."""

import pytest
import torch
from benchmarks.memory import allocated
from benchmarks.sparse_subjects import KINDS, bytes_of, matrix_of

import gradproof
from gradproof import Verdict

MOST = 6.0
SEMANTICS = [
    (kind, masked) for kind, what in KINDS.items() for masked in ((True,) if what.only_masked else (True, False))
]


@pytest.mark.parametrize(("rows", "layout"), [(1_000, "COO"), (1_000, "CSR"), (10_000, "CSR")])
@pytest.mark.parametrize(("kind", "masked"), SEMANTICS)
def test_a_check_takes_at_most_six_times_the_matrix_beyond_the_function_s_own(kind, masked, rows, layout):
    function, matrix = KINDS[kind].function, matrix_of(rows, layout)
    reports = []

    def own():
        result = function(matrix)
        torch.autograd.grad(result, matrix, result.detach())

    taken = allocated(lambda: reports.append(gradproof.check(function, matrix, masked=masked, seed=0)))

    assert reports[0].verdict is Verdict.PASS
    assert 0 < taken - allocated(own) <= MOST * bytes_of(matrix)


@pytest.mark.parametrize("layout", ["COO", "CSR"])
def test_memory_held_beside_a_check_is_counted(layout):
    matrix = matrix_of(1_000, layout)

    def check(more):
        buffer = torch.ones(more, dtype=torch.int8)
        assert gradproof.check(torch.sum, matrix, masked=True, seed=0).verdict is Verdict.PASS
        del buffer

    more = 3 * bytes_of(matrix)

    assert allocated(lambda: check(more)) - allocated(lambda: check(0)) == pytest.approx(more, rel=0.01)
