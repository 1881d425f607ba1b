"""Contracts: the laws that a derivative obeys whatever its values. Each has a module of its own."""

from __future__ import annotations

from gradproof._options import ContractName
from gradproof.frameworks.torch.contracts.alignment import alignment
from gradproof.frameworks.torch.contracts.attributes import attributes
from gradproof.frameworks.torch.contracts.attribution import excusing_torch
from gradproof.frameworks.torch.contracts.batched import batched
from gradproof.frameworks.torch.contracts.batched_forward import batched_forward
from gradproof.frameworks.torch.contracts.bounds import bounds
from gradproof.frameworks.torch.contracts.contiguity import contiguity
from gradproof.frameworks.torch.contracts.contract import Context, Contract, Outcome
from gradproof.frameworks.torch.contracts.detached import detached
from gradproof.frameworks.torch.contracts.initialised import initialised
from gradproof.frameworks.torch.contracts.linear import linear
from gradproof.frameworks.torch.contracts.no_mutation import no_mutation
from gradproof.frameworks.torch.contracts.no_mutation_forward import no_mutation_forward
from gradproof.frameworks.torch.contracts.repeatable import repeatable
from gradproof.frameworks.torch.contracts.streams import streams
from gradproof.frameworks.torch.contracts.undefined import undefined
from gradproof.frameworks.torch.contracts.undefined_forward import undefined_forward

CONTRACTS = {
    contract.name: contract
    for contract in (
        # first, since a backward that alternates between two answers shows it at the second call
        Contract(name=ContractName.REPEATABLE, mode="reverse", holds=repeatable),
        Contract(name=ContractName.LINEAR, mode="reverse", holds=linear),
        Contract(name=ContractName.UNDEFINED, mode="reverse", holds=excusing_torch(undefined)),
        Contract(name=ContractName.ATTRIBUTES, mode="reverse", holds=attributes),
        Contract(name=ContractName.NO_MUTATION, mode="reverse", holds=no_mutation),
        Contract(name=ContractName.CONTIGUITY, mode="reverse", holds=excusing_torch(contiguity)),
        Contract(name=ContractName.DETACHED, mode="reverse", holds=detached),
        Contract(name=ContractName.BATCHED, mode="reverse", holds=excusing_torch(batched), spreads=True),
        Contract(name=ContractName.BOUNDS, mode="reverse", holds=bounds),
        Contract(name=ContractName.INITIALISED, mode="reverse", holds=initialised),
        Contract(name=ContractName.ALIGNMENT, mode="reverse", holds=excusing_torch(alignment)),
        Contract(name=ContractName.STREAMS, mode="reverse", holds=streams),
        Contract(name=ContractName.UNDEFINED_FORWARD, mode="forward", holds=excusing_torch(undefined_forward)),
        Contract(name=ContractName.NO_MUTATION_FORWARD, mode="forward", holds=no_mutation_forward),
        Contract(name=ContractName.BATCHED_FORWARD, mode="forward", holds=excusing_torch(batched_forward)),
    )
}

__all__ = ["CONTRACTS", "Context", "Contract", "Outcome"]
