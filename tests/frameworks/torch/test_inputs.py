"""What may be checked: nests, layouts, modules, and the choice of what is varied."""

from __future__ import annotations

import collections
import dataclasses
import functools
from types import MappingProxyType
from typing import NamedTuple

import pytest
import torch
from torch import nn

from gradproof import InputError, Verdict, check, gradcheck
from support.findings import arguments_of, blamed
from support.functions import Spoiled, doubled
from support.points import point


class Pair(NamedTuple):
    left: torch.Tensor
    right: torch.Tensor


# ── nests ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("container", [tuple, list])
def test_a_tuple_or_list_is_spread_over_positions(container):
    report = check(lambda a, b: a.sin() * b, container([point(3), point(3, seed=2)]), seed=0)

    assert report.passed
    assert arguments_of(report) == ["inputs[0]", "inputs[1]"]


def test_nested_inputs_are_passed_in_their_own_containers():
    def function(pair, options, rest):
        assert isinstance(pair, Pair)
        assert type(options) is dict
        assert type(rest) is list
        return pair.left * pair.right.sin() + options["scale"]["w"] * rest[0][0]

    inputs = (Pair(point(3), point(3, seed=2)), {"scale": {"w": point(3, seed=3)}}, [(point(3, seed=4),)])
    report = check(function, inputs, seed=0)

    assert report.passed
    assert arguments_of(report) == ["inputs[0][0]", "inputs[0][1]", "inputs[1]['scale']['w']", "inputs[2][0][0]"]


@pytest.mark.parametrize(
    ("spoil", "path"),
    [
        ((0,), "inputs[0][0]"),
        ((1,), "inputs[0][1]"),
        ((2,), "inputs[1]['scale']['w']"),
        ((3,), "inputs[2][0][0]"),
        ((0, 3), None),
    ],
)
def test_a_wrong_gradient_in_a_nest_is_named_by_its_path(spoil, path):
    def function(pair, options, rest):
        parts = [pair.left, pair.right, options["scale"]["w"], rest[0][0]]
        a, b, c, d = (doubled(part) if number in spoil else part for number, part in enumerate(parts))
        return a.sin() + b.cos() + c.exp() + d.tanh()

    inputs = (Pair(point(3), point(3, seed=2)), {"scale": {"w": point(3, seed=3)}}, [(point(3, seed=4),)])

    assert blamed(check(function, inputs, seed=0)) == ({path} if path else {"inputs[0][0]", "inputs[2][0][0]"})


@dataclasses.dataclass(frozen=True, slots=True)
class State:
    """What a simulation passes on from step to step."""

    position: torch.Tensor
    velocity: torch.Tensor
    name: str = "state"


@pytest.mark.parametrize("options", [{}, {"coverage": "full"}, {"order": 2}, {"modes": ("reverse", "forward")}])
def test_dataclasses_are_inputs_and_outputs(options):
    def moved(state, time):
        return State(state.position + time * state.velocity, state.velocity.sin())

    report = check(moved, (State(point(3), point(3, seed=2)), point()), seed=0, **options)

    assert report.passed
    assert arguments_of(report) == ["inputs[0].position", "inputs[0].velocity", "inputs[1]"]
    assert [label.split(":")[0] for label in report.subject.outputs] == ["output.position", "output.velocity"]


@pytest.mark.parametrize(
    ("wrt", "chosen"),
    [("state", ["position", "velocity"]), ("state.velocity", ["velocity"]), ("inputs[0].position", ["position"])],
)
def test_a_dataclass_and_its_fields_are_chosen_by_name(wrt, chosen):
    report = check(lambda state: state.position * state.velocity, State(point(3), point(3, seed=2)), wrt=wrt, seed=0)

    assert arguments_of(report) == [f"inputs[0].{name}" for name in chosen]


def test_a_wrong_gradient_in_a_dataclass_is_told_by_its_field():
    state = State(point(3), point(3, seed=2))
    report = check(lambda state: state.position * doubled(state.velocity), (state,), seed=0)

    assert [finding.argument for finding in report.findings] == ["inputs[0].velocity"]


def test_a_namedtuple_is_spread_like_a_tuple():
    assert check(lambda left, right: left * right, Pair(point(3), point(3, seed=2)), seed=0).passed


