"""The chart of a sparse output: where it stores something at the point or beside it."""

import torch
from hypothesis import given

from gradproof.frameworks.torch.charts import observed, united
from gradproof.sparse.pattern.layouts import index_tensors, stored_values
from support.charts import DTYPES, drawn, entries, width
from support.sparse_samples import EXAMPLES_OF_EACH, Form, build, samples


def chart_of_output(values):
    """The chart of an output with these values, at the point and beside it."""
    pattern = None
    for value in values:
        pattern = united("y", pattern, value)
    return observed(values[0], pattern, everywhere=len(values) > 1)


def in_order(tensor):
    """A COO tensor may store its entries in any order until it is coalesced."""
    return tensor.coalesce() if tensor.layout == torch.sparse_coo else tensor


@EXAMPLES_OF_EACH
@given(sample=samples(dtypes=DTYPES, duplicates=False))
def test_an_output_is_read_where_it_stores_something_and_one_number_stands_for_the_rest(sample):
    tensor = in_order(sample.tensor)
    chart = chart_of_output([sample.tensor])

    assert chart.size == 1 + width(tensor) * len(list(sample.entries()))
    assert torch.equal(entries(chart.read(tensor)[:-1], tensor), stored_values(tensor).reshape(-1))
    assert chart.index(stored_values(tensor).numel()) == ((), None)


@EXAMPLES_OF_EACH
@given(sample=samples(dtypes=DTYPES, duplicates=False))
def test_an_incoming_gradient_has_the_output_s_pattern(sample):
    chart = chart_of_output([sample.tensor])
    made = chart.make(drawn(chart.size))

    assert torch.equal(chart.read(made)[:-1], drawn(chart.size)[:-1])
    assert all(map(torch.equal, index_tensors(made), index_tensors(in_order(sample.tensor))))


def test_an_output_stored_elsewhere_beside_the_point_is_observed_there():
    form = Form("CSR", (), (2, 3))
    here, there = (build(form, [cells]).tensor for cells in ([(0, 1)], [(0, 1), (1, 2)]))
    chart = chart_of_output([here, there, here])

    assert [chart.index(number)[0] for number in range(3)] == [(0, 1), (1, 2), ()]
    assert chart.read(there)[:2].tolist() == stored_values(there).tolist()
    assert chart.read(here)[1:].tolist() == [0.0, 0.0]


def test_what_an_output_stores_nowhere_near_is_in_the_last_coordinate():
    form = Form("COO", (), (2, 3))
    here, far = build(form, [[(0, 1)]]).tensor, build(form, [[(0, 1), (1, 2)]]).tensor
    chart = chart_of_output([here, here, here])

    assert abs(chart.read(far)[-1]) == abs(stored_values(far)[1])
