"""Test the contracts of one derivative, and add what they find to its judgement."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from gradproof._options import ContractName, Options
from gradproof.engine.extras import extra
from gradproof.engine.results import Finding
from gradproof.engine.subject import DerivativeError
from gradproof.engine.verdict import Judgement
from gradproof.frameworks.torch.contracts import CONTRACTS, Context, Contract, Outcome
from gradproof.frameworks.torch.contracts.contract import KEPT, broken
from gradproof.frameworks.torch.examination.budget import Budget
from gradproof.frameworks.torch.examination.unsupported import all_strided, has_raised
from gradproof.frameworks.torch.subject.graphs import Way
from gradproof.frameworks.torch.subject.torch_subject import TorchSubject


def with_contracts(
    found: Judgement, subject: TorchSubject, mode: str, options: Options, seed: int, budget: Budget | None = None
) -> Judgement:
    """Return the judgement of a derivative with the findings and notes of the contracts of its mode."""
    budget = budget or Budget(None, began=0.0)
    chosen = _chosen(subject, mode, options) if subject.graphs.way is not Way.AS_USED else []
    if not subject.outputs.size:
        chosen = [contract for contract in chosen if contract.name is ContractName.LINEAR]
    if not chosen or not subject.inputs.size or _has_no_derivative(found):
        return found
    subject.forget()
    context = Context(
        seed=seed,
        nondet_tol=options.nondet_tol,
        dtypes=options.dtypes,
        layouts=options.layouts,
        full=options.coverage == "full",
    )
    findings: list[Finding] = []
    notes: list[str] = []
    for contract in chosen:
        outcome, test = KEPT, partial(_outcome, contract, subject, context)
        with extra(f"Contract '{contract.name}'", notes):
            outcome = budget.checking(f"contract '{contract.name}'", test, KEPT)
        findings += outcome.findings
        notes += outcome.notes
        if outcome.absent and contract.name not in options.named_contracts:
            notes += [f"Contract '{contract.name}': {outcome.absent}"] if all_strided(subject) else []
        elif outcome.absent:
            findings += broken(
                contract.name, outcome.absent, hint="Add the rule, or leave the contract out of contracts=."
            ).findings
    if findings and findings[0].kind == ContractName.DETACHED and found.findings:
        first = found.findings[0]  # the missing gradient is one mistake, and is reported once
        detached = replace(findings[0], argument=first.argument, entries=first.entries, diagnoses=first.diagnoses)
        findings = [detached, *findings[1:]]
        found = replace(found, findings=())
    return replace(found, findings=(*found.findings, *findings), notes=(*found.notes, *notes))


def _chosen(subject: TorchSubject, mode: str, options: Options) -> list[Contract]:
    """Return the contracts of this mode that were asked for, or those that are tested by default."""
    if options.contracts is not None and not options.contracts:
        return []
    asked = [each for each in CONTRACTS.values() if each.mode == mode and options.asks_for(each.name)]
    return asked if options.contracts is not None else [each for each in asked if each.is_usual(subject)]


def _outcome(contract: Contract, subject: TorchSubject, context: Context) -> Outcome:
    try:
        return contract.holds(subject, context)
    except DerivativeError as error:
        return broken(
            contract.name,
            f"The derivative raised {error}",
            hint=f"The test of the contract '{contract.name}' made it raise; an ordinary backward does not.",
        )


def _has_no_derivative(found: Judgement) -> bool:
    """Return True if the derivative raised, or if it cannot be read."""
    return has_raised(found) or any(finding.kind == "malformed-gradient" for finding in found.findings)