@pytest.mark.parametrize(
    "mapping",
    [
        dict,
        collections.OrderedDict,
        MappingProxyType,
        collections.UserDict,
        lambda items: collections.defaultdict(list, items),
    ],
    ids=["dict", "OrderedDict", "MappingProxyType", "UserDict", "defaultdict"],
)
@pytest.mark.parametrize("nested", [False, True])
def test_any_mapping_of_tensors_is_taken(mapping, nested):
    inputs = mapping({"a": point(3)})

    assert check(lambda batch: batch["a"].sin(), (inputs,) if nested else inputs, seed=0).passed


def test_a_dict_is_spread_over_keyword_parameters():
    report = check(lambda *, x, w: (x * w).sin(), {"w": point(3), "x": point(3, seed=2)}, seed=0)

    assert report.passed
    assert set(arguments_of(report)) == {"inputs['w']", "inputs['x']"}


def test_a_dict_is_spread_over_any_keywords():
    assert check(lambda **tensors: sum(tensors.values()).sin(), {"w": point(3), "x": point(3, seed=2)}, seed=0).passed


def test_a_dict_that_does_not_fit_the_parameters_is_one_argument():
    assert check(lambda batch: batch["x"].sin() * batch["w"], {"x": point(3), "w": point(3)}, seed=0).passed


def test_a_dict_whose_keys_are_no_names_is_one_argument():
    assert check(lambda batch: batch[0].sin() * batch["a b"], {0: point(3), "a b": point(3)}, seed=0).passed


def test_a_dict_is_spread_over_the_parameters_of_a_modules_forward():
    report = check(nn.Bilinear(2, 3, 4).double(), {"input1": point(5, 2), "input2": point(5, 3)}, seed=0)

    assert report.passed
    assert arguments_of(report) == ["inputs['input1']", "inputs['input2']", "weight", "bias"]


def test_values_that_are_no_tensors_are_passed_as_they_are():
    marker = object()

    def function(x, power, text, nothing, other):
        assert (power, text, nothing) == (3, "text", None)
        assert other is marker
        return x**power

    assert check(function, (point(3), 3, "text", None, marker), seed=0).passed


def test_integer_and_bool_tensors_are_passed_and_not_varied():
    index, mask = torch.tensor([2, 0]), torch.tensor([True, False])

    report = check(lambda x, i, m: torch.where(m, x[i].sin(), x[i].exp()), (point(3), index, mask), seed=0)

    assert report.passed
    assert arguments_of(report) == ["inputs[0]"]


def test_tensors_that_do_not_require_grad_are_not_varied():
    report = check(lambda x, y: x * doubled(y), (point(3), point(3).detach()), seed=0)

    assert report.passed
    assert arguments_of(report) == ["inputs[0]"]


# ── outputs ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "wrap",
    [
        lambda y: (y, y.sum()),
        lambda y: [y, [y * 2]],
        lambda y: {"y": y, "z": {"w": (y,)}},
        lambda y: Pair(y, y + 1),
        lambda y: (None, y, "text", 3),
        lambda y: (y, y.argmax(), y > 0),
        lambda y: (y, y.detach()),
        lambda y: torch.max(y, dim=0),
    ],
    ids=["tuple", "list", "dict", "namedtuple", "no tensors", "integers", "detached", "structseq"],
)
def test_outputs_may_be_nested_and_hold_anything(wrap):
    assert check(lambda x: wrap(x.sin()), point(3), seed=0).passed


def test_a_wrong_gradient_of_one_output_is_named_by_its_path():
    report = check(lambda x: {"a": x.sin(), "b": [None, doubled(x)]}, point(1), seed=0)

    assert report.verdict is Verdict.FAIL
    assert str(report.findings[0].entries[0].output) == "output['b'][1][0]"


def test_an_output_that_does_not_depend_on_the_inputs_is_no_hindrance():
    assert check(lambda x: (x.sin(), torch.ones(2, requires_grad=True)), point(3), seed=0).passed


def test_an_input_that_is_returned_as_it_is_passes():
    assert check(lambda x: x, point(3), seed=0).passed


def test_an_input_without_influence_passes():
    assert check(lambda x, y: x.sin(), (point(3), point(2)), seed=0).passed


# ── shapes and layouts ───────────────────────────────────────────────────────────────────────────────────────────────


def _strided_with_gaps():
    return point(6, 8).detach()[::2, 1::3].requires_grad_()


