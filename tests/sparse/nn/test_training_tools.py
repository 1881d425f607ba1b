"""Layers under what models are trained with: processes, the compiler, averages, mixed precision, saved states."""

import os
import shutil
import socket
import subprocess
import sys
import warnings

import pytest
import torch
from torch import distributed, nn
from torch._inductor import config as inductor
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from gradproof import check
from gradproof.sparse import GraphConvolution, SparseLinear
from support import two_processes
from support.two_processes import RING, batch, model, train

LAYERS = {
    "linear": lambda: SparseLinear(3, 2, density=0.5),
    "convolution": lambda: GraphConvolution(3, 2, edge_index=RING, nodes=4),
    "softmax": lambda: GraphConvolution(3, 2, edge_index=RING, nodes=4, normalization="softmax"),
}
COMPILER = os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")


def in_two_processes(folder):
    """Return what each of two processes has at the end."""
    loopback = next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "")
    environment = {**os.environ, **({"GLOO_SOCKET_IFNAME": loopback} if loopback else {})}
    script, meeting_place = two_processes.__file__, str(folder / "meeting")
    results = [folder / f"rank{rank}" for rank in range(2)]
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", script, str(rank), meeting_place, str(result)],
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, result in enumerate(results)
    ]
    try:
        for process in started:
            _, errors = process.communicate(timeout=120)
            assert process.returncode == 0, errors
    finally:
        for process in started:
            process.kill()
            process.communicate()
    return [torch.load(result) for result in results]


@pytest.mark.skipif(
    not (distributed.is_available() and distributed.is_gloo_available()), reason="this torch has no torch.distributed"
)
def test_two_processes_end_where_one_does_with_the_joined_batch(tmp_path):
    alone = model()
    train(alone, *batch())

    ranks = in_two_processes(tmp_path)

    for name, tensor in alone.state_dict().items():
        assert ranks[0]["state"][name].equal(ranks[1]["state"][name]), name
        assert torch.allclose(ranks[0]["state"][name], tensor, rtol=1e-12, atol=1e-14), name
    assert [rank["kept"] for rank in ranks] == [True, True]  # no process sorts its entries again at every step
    assert [rank["followed"] for rank in ranks] == [[True, True], [True, True]]


def gradients(run, layer, x):
    """The result and all gradients of one call."""
    x = x.clone().requires_grad_()
    result = run(x)
    return [result, *torch.autograd.grad(result.square().sum(), [x, *layer.parameters()])]


def compiled(layer, backend):
    torch.compiler.reset()
    return torch.compile(layer, backend=backend, fullgraph=True)


def same(ours, theirs):
    return all(map(torch.allclose, ours, theirs))


@pytest.fixture
def quiet_compiler():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the compiler's own, about itself
        yield
    torch.compiler.reset()


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.usefixtures("quiet_compiler")
def test_a_layer_is_compiled_as_one_graph_without_breaks(name):
    layer, x = LAYERS[name](), torch.randn(4, 3)

    assert same(gradients(compiled(layer, "aot_eager"), layer, x), gradients(layer, layer, x))


@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.usefixtures("quiet_compiler")
def test_a_layer_that_was_checked_is_compiled_as_before(name):
    layer, x = LAYERS[name](), torch.randn(4, 3)
    check(layer, x, contracts=())

    assert same(gradients(compiled(layer, "aot_eager"), layer, x), gradients(layer, layer, x))


@pytest.mark.skipif(COMPILER is None, reason="inductor needs a C++ compiler, and there is none")
@pytest.mark.usefixtures("quiet_compiler")
def test_a_network_is_compiled_down_to_machine_code(monkeypatch):
    monkeypatch.setattr(inductor, "compile_threads", 1)  # a pool of processes takes longer to start than to compile
    net, x = nn.Sequential(LAYERS["softmax"](), nn.Tanh(), SparseLinear(2, 5, density=0.5)), torch.randn(4, 3)

    assert same(gradients(compiled(net, "inductor"), net, x), gradients(net, net, x))


@pytest.mark.usefixtures("quiet_compiler")
def test_a_compiled_layer_follows_the_pattern_that_is_loaded_into_it():
    one, other = (SparseLinear(6, 4, density=0.5, generator=torch.Generator().manual_seed(k)) for k in range(2))
    x, run = torch.randn(5, 6), compiled(one, "aot_eager")
    run(x)

    one.load_state_dict(other.state_dict())

    assert one.pattern == other.pattern
    assert same(gradients(run, one, x), gradients(other, other, x))


@pytest.mark.parametrize("name", LAYERS)
def test_an_exponential_average_of_a_layer_is_that_of_its_parameters(name):
    layer, x = LAYERS[name](), torch.randn(4, 3)
    average = AveragedModel(layer, multi_avg_fn=get_ema_multi_avg_fn(0.75), use_buffers=False)
    average.update_parameters(layer)
    before = [parameter.detach().clone() for parameter in layer.parameters()]
    sgd = torch.optim.SGD(layer.parameters(), lr=0.1)
    layer(x).square().sum().backward()
    sgd.step()
    average.update_parameters(layer)

    for held, old, new in zip(average.module.parameters(), before, layer.parameters(), strict=True):
        assert torch.allclose(held, 0.75 * old + 0.25 * new)
    state = {key.removeprefix("module."): tensor for key, tensor in average.state_dict().items() if key != "n_averaged"}
    layer.load_state_dict(state)
    assert average(x).equal(layer(x))


@pytest.mark.parametrize("name", LAYERS)
def test_mixed_precision_computes_about_the_same_and_keeps_gradients_in_full(name):
    layer, x = LAYERS[name](), torch.randn(4, 3)
    exact = gradients(layer, layer, x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rounded = gradients(layer, layer, x)

    whole, near = (torch.cat([tensor.reshape(-1).float() for tensor in found]) for found in (exact, rounded))
    assert torch.linalg.vector_norm(near - whole) <= 0.03 * torch.linalg.vector_norm(whole)
    assert {gradient.dtype for gradient in rounded[1:]} == {torch.float32}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_made_without_memory_is_filled_by_its_state(name, tmp_path):
    layer, x = LAYERS[name](), torch.randn(4, 3)
    torch.save(layer.state_dict(), tmp_path / "state")
    empty = LAYERS[name]().to("meta")

    empty.load_state_dict(torch.load(tmp_path / "state"), assign=True)

    assert empty(x).equal(layer(x))


@pytest.mark.parametrize("name", LAYERS)
def test_a_scaler_of_gradients_trains_layers_in_half_precision(name):
    layer, x = LAYERS[name](), torch.randn(4, 3)
    sgd, scaler = torch.optim.SGD(layer.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=1024.0)
    losses = []
    for _ in range(20):
        sgd.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = layer(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(sgd)
        scaler.update()
        losses.append(float(loss.detach()))

    assert losses[-1] < 0.5 * losses[0]
    assert all(parameter.grad.isfinite().all() for parameter in layer.parameters())
