"""Contract: a jvp does not write to inputs, incoming tangents or results."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.autograd import forward_ad

from gradproof._options import ContractName
from gradproof.engine.subject import Step
from gradproof.frameworks.torch.contracts.comparison import gap, noise_of_values
from gradproof.frameworks.torch.contracts.contract import KEPT, Context, Outcome, broken
from gradproof.frameworks.torch.contracts.no_mutation import ADVICE, Watch
from gradproof.frameworks.torch.introspection.autograd_graph import custom_functions, has_forward_rule
from gradproof.frameworks.torch.storage import replica
from gradproof.frameworks.torch.subject.dual_numbers import push_level
from gradproof.frameworks.torch.subject.error_messages import describe
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject


def no_mutation_forward(subject: TorchSubject, context: Context) -> Outcome:
    """Compare what a jvp may read before and after it ran, and the results with those of a call without one."""
    if subject.call.nested or not any(map(has_forward_rule, custom_functions(subject.results))):
        return KEPT
    pushing = _Pushing(subject)
    tangents = subject.inputs.tensors(subject.direction(context.seed, Step(1.0)))
    subject.tally.pushforwards += 1
    try:
        push_level(
            pushing.results, [replica(point) for point in subject.points], [tangent.clone() for tangent in tangents]
        )
        values = subject.outputs.coordinates(pushing.values)
    except Exception as error:
        return Outcome(absent=f"the jvp does not run under observation ({describe(error)})")
    if pushing.mutated is not None:
        return broken(ContractName.NO_MUTATION_FORWARD, f"The jvp writes to {pushing.mutated}.", hint=ADVICE)
    worst = gap(subject.centre, values, precision=subject.numbers.precision, noise=lambda: noise_of_values(subject))
    if worst is None:
        return KEPT
    place = subject.outputs.locate(worst.coordinate)
    message = f"With a tangent the value of {place.path} differs from that without ({worst} at {place})."
    return broken(
        ContractName.NO_MUTATION_FORWARD,
        message,
        hint=f"Look for a jvp that writes to a result or to what was saved for it. {ADVICE}",
    )


class _Pushing:
    """One call on dual numbers, with snapshots of what it may not write to."""

    def __init__(self, subject: TorchSubject) -> None:
        self.subject = subject
        self.values: list[Tensor] = []
        self.mutated: str | None = None

    def results(self, duals: Sequence[Tensor]) -> list[Tensor]:
        """Return the results on dual numbers; keep their values, and the name of a tensor that was written to."""
        subject, watch = self.subject, Watch()
        rest = subject.caller.copies()
        for part, dual in zip(subject.inputs.parts, duals, strict=True):
            primal, tangent = forward_ad.unpack_dual(dual)  # type: ignore[no-untyped-call]  # torch's own
            watch.add(part.path, primal)
            watch.add(f"the tangent of {part.path}", tangent)
        for number, slot in enumerate(subject.slots):
            if number not in subject.varied and not subject.caller.written[number]:
                watch.add(slot.path, rest[number])
        results = subject.results_of(duals, rest)
        self.mutated = watch.mutated()
        self.values = [forward_ad.unpack_dual(result).primal.detach() for result in results]  # type: ignore[no-untyped-call]  # torch's own
        return results