LAYOUTS = {
    "0-dim": lambda: point(),
    "one entry": lambda: point(1, 1, 1),
    "transposed": lambda: point(3, 4).detach().t().requires_grad_(),
    "permuted": lambda: point(2, 3, 4).detach().permute(2, 0, 1).requires_grad_(),
    "with gaps": _strided_with_gaps,
    "channels last": lambda: point(2, 3, 4, 5).detach().to(memory_format=torch.channels_last).requires_grad_(),
    "expanded": lambda: point(3, 1).detach().expand(3, 4).requires_grad_(),
    "expanded scalar": lambda: point().detach().expand(5).requires_grad_(),
    "overlapping windows": lambda: point(8).detach().unfold(0, 3, 1).requires_grad_(),
    "diagonal": lambda: point(4, 4).detach().diagonal().requires_grad_(),
    "view of a larger base": lambda: point(10).detach()[3:7].requires_grad_(),
    "view of a much larger base": lambda: point(200_000).detach()[70_000:140_000:20_000].requires_grad_(),
    "not a leaf": lambda: 2 * point(3),
    "parameter": lambda: nn.Parameter(point(3).detach()),
    "conjugated": lambda: point(3, dtype=torch.complex128).detach().conj().requires_grad_(),
    "conjugated and transposed": lambda: point(3, 2, dtype=torch.complex128).detach().mH.requires_grad_(),
    "conjugated with gaps": lambda: point(7, dtype=torch.complex128).detach()[1::2].conj().requires_grad_(),
    "negated": lambda: point(3, dtype=torch.complex128).detach().conj().imag.requires_grad_(),
    "real part": lambda: point(3, dtype=torch.complex128).detach().real.requires_grad_(),
    "conjugated scalar": lambda: point(dtype=torch.complex128).detach().conj().requires_grad_(),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("seed", [0, 1])
def test_a_right_gradient_passes_in_any_layout(layout, seed):
    assert check(lambda x: x.sin() * x, LAYOUTS[layout](), seed=seed).passed


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_wrong_gradient_is_found_in_any_layout(layout):
    x = LAYOUTS[layout]()
    spoiled = (0,) * x.dim()

    def spoil(gradient):
        gradient = gradient.clone(memory_format=torch.contiguous_format)
        gradient[spoiled] *= 1.001
        return gradient

    report = check(lambda x: Spoiled.apply(x, spoil).sin(), x, seed=0)

    assert blamed(report) == {"inputs[0]"}
    assert {entry.index for entry in report.findings[0].entries} == {spoiled}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_function_sees_the_callers_values_shape_and_strides(layout):
    x = LAYOUTS[layout]()
    seen = []

    def function(y):
        seen.append((y.stride(), y.detach().clone()))
        return y.sin()

    check(function, x, seed=0)

    strides, value = seen[0]
    assert strides == x.stride()
    assert torch.equal(value, x.detach())


@pytest.mark.parametrize("layout", ["transposed", "permuted", "with gaps", "channels last", "view of a larger base"])
def test_strides_are_kept_at_perturbed_points(layout):
    x = LAYOUTS[layout]()
    strides = set()

    def function(y):
        strides.add(y.stride())
        return y.sin()

    check(function, x, contracts=(), seed=0)

    assert strides == {x.stride()}


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex128])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0, 3)])
def test_an_empty_input_passes_with_a_note(shape, dtype):
    report = check(torch.sin, point(*shape, dtype=dtype), seed=0)

    assert report.passed
    assert "no entries to check" in report.notes[0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_sum_of_an_empty_input_passes(dtype):
    assert check(torch.sum, point(0, dtype=dtype), seed=0).passed


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.complex64])
@pytest.mark.parametrize("order", [1, -1])
def test_an_empty_input_beside_others_is_no_hindrance(dtype, order):
    inputs = (point(0, dtype=dtype), point(3, dtype=dtype))[::order]

    assert check(lambda a, b: torch.cat([a, b]).sin(), inputs, seed=0).passed


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_empty_output_beside_others_is_no_hindrance(dtype):
    assert check(lambda x: (x[:0], x.sin()), point(3, dtype=dtype), seed=0).passed


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_an_empty_output_passes_with_a_note(dtype):
    report = check(lambda x: x[:0], point(3, dtype=dtype), seed=0)

    assert report.passed
    assert "no entries to check" in report.notes[0]


