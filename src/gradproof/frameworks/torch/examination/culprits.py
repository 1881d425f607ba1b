"""Find the parts of a wrong function that are wrong by themselves: modules and autograd Functions.

This is done for a check that has failed. The function runs once more while the inputs of its parts are recorded. Every
part is then judged by itself at those inputs, the innermost first. A part that is wrong, and contains no wrong part, is
a culprit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from torch import nn

from gradproof._options import ContractName
from gradproof.engine.results import Culprit, Verdict
from gradproof.engine.verdict import Judgement
from gradproof.frameworks.torch.internals import function_class
from gradproof.frameworks.torch.introspection.autograd_graph import nodes
from gradproof.frameworks.torch.introspection.source import source_of
from gradproof.frameworks.torch.introspection.tracing import Kind, Received, Trace, modules_of
from gradproof.frameworks.torch.subject.arguments import Call
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

CHECKS = 256  # parts judged at most
REPEATS = 3  # wrong calls of one kind of part, after which its other calls are skipped
SHOWN = 4
KINDS = ("wrong-gradient", "non-finite-gradient", "backward-raised", "forward-raised", ContractName.DETACHED.value)
Judge = Callable[[TorchSubject], Judgement]


class Keyworded(nn.Module):
    """A module that is called with keywords, as one that is called with two arguments."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call the module."""
        return self.module(*args, **kwargs)


def with_culprits(judgement: Judgement, subject: TorchSubject, judge: Judge) -> Judgement:
    """Return the judgement with the culprits in its first finding about values."""
    wrong = [finding for finding in judgement.findings if finding.kind in KINDS]
    if not wrong:
        return judgement
    found = culprits(subject, judge, wrong[0].mode)
    if not found:
        return judgement
    findings = tuple(replace(each, culprits=found) if each is wrong[0] else each for each in judgement.findings)
    return replace(judgement, findings=findings)


def culprits(subject: TorchSubject, judge: Judge, mode: str = "reverse") -> tuple[Culprit, ...]:
    """Return the parts whose derivative in this mode is wrong by itself."""
    if kind := subject.lone:
        file, line = source_of(kind.apply, mode)
        return (Culprit(name=kind.__name__, file=file, line=line),) if file else ()
    try:
        calls = _traced(subject)
    except Exception:  # not every module takes hooks, and not every graph can be read any more
        return ()
    wrong: list[tuple[Received, Judgement]] = []
    for group in _groups(calls):
        wrong = list(_wrong(subject, group, judge))
        if wrong:
            break
    return tuple(_culprit(call, found, calls, mode) for call, found in wrong[:SHOWN])


def _traced(subject: TorchSubject) -> list[Received]:
    """Run the function once more, and return the calls of its parts."""
    modules = modules_of(subject.call.function)
    kinds: list[Kind] = list(dict.fromkeys(kind for node in nodes(subject.results) if (kind := function_class(node))))
    if not modules and not kinds:
        return []
    with Trace(modules, kinds) as trace:
        subject.caller.at_the_point()
    return [call for call in trace.calls if call.required]


def _groups(calls: list[Received]) -> Iterator[list[Received]]:
    """Yield the calls in the order in which they are judged: Functions, modules from the innermost, torch's last."""
    yield [call for call in calls if call.is_function]
    modules = [call for call in calls if not call.is_function]
    for depth in sorted({call.depth for call in modules}, reverse=True):
        yield [call for call in modules if call.depth == depth and not _of_torch(call)]
    for depth in sorted({call.depth for call in modules}, reverse=True):
        yield [call for call in modules if call.depth == depth and _of_torch(call)]


def _wrong(subject: TorchSubject, calls: list[Received], judge: Judge) -> Iterator[tuple[Received, Judgement]]:
    """Yield the calls that are wrong by themselves."""
    repeats: dict[Any, int] = {}
    for call in calls[:CHECKS]:
        kind = call.part if call.is_function else type(call.part)
        if repeats.get(kind, 0) >= REPEATS:
            continue
        found = _judged(subject, call, judge)
        if found is not None and found.verdict is Verdict.FAIL:
            repeats[kind] = repeats.get(kind, 0) + 1
            yield call, found


def _judged(subject: TorchSubject, call: Received, judge: Judge) -> Judgement | None:
    """Judge a part by itself; None if it cannot be called by itself."""
    function: Any = call.part
    inputs: tuple[Any, ...] = call.args
    if call.is_function:
        function = function.apply
    elif call.kwargs:
        function, inputs = Keyworded(function), (call.args, call.kwargs)
    try:
        alone = Call(function, inputs)
        with TorchSubject(alone, alone.select(None), alone.slots, subject.tally) as part:
            return judge(part)
    except Exception:  # a part that cannot be called by itself cannot be judged
        return None


def _culprit(call: Received, found: Judgement, calls: list[Received], mode: str) -> Culprit:
    same = [other for other in calls if other.part is call.part and other.within == call.within]
    number = next(k for k, other in enumerate(same, start=1) if other is call)
    name = call.name if call.is_function else f"{call.name} ({type(call.part).__name__})"
    if call.is_function and call.within:
        name += f" in {call.within}"
    if len(same) > 1:
        name += f", call {number} of {len(same)}"
    first = found.findings[0]
    part: Any = call.part
    file, line = source_of(part.apply if call.is_function else part, mode)
    return Culprit(name=name, message=first.message, diagnoses=first.diagnoses, file=file, line=line)


def _of_torch(call: Received) -> bool:
    return type(call.part).__module__.startswith("torch.")
