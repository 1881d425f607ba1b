"""Attribute a broken contract: some of torch's own rules break it, without any rule of the user's involved."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradproof.frameworks.torch.contracts.contract import Context, Outcome
from gradproof.frameworks.torch.internals import calls_module_hooks, function_class
from gradproof.frameworks.torch.introspection.autograd_graph import nodes
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject

Holds = Callable[[TorchSubject, Context], Outcome]


def excusing_torch(holds: Holds) -> Holds:
    """Return the test of a contract, which reports a missing ability of torch if only torch's rules break it."""

    def excused(subject: TorchSubject, context: Context) -> Outcome:
        outcome = holds(subject, context)
        if not outcome.findings or _has_own_rules(subject):
            return outcome
        message = outcome.findings[0].message.rstrip(".")
        return Outcome(absent=f"{message}. All rules involved are torch's own.", notes=outcome.notes)

    return excused


def _has_own_rules(subject: TorchSubject) -> bool:
    """Return True if a Function of the user's is behind the results, or behind the function they derive from."""
    inner = getattr(subject.call, "subject", None)
    return any(map(_is_own, nodes(subject.results))) or (inner is not None and _has_own_rules(inner))


def _is_own(node: Any) -> bool:
    kind = function_class(node)
    return (kind is not None and not calls_module_hooks(kind)) or "CppNode" in node.name()  # in Python, or in C++