# ── shared memory ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_two_inputs_that_share_memory_are_varied_by_themselves():
    base = point(5).detach()
    inputs = (base[:4].requires_grad_(), base[1:].requires_grad_())

    assert check(lambda a, b: a.sin() * b, inputs, seed=0).passed
    assert blamed(check(lambda a, b: a.sin() * doubled(b), inputs, seed=0)) == {"inputs[1]"}


def test_the_same_tensor_twice_is_two_inputs():
    x = point(3)

    assert check(lambda a, b: a.sin() * b, (x, x), seed=0).passed
    assert blamed(check(lambda a, b: a.sin() * doubled(b), (x, x), seed=0)) == {"inputs[1]"}


def test_the_same_tensor_varied_and_fixed_is_fixed_in_one_place():
    x = point(3)

    assert check(lambda a, b: a.sin() * doubled(b), (x, x), wrt=0, seed=0).passed


# ── modules ──────────────────────────────────────────────────────────────────────────────────────────────────────────


class Scale(nn.Module):
    """A weight whose gradient is doubled on demand."""

    def __init__(self, change=lambda gradient: gradient):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor([0.5, 1.5, -2.0], dtype=torch.float64))
        self.bias = nn.Parameter(torch.tensor([0.1, 0.2, 0.3], dtype=torch.float64))
        self.register_buffer("offset", torch.ones(3, dtype=torch.float64))
        self.change = change

    def forward(self, x, *, shift=0.0):
        return (Spoiled.apply(self.weight, self.change) * x + self.bias + self.offset + shift).sin()


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.layer = inner

    def forward(self, x):
        return self.layer(x)


def test_the_parameters_of_a_module_are_checked_by_name():
    report = check(Scale(), point(3), seed=0)

    assert report.passed
    assert arguments_of(report) == ["inputs[0]", "weight", "bias"]


def test_the_parameters_of_a_module_are_checked_even_where_no_input_requires_grad():
    report = check(Scale(), point(3).detach(), seed=0)

    assert report.passed
    assert arguments_of(report) == ["weight", "bias"]


def test_a_frozen_parameter_is_not_checked():
    module = Scale(lambda gradient: 2 * gradient)
    module.weight.requires_grad_(False)

    report = check(module, point(3), seed=0)

    assert report.passed
    assert arguments_of(report) == ["inputs[0]", "bias"]


def test_a_wrong_parameter_gradient_is_named():
    assert blamed(check(Scale(lambda gradient: 2 * gradient), point(3), seed=0)) == {"weight"}


def test_a_wrong_parameter_gradient_of_an_inner_module_is_named_by_its_path():
    report = check(Outer(Scale(lambda gradient: 2 * gradient)), point(3), seed=0)

    assert blamed(report) == {"layer.weight"}
    assert "layer.weight[" in str(report)


def test_a_wrong_parameter_gradient_of_a_sequence_is_named_by_its_path():
    assert blamed(check(nn.Sequential(nn.Tanh(), Scale(torch.neg)), point(3), seed=0)) == {"1.weight"}


def test_buffers_are_not_varied_and_not_checked():
    module = Scale()
    module.offset.requires_grad_()

    assert "offset" not in arguments_of(check(module, point(3), seed=0))


def test_a_buffer_may_be_chosen_by_name():
    assert arguments_of(check(Scale(), point(3), wrt="offset", seed=0)) == ["offset"]


def test_parameters_are_not_reported_as_captured():
    assert check(Scale(), point(3), seed=0).notes == ("Spoiled: no jvp, so forward mode was not checked.",)


def test_tied_parameters_are_one():
    module = nn.Sequential(Scale(), Scale())
    module[1].weight = module[0].weight

    report = check(module, point(3), seed=0)

    assert report.passed
    assert "1.weight" not in arguments_of(report)


def test_a_dict_reaches_keyword_only_parameters_of_a_module():
    report = check(Scale(), {"x": point(3), "shift": point(3, seed=2)}, seed=0)

    assert report.passed
    assert "inputs['shift']" in arguments_of(report)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("training", [True, False])
