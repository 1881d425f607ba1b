"""Contracts: the laws that a derivative obeys whatever its values. Each is a module of its own."""

from __future__ import annotations

from gradproof.frameworks.torch.contracts.attributes import attributes
from gradproof.frameworks.torch.contracts.attribution import excusing_torch
from gradproof.frameworks.torch.contracts.batched import batched
from gradproof.frameworks.torch.contracts.batched_forward import batched_forward
from gradproof.frameworks.torch.contracts.contiguity import contiguity
from gradproof.frameworks.torch.contracts.contract import Contract, Outcome, Terms
from gradproof.frameworks.torch.contracts.detached import detached
from gradproof.frameworks.torch.contracts.linear import linear
from gradproof.frameworks.torch.contracts.no_mutation import undisturbed
from gradproof.frameworks.torch.contracts.no_mutation_forward import undisturbed_forward
from gradproof.frameworks.torch.contracts.repeatable import repeatable
from gradproof.frameworks.torch.contracts.undefined import undefined
from gradproof.frameworks.torch.contracts.undefined_forward import undefined_forward

CONTRACTS = {
    contract.name: contract
    for contract in (
        Contract(name="repeatable", mode="reverse", holds=repeatable),  # first: what changes by turns shows at once
        Contract(name="linear", mode="reverse", holds=linear),
        Contract(name="undefined", mode="reverse", holds=excusing_torch(undefined)),
        Contract(name="attributes", mode="reverse", holds=attributes),
        Contract(name="undisturbed", mode="reverse", holds=undisturbed),
        Contract(name="contiguity", mode="reverse", holds=excusing_torch(contiguity)),
        Contract(name="detached", mode="reverse", holds=detached),
        Contract(name="batched", mode="reverse", holds=excusing_torch(batched), spreads=True),
        Contract(name="undefined-forward", mode="forward", holds=excusing_torch(undefined_forward)),
        Contract(name="undisturbed-forward", mode="forward", holds=undisturbed_forward),
        Contract(name="batched-forward", mode="forward", holds=excusing_torch(batched_forward)),
    )
}

__all__ = ["CONTRACTS", "Contract", "Outcome", "Terms"]
