"""Reading one tensor where another stores its entries is indexing the dense tensor."""

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradproof.sparse.pattern.grid import grid_of, keys_of
from gradproof.sparse.pattern.layouts import index_tensors, stored_values, with_values
from gradproof.sparse.pattern.membership import merge
from gradproof.sparse.pattern.reading import EntryReader
from gradproof.sparse.pattern.templates import union
from gradproof.sparse.pattern.validation import MalformedTensorError
from support.layouts import LAYOUTS
from support.sparse_samples import EXAMPLES, EXAMPLES_OF_EACH, Form, build, example, pairs, samples, samples_of

PAIRS = list(itertools.product(LAYOUTS, LAYOUTS))


def indexed(dense, template):
    """The dense tensor at every entry that a template stores."""
    return torch.stack([dense[entry] for entry in template.entries()] or [dense.new_zeros(())])[
        : len(list(template.entries()))
    ]


@pytest.mark.parametrize(("one", "other"), PAIRS)
@settings(max_examples=6)
@given(data=st.data())
def test_reading_across_layouts_is_indexing_the_dense_tensor(one, other, data):
    template, read = data.draw(pairs(one, other))

    found = EntryReader(template.tensor).read(read.tensor)

    torch.testing.assert_close(found.reshape(-1), indexed(read.dense, template))


@EXAMPLES_OF_EACH
@given(template=samples(), seed=st.integers(0, 9))
def test_reading_a_strided_tensor_is_indexing_it(template, seed):
    dense = torch.randn(template.form.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)

    assert torch.equal(EntryReader(template.tensor).read(dense).reshape(-1), indexed(dense, template))


@EXAMPLES_OF_EACH
@given(template=samples())
def test_reading_a_strided_tensor_asks_for_no_order_in_memory(template):
    shape = template.form.shape
    dense = torch.randn(shape[::-1], generator=torch.Generator().manual_seed(1)).permute(*range(len(shape))[::-1])

    assert torch.equal(EntryReader(template.tensor).read(dense).reshape(-1), indexed(dense, template))


@EXAMPLES_OF_EACH
@given(template=samples())
def test_a_tensor_read_on_its_own_pattern_gives_what_is_stored_and_of_duplicates_the_sum(template):
    found = EntryReader(template.tensor).read(template.tensor)

    torch.testing.assert_close(found.reshape(-1), indexed(template.dense, template))


@EXAMPLES_OF_EACH
@given(template=samples())
def test_the_index_of_an_entry_is_where_it_lies(template):
    cells = EntryReader(template.tensor)

    assert [cells.index(number) for number in range(stored_values(template.tensor).numel())] == list(template.entries())


@pytest.mark.parametrize(("one", "other"), PAIRS)
@settings(max_examples=6)
@given(data=st.data())
def test_what_is_stored_elsewhere_is_reported_and_nothing_else(one, other, data):
    template, read = data.draw(pairs(one, other))
    found = []

    EntryReader(template.tensor).read(read.tensor, lambda keys, values: found.append((keys, values)))

    here, there = set(template.entries()), set(read.entries())
    elsewhere = sum(values.sum() for _, values in found)
    expected = sum((read.dense[index] for index in there - here), torch.zeros((), dtype=torch.float64))
    torch.testing.assert_close(torch.as_tensor(elsewhere, dtype=torch.float64), expected)
    assert any(values.numel() for _, values in found) == bool(there - here)  # an entry may hold no number at all
    assert all(len(keys) == len(values) == len(keys.unique()) for keys, values in found)


def test_what_is_stored_elsewhere_is_reported_of_an_empty_template():
    template, found = build(Form("COO", (), (4, 6)), [[]]).tensor, []
    EntryReader(template).read(example("COO").tensor, lambda keys, values: found.append((keys, values)))

    assert len(found[0][0]) == 4


def test_duplicates_are_summed():
    template = example("COO").tensor
    doubled = torch.sparse_coo_tensor(
        torch.cat(2 * [template._indices()], 1), torch.ones(8, dtype=torch.float64), (4, 6), check_invariants=True
    )

    assert EntryReader(template).read(doubled).tolist() == 4 * [2.0]


def test_missing_entries_are_zero():
    assert EntryReader(example("CSR").tensor).read(build(Form("CSC", (), (4, 6)), [[]]).tensor).tolist() == 4 * [0.0]


def test_every_duplicate_of_the_template_reads_the_whole_sum():
    template = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2), check_invariants=True)

    assert EntryReader(template).read(template).tolist() == [3.0, 3.0]


@pytest.mark.parametrize("name", EXAMPLES)
def test_reading_changes_nothing(name):
    sample = example(name)
    before = [part.clone() for part in (*index_tensors(sample.tensor), stored_values(sample.tensor))]

    for other in EXAMPLES:
        if example(other).tensor.shape == sample.tensor.shape:
            EntryReader(example(other).tensor).read(sample.tensor).mul_(1)

    after = (*index_tensors(sample.tensor), stored_values(sample.tensor))
    assert all(map(torch.equal, before, after))


def test_a_malformed_tensor_is_not_read():
    broken = torch.sparse_csr_tensor([0, 1, 3, 3, 3], [0, 1], [1.0, 2.0], (4, 6), check_invariants=False)

    with pytest.raises(MalformedTensorError, match="a CSR tensor is malformed: its CSR indices end at 3"):
        EntryReader(example("COO").tensor).read(broken)


@EXAMPLES_OF_EACH
@given(sample=samples())
def test_entry_keys_number_the_whole_tensor_row_by_row(sample):
    numbers = torch.arange(sample.dense.numel()).reshape(sample.form.shape)
    keys = grid_of(sample.tensor).entry_keys(keys_of(sample.tensor)).reshape(-1)

    assert keys.tolist() == [int(numbers[entry]) for entry in sample.entries()]


@EXAMPLES_OF_EACH
@given(data=st.data(), sample=samples())
def test_merged_tensors_store_whatever_one_of_them_stores(data, sample):
    other = data.draw(samples_of(sample.form))

    both = union([sample.tensor, other.tensor])

    keys = keys_of(both).tolist()
    wanted = {*keys_of(sample.tensor).tolist(), *keys_of(other.tensor).tolist()}
    assert wanted <= set(keys)
    assert len(set(keys)) == len(keys)
    assert sample.form.batch or wanted == set(keys)
    assert both.layout == sample.tensor.layout


def test_tensors_of_one_pattern_are_merged_into_the_first():
    tensor = example("CSR").tensor

    assert index_tensors(union([tensor, with_values(tensor, 2 * stored_values(tensor))]))[1].data_ptr() == (
        index_tensors(tensor)[1].data_ptr()
    )


@given(some=st.sets(st.integers(0, 40)), others=st.sets(st.integers(0, 40)))
def test_keys_are_merged_in_order_and_each_once(some, others):
    keys, own = merge(torch.tensor(sorted(some), dtype=torch.int64), torch.tensor(sorted(others), dtype=torch.int64))

    assert keys.tolist() == sorted(some | others)
    assert keys[own].tolist() == sorted(some)


@pytest.mark.parametrize(("one", "other"), PAIRS)
def test_a_pattern_that_is_remembered_is_read_as_at_first(one, other):
    template, read = example(one), example(other)
    cells = EntryReader(template.tensor)
    changed = with_values(read.tensor, 3 * stored_values(read.tensor))

    assert torch.equal(3 * cells.read(read.tensor), cells.read(changed))