def test_batch_norm_passes_and_keeps_its_running_statistics(training, dtype):
    module = nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.Tanh()).to(dtype).train(training)
    before = {name: value.clone() for name, value in module.state_dict().items()}

    assert check(module, point(4, 2, 6, dtype=dtype), seed=0).passed
    assert all(torch.equal(value, before[name]) for name, value in module.state_dict().items())
    assert module.training is training


@pytest.mark.parametrize("module", [nn.LSTM, nn.GRU], ids=lambda module: module.__name__)
def test_recurrent_modules_pass(module):
    assert check(module(2, 3).double(), point(4, 1, 2), seed=0).passed


def test_attention_passes():
    attention = nn.MultiheadAttention(4, 2, batch_first=True).double()
    x = point(1, 3, 4)

    assert check(attention, (x, x, x), seed=0).passed


# ── wrt ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def mixed(first, options, last=None):
    return first.sin() + options["a"] * options["b"] + last


def mixed_inputs():
    return (point(3), {"a": point(3, seed=2), "b": point(3, seed=3)}, point(3, seed=4))


@pytest.mark.parametrize(
    ("wrt", "expected"),
    [
        (0, ["inputs[0]"]),
        (2, ["inputs[2]"]),
        ("first", ["inputs[0]"]),
        ("last", ["inputs[2]"]),
        ("inputs[2]", ["inputs[2]"]),
        ("inputs[1]['b']", ["inputs[1]['b']"]),
        ("options['b']", ["inputs[1]['b']"]),
        ("b", ["inputs[1]['b']"]),
        (1, ["inputs[1]['a']", "inputs[1]['b']"]),
        ("options", ["inputs[1]['a']", "inputs[1]['b']"]),
        ([0, "b"], ["inputs[0]", "inputs[1]['b']"]),
        (("b", 0), ["inputs[0]", "inputs[1]['b']"]),
        (["first", 0], ["inputs[0]"]),
        (range(2), ["inputs[0]", "inputs[1]['a']", "inputs[1]['b']"]),
    ],
)
def test_wrt_chooses_by_position_name_or_path(wrt, expected):
    report = check(mixed, mixed_inputs(), wrt=wrt, seed=0)

    assert report.passed
    assert arguments_of(report) == expected


def test_wrt_chooses_inputs_that_do_not_require_grad():
    report = check(torch.mul, (point(3).detach(), point(3).detach()), wrt=1, seed=0)

    assert report.passed
    assert arguments_of(report) == ["inputs[1]"]


def test_wrt_leaves_out_a_wrong_gradient():
    inputs = (point(3), point(3, seed=2))

    assert check(lambda a, b: a.sin() * doubled(b), inputs, wrt=0, seed=0).passed
    assert blamed(check(lambda a, b: a.sin() * doubled(b), inputs, wrt=1, seed=0)) == {"inputs[1]"}


def test_wrt_does_not_take_one_position_for_another_that_begins_alike():
    inputs = tuple(point(1, seed=seed) for seed in range(12))

    assert arguments_of(check(lambda *x: torch.cat(x).sin(), inputs, wrt=1, seed=0)) == ["inputs[1]"]


def test_wrt_does_not_take_one_name_for_another_that_begins_alike():
    assert arguments_of(check(lambda w, weight: w.sin() * weight, (point(3), point(3)), wrt="w", seed=0)) == [
        "inputs[0]"
    ]


@pytest.mark.parametrize(
    ("wrt", "expected"),
    [
        ("w", ["inputs['w'][0]", "inputs['w'][1]['b']"]),
        ("w[0]", ["inputs['w'][0]"]),
        ("w[1]['b']", ["inputs['w'][1]['b']"]),
        ("b", ["inputs['w'][1]['b']"]),
    ],
)
def test_wrt_chooses_a_keyword_that_is_a_container_and_what_is_in_it_by_name(wrt, expected):
    inputs = {"x": point(3), "w": [point(3), {"b": point(3)}]}

    assert arguments_of(check(lambda x, w: x * w[0] + w[1]["b"] ** 2, inputs, wrt=wrt, seed=0)) == expected


def test_wrt_chooses_a_keyword_by_name():
    assert arguments_of(check(lambda x, w: x * w, {"x": point(3), "w": point(3)}, wrt="w", seed=0)) == ["inputs['w']"]


