"""The driver: takes cases from a source, hands them to an executor, and writes each result into the journal."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from gradproof.audit.case import Case, Outcome, Result
from gradproof.audit.executors import Executor
from gradproof.audit.journal import Ended, Journal
from gradproof.errors import InputError


class _Pending(NamedTuple):
    case: Case
    pickled: bytes

    def ended(self, result: Result) -> Ended:
        seed = self.case.seed  # which the result of a process that was lost does not have
        return Ended(result if result.seed == seed else replace(result, seed=seed), self.pickled, self.case.tags)


class SourceError(InputError):
    """A source that raised, or that yielded something that cannot be run; the cases before it are in the journal."""


def sweep(
    cases: Iterable[Case], journal: Journal, executor: Executor, *, watch: Callable[[Result | None], None] | None = None
) -> None:
    """Run every case that has not ended yet, and record it as it ends.

    `watch` receives every result, and None now and then. Cases are taken from the source as there is room for them, so
    that a million are not held in memory. Whatever ends the sweep, what is in the journal stays.
    """
    pending: dict[str, _Pending] = {}
    tell = watch or (lambda result: None)

    def record(*ended: Ended) -> None:
        journal.record(*ended)
        for each in ended:
            tell(each.result)

    def collect() -> None:
        if results := executor.finished():
            record(*(pending.pop(result.name).ended(result) for result in results))
        else:
            tell(None)

    try:
        for case in _new(cases, journal):
            try:
                pickled = pickle.dumps(case)
            except Exception as error:
                record(Ended(_unpicklable(case, error), tags=case.tags))
                continue
            while len(pending) >= executor.capacity:
                collect()
            pending[case.name] = _Pending(case, pickled)
            executor.submit(case.name, pickled)
    except SourceError:
        while pending:
            collect()
        raise
    while pending:
        collect()


def _new(cases: Iterable[Case], journal: Journal) -> Iterator[Case]:
    """Return the cases that have no row yet; raise `SourceError` where the source is at fault."""
    for case in _guarded(cases):
        if not isinstance(case, Case):
            raise SourceError(f"The source yielded {type(case).__name__}: yield gradproof.audit.Case objects.")
        if not journal.is_new(case.name):
            raise SourceError(
                f"Two cases have the name {case.name!r}. Names identify cases in the journal: make each unique. "
                "The results up to here are kept."
            )
        if not journal.has(case.name):
            yield case


def _guarded(cases: Iterable[Case]) -> Iterator[Case]:
    iterator = iter(cases)
    while True:
        try:
            case = next(iterator)
        except StopIteration:
            return
        except (Exception, SystemExit) as error:
            words = f"{type(error).__name__}: {error}".removesuffix(".")
            raise SourceError(
                f"The source of the cases raised {words}. The cases before are in the journal; "
                "correct the source and go on with --resume."
            ) from error
        yield case


def _unpicklable(case: Case, error: Exception) -> Result:
    message = (
        f"The case cannot be sent to a worker: {error}. make= and options= are pickled: use a function at the top "
        "level of a module, or functools.partial of one, and make tensors inside it."
    )
    return Result(name=case.name, outcome=Outcome.ERROR, reason="unpicklable", message=message, seed=case.seed)
