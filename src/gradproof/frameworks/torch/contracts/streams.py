"""Contract: on a stream other than the default one, values and gradients are the same (GPU)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from gradproof._options import ContractName
from gradproof.frameworks.torch.contracts.contract import KEPT, Context, Outcome, broken
from gradproof.frameworks.torch.contracts.fresh_calls import Circumstances, deviation, untested
from gradproof.frameworks.torch.internals import stall_stream
from gradproof.frameworks.torch.storage import components, refilled
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

CYCLES = 20_000_000  # of the GPU, some 10 ms: longer than a host takes to launch the kernels of a small function
ADVICE = (
    "Launch every kernel on torch.cuda.current_stream(), which C++ has as at::cuda::getCurrentCUDAStream(), and let a "
    "stream of your own wait for it and be waited for."
)


class SideStream(Circumstances):
    """A side stream that is busy first, and then writes the numbers into the tensors of the call.

    Kernels on any other stream run before that, and read the NaN or the zeros that the tensors hold until then.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]  # torch's own
        self._pending: list[tuple[Tensor, Tensor]] = []

    def copied(self, path: str, tensor: Tensor) -> Tensor:
        """Return a tensor that receives its numbers later."""
        copy = refilled(tensor)
        if copy.device != self._stream.device:
            return copy
        held = components(copy)[-1]
        self._pending.append((held, held.clone()))
        held.fill_(torch.nan if held.is_floating_point() or held.is_complex() else 0)
        return copy

    @contextmanager
    def around(self, part: str) -> Iterator[None]:
        """Run the forward or the backward on the side stream."""
        torch.cuda.synchronize(self._stream.device)
        try:
            with torch.cuda.stream(self._stream):
                stall_stream(CYCLES)
                for held, numbers in self._pending:
                    held.copy_(numbers)
                yield
        finally:  # before any memory that the side stream uses is released
            torch.cuda.synchronize(self._stream.device)
            self._pending.clear()


def streams(subject: TorchSubject, context: Context) -> Outcome:
    """Run the forward and the backward on a side stream, and compare the results. A CPU has no streams to test."""
    device = next((point.device for point in subject.points if point.is_cuda), None)
    if device is None:
        return KEPT
    if (note := untested(subject, ContractName.STREAMS)) is not None:
        return note
    worst = deviation(subject, context, SideStream(device))
    if worst is None:
        return KEPT
    return broken(ContractName.STREAMS, f"On a side stream {worst.words}.", argument=worst.argument, hint=ADVICE)