@pytest.mark.parametrize(
    ("wrt", "expected"),
    [
        ("layer.weight", ["layer.weight"]),
        ("layer", ["layer.weight", "layer.bias"]),
        (["x", "layer.bias"], ["inputs[0]", "layer.bias"]),
    ],
)
def test_wrt_chooses_parameters_by_name_or_module(wrt, expected):
    assert arguments_of(check(Outer(Scale()), point(3), wrt=wrt, seed=0)) == expected


@pytest.mark.parametrize("wrt", ["0.weight", "1.weight"])
def test_wrt_knows_a_tied_parameter_by_each_of_its_names(wrt):
    tied = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3)).double()
    tied[1].weight = tied[0].weight

    assert arguments_of(check(tied, point(4, 3), wrt=wrt, seed=0)) == ["0.weight"]


def test_wrt_that_names_a_module_leaves_out_its_integer_buffers():
    report = check(nn.Sequential(nn.BatchNorm1d(3).double()), point(4, 3), wrt="0", seed=0)

    assert arguments_of(report)[:2] == ["0.weight", "0.bias"]
    assert "0.num_batches_tracked" not in arguments_of(report)


@pytest.mark.parametrize("wrt", [3, -7, "nobody", "inputs[9]", "", [0, "nobody"]])
def test_a_wrt_that_names_nothing_is_refused_with_what_there_is(wrt):
    with pytest.raises(InputError, match=r"names no tensor.*inputs\[0\], inputs\[1\]\['a'\]"):
        check(mixed, mixed_inputs(), wrt=wrt)


@pytest.mark.parametrize("wrt", [1.5, True, [True], [None], {"a": 1}, b"first", [], (), point(1), [1.5], {0}])
def test_a_wrt_of_a_wrong_type_is_refused(wrt):
    with pytest.raises(InputError, match="Pass a position, a name or a path"):
        check(mixed, mixed_inputs(), wrt=wrt)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint8])
def test_a_wrt_that_names_an_integer_tensor_is_refused(dtype):
    with pytest.raises(InputError, match=rf"inputs\[1\].*{dtype}.*floating-point"):
        check(lambda x, i: x * i, (point(3), torch.ones(3, dtype=dtype)), wrt=[0, 1])


def test_a_wrt_that_names_a_value_that_is_no_tensor_is_refused():
    with pytest.raises(InputError, match="power"):
        check(lambda x, power: x**power, (point(3), 2.0), wrt="power")


# ── captured tensors ─────────────────────────────────────────────────────────────────────────────────────────────────

GLOBAL_WEIGHT = torch.ones(3, dtype=torch.float64, requires_grad=True)
HIDDEN = [torch.ones(3, dtype=torch.float64, requires_grad=True)]


def _uses_a_global(x):
    return x * GLOBAL_WEIGHT


class Machine:
    def __init__(self):
        self.gain = point(3)

    def run(self, x):
        return self.gain * x.sin()


def _notes(function):
    report = check(function, point(3), seed=0)
    assert report.passed
    return "\n".join(report.notes)


def test_a_tensor_in_a_closure_is_named_in_a_note():
    kept = point(3, seed=2)

    note = _notes(lambda x: x * kept)

    assert note.startswith("kept of shape (3,)")
    assert "not checked" in note


def test_a_global_tensor_is_named_in_a_note():
    assert "GLOBAL_WEIGHT" in _notes(_uses_a_global)


def test_a_captured_parameter_is_named_in_a_note():
    model = Outer(Scale())

    notes = _notes(lambda x: model(x))

    assert "model.layer.weight" in notes
    assert "model.layer.bias" in notes


def test_a_tensor_of_a_bound_methods_self_is_named_in_a_note():
    assert "self.gain" in _notes(Machine().run)


def test_a_parameter_of_a_bound_methods_module_is_named_in_a_note():
    assert "self.layer.weight" in _notes(Outer(Scale()).forward)


@pytest.mark.parametrize(
    "function",
    [
        functools.partial(torch.mul, point(3, seed=2)),
        lambda x: x * HIDDEN[0],
        lambda x: x * GLOBAL_WEIGHT.exp(),
    ],
    ids=["partial", "in a list", "derived"],
)
def test_a_tensor_captured_elsewhere_is_noticed(function):
    assert "requires grad and is used by" in _notes(function)


def test_an_input_that_is_also_captured_is_noticed():
    x = point(3)

    report = check(lambda y: y * x, x, seed=0)

    assert report.passed
    assert "uses inputs[0] by itself" in report.notes[0]


def test_many_captured_tensors_are_counted():
    kept = [point(1, seed=seed) for seed in range(20)]

    report = check(lambda x: x * torch.cat(kept).sum(), point(3), seed=0)

    assert len(report.notes) == 9
    assert "12 more" in report.notes[-1]


def test_a_captured_tensor_that_does_not_require_grad_is_no_news():
    kept = point(3).detach()

    assert _notes(lambda x: x * kept) == ""


def test_a_captured_tensor_without_influence_is_no_news():
    kept = point(3)

    assert _notes(lambda x: x * kept.detach()) == ""


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="needs oneDNN")
class TestTensorsThatOnlyOneDnnCanRead:
    """They are held as strided tensors, and given to the function as they came."""

    @staticmethod
    def opaque():
        return torch.tensor([0.5, -1.5, 2.0]).to_mkldnn().requires_grad_()

    @pytest.mark.parametrize("ask", [torch.autograd.gradcheck, gradcheck], ids=["torch", "gradproof"])
    @pytest.mark.filterwarnings("ignore:Input #0 requires gradient and is not a double")
    def test_a_right_gradient_passes(self, ask):
        options = {"eps": 1e-3, "atol": 1e-2, "check_undefined_grad": False}

        assert ask(lambda x: x.to_dense() ** 2, (self.opaque(),), **options)

    def test_the_function_gets_its_own_kind_in_any_nest(self):
        seen = set()

        def function(nest):
            seen.add(nest["x"].layout)
            return nest["x"].to_dense() * nest["factor"]

        assert check(function, ({"x": self.opaque(), "factor": 2.0},), seed=0).passed
        assert seen == {torch._mkldnn}

    def test_a_wrong_gradient_is_found(self):
        x = self.opaque()
        report = check(lambda x: doubled(x.to_dense()), x, seed=0)

        assert blamed(report) == {"inputs[0]"}
        assert x.grad is None


# Parameters


class _Scaled(nn.Module):
    """A module that knows its parameters by what torch registers."""

    def forward(self, x):
        (weight,) = self.parameters()
        return torch.sin(weight) * x


def put_into_a_module(weight, x):
    module = _Scaled()
    module.weight = weight
    return module(x)


def take_the_place_of_its_weight(weight, x):
    layer = nn.Linear(3, 2, bias=False)
    layer.weight = weight
    return layer(x)


@pytest.mark.parametrize("function", [put_into_a_module, take_the_place_of_its_weight])
@pytest.mark.parametrize(
    "options", [{}, {"coverage": "full"}, {"order": 2}, {"modes": ("reverse", "forward")}], ids=str
)
def test_a_parameter_is_given_to_the_function_as_a_parameter(function, options):
    weight = nn.Parameter(point(2, 3).detach())
    x = point(2, 3)

    assert check(function, (weight, x), **options).verdict is Verdict.PASS
    assert check(function, {"weight": weight, "x": x}, **options).verdict is Verdict.PASS


@pytest.mark.parametrize("requires_grad", [True, False])
def test_a_parameter_that_is_not_checked_is_given_as_a_parameter_too(requires_grad):
    weight = nn.Parameter(point(2, 3).detach(), requires_grad=requires_grad)
    x = point(2, 3)

    assert check(take_the_place_of_its_weight, (weight, x), wrt="x").verdict is Verdict.PASS


def test_a_plain_tensor_is_not_given_as_a_parameter():
    def function(x):
        assert not isinstance(x, nn.Parameter)
        return x.sin()

    assert check(function, (point(3),)).verdict is Verdict.PASS


# ── modules whose parameters cannot be replaced ──────────────────────────────────────────────────────────────────────


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("wrap", [torch.jit.script, lambda net: torch.jit.trace(net, point(4, 3)), nn.DataParallel])
def test_a_compiled_or_spread_module_is_a_function_of_its_inputs(wrap):
    net = wrap(nn.Sequential(nn.Linear(3, 3), nn.Tanh()).double())

    assert check(net, (point(4, 3),)).verdict is Verdict.PASS
    assert gradcheck(net, (point(4, 3),))


def test_a_lazy_module_is_refused_in_words():
    with pytest.raises(InputError, match="have no size yet"):
        check(nn.LazyLinear(3), (point(4, 3),))
