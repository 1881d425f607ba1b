"""The driver and the journal: every case has one row, whatever happens to the sweep."""

from __future__ import annotations

import itertools
import json
import pickle
import random
import sqlite3
from functools import partial

import pytest
import torch

from gradproof import Report
from gradproof.audit import Case, Ended, Journal, JournalError, JournalFailedError, Outcome, Result, Selection, sweep
from gradproof.audit import journal as journals
from gradproof.audit.running import seeded
from gradproof.audit.sources import built_in
from gradproof.audit.sweep import SourceError
from gradproof.errors import InputError
from support import audit_cases
from support.audit_cases import case
from support.audit_driver import InThisProcess

PASSED = Result(name="sin", outcome=Outcome.PASS)


@pytest.fixture
def file(tmp_path):
    return tmp_path / "journal.db"


def swept(file, cases, *, executor=None, resume=False):
    with Journal.to_write(file, source="mine", resume=resume) as journal:
        sweep(cases, journal, executor or InThisProcess())
        return {row.result.name: row for row in journal.rows()}


def test_every_case_gets_a_row_with_its_report(file):
    rows = swept(file, [case(audit_cases.wrong, tags=("op=sin",)), case(audit_cases.skipped)])

    wrong = rows["wrong"].result
    assert [row.result.outcome for row in rows.values()] == [Outcome.SKIPPED, Outcome.FAIL]
    assert rows["wrong"].tags == ("op=sin",)
    assert Report.from_json(wrong.report).seed == wrong.seed == case(audit_cases.wrong).seed


def test_a_resumed_sweep_runs_what_has_no_row(file):
    first, second = InThisProcess(), InThisProcess()
    swept(file, itertools.islice(audit_cases.passing(), 4), executor=first)
    rows = swept(file, audit_cases.passing(), executor=second, resume=True)

    assert len(first.ran) == 4
    assert second.ran == ["sin 4", "sin 5"]
    assert len(rows) == 6


def test_an_interrupted_sweep_keeps_what_has_ended(file):
    class Interrupted(InThisProcess):
        def finished(self):
            if len(self.ran) == 3:
                raise KeyboardInterrupt
            return super().finished()

    with pytest.raises(KeyboardInterrupt):
        swept(file, audit_cases.passing(), executor=Interrupted())
    with Journal.to_read(file) as journal:
        assert journal.counts() == {"pass": 3}


def test_cases_are_taken_from_the_source_as_there_is_room(file):
    taken = []

    def endless():
        for number in itertools.count():
            taken.append(number)
            yield Case(str(number), make=audit_cases.skipped)

    class EnoughError(Exception):
        pass

    class Full(InThisProcess):
        def finished(self):
            raise EnoughError

    with pytest.raises(EnoughError):
        swept(file, endless(), executor=Full(capacity=5))
    assert len(taken) == 6


def test_a_case_that_cannot_be_pickled_is_an_error_of_that_case(file):
    rows = swept(file, [Case("lambda", make=lambda: None), case(audit_cases.right)])

    assert rows["lambda"].result.outcome is Outcome.ERROR
    assert "use a function at the top level" in rows["lambda"].result.message
    assert rows["right"].result.outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("cases", "says", "kept"),
    [
        (audit_cases.twice, "Two cases have the name 'right'", {"pass": 1, "fail": 1}),
        (audit_cases.breaking, "raised KeyError: 'no such operator'", {"pass": 1}),
        (audit_cases.leaving_early, "raised SystemExit: 0", {"pass": 1}),
        (partial(iter, ["sin"]), "yielded str", {}),
    ],
)
def test_a_source_at_fault_ends_the_sweep_and_loses_nothing(file, cases, says, kept):
    with pytest.raises(SourceError, match=says):
        swept(file, cases())
    with Journal.to_read(file) as journal:
        assert journal.counts() == kept


def test_a_journal_with_results_is_not_written_without_permission(file):
    swept(file, [case(audit_cases.skipped)])

    with pytest.raises(JournalError, match=r"holds 1 results. Pass --resume"):
        swept(file, [])


def test_two_sweeps_do_not_share_a_journal(file):
    with Journal.to_write(file, source="mine"), pytest.raises(JournalError, match="in use by another sweep"):
        Journal.to_write(file, source="mine", resume=True)
    Journal.to_write(file, source="mine", resume=True).close()


def test_readers_read_while_a_sweep_writes(file):
    with Journal.to_write(file, source="mine") as writer:
        writer.record(Ended(PASSED))
        with Journal.to_read(file) as reader:
            assert reader.has("sin")


def test_versions_and_sources_are_not_mixed(file, monkeypatch):
    swept(file, [case(audit_cases.skipped)])

    with pytest.raises(JournalError, match="of the source mine, not theirs"):
        Journal.to_write(file, source="theirs", resume=True)
    monkeypatch.setattr(journals, "versions_here", lambda: {"gradproof": "9", "python": "3", "torch": "3"})
    with pytest.raises(JournalError, match=r"here are gradproof 9.*gradproof audit diff"):
        swept(file, [], resume=True)


def test_a_file_that_is_no_journal_is_left_alone(file):
    file.write_text("notes " * 1000)

    with pytest.raises(JournalError, match="is not a journal"):
        Journal.to_write(file, source="mine")
    assert file.read_text() == "notes " * 1000


def test_a_folder_is_no_journal(tmp_path):
    with pytest.raises(JournalError, match="cannot be opened"):
        Journal.to_write(tmp_path, source="mine")


def test_another_database_is_no_journal(file):
    with sqlite3.connect(file) as other:
        other.execute("CREATE TABLE mine (x)")

    with pytest.raises(JournalError, match="not a journal of an audit"):
        Journal.to_write(file, source="mine", resume=True)


def test_a_journal_of_a_newer_version_is_refused(file):
    swept(file, [])
    with sqlite3.connect(file) as newer:
        newer.execute(f"PRAGMA user_version = {journals.SCHEMA + 1}")

    with pytest.raises(JournalError, match="newer version"):
        Journal.to_read(file)


def test_a_journal_that_another_program_locks_is_reported(file, monkeypatch):
    swept(file, [])
    other = sqlite3.connect(file, isolation_level=None)
    other.execute("BEGIN EXCLUSIVE")
    monkeypatch.setattr(journals, "PATIENCE", 0.1)

    with pytest.raises(JournalFailedError, match="locked by another program"):
        swept(file, [], resume=True)
    other.close()


def test_a_full_disk_is_reported_and_what_ended_is_kept(file):
    with Journal.to_write(file, source="mine") as journal:
        journal.record(Ended(PASSED))
        journal._connection.execute("PRAGMA max_page_count = 1")
        with pytest.raises(JournalFailedError, match=r"the disk is full. The results up to here are kept"):
            journal.record(Ended(Result(name="big", outcome=Outcome.PASS, report="x" * 100_000)))
        assert journal.counts() == {"pass": 1}


def test_a_read_only_journal_is_reported(file):
    swept(file, [])

    with Journal.to_read(file) as journal, pytest.raises(JournalError, match="is read-only"):
        journal.record(Ended(PASSED))


def test_a_journal_that_is_not_there_is_reported(tmp_path):
    with pytest.raises(JournalError, match="There is no journal"):
        Journal.to_read(tmp_path / "absent.db")


def test_a_row_takes_whatever_a_case_prints(file):
    with Journal.to_write(file, source="mine") as journal:
        journal.record(Ended(Result(name="\ud800\0", outcome=Outcome.ERROR, output="\udcff\0é")))

        assert [row.result.output for row in journal.rows()] == ["\\udcff\0é"]


def test_tags_globs_and_shards_select():
    cases = [case(audit_cases.right, name=f"sin {n}", tags=("dtype=a" if n % 2 else "dtype=b",)) for n in range(100)]

    def names(**options):
        return [each.name for each in Selection(**options).of(cases)]

    assert names(tags=("dtype=a",), globs=("sin ?",)) == ["sin 1", "sin 3", "sin 5", "sin 7", "sin 9"]
    assert sorted(names(shard=(1, 2)) + names(shard=(2, 2))) == sorted(each.name for each in cases)
    assert names(sample=0.2, seed=1) == names(sample=0.2, seed=1) != names(sample=0.2, seed=2)
    assert 5 < len(names(sample=0.2)) < 40


@pytest.mark.parametrize("options", [{"sample": 0.0}, {"sample": 2.0}, {"shard": (0, 3)}, {"shard": (4, 3)}])
def test_a_selection_that_makes_no_sense_is_refused(options):
    with pytest.raises(InputError):
        Selection(**options)


@pytest.mark.parametrize("options", [{"name": ""}, {"make": 3}, {"entry": "look"}])
def test_a_case_that_makes_no_sense_is_refused(options):
    with pytest.raises(InputError):
        Case(**{"name": "sin", "make": audit_cases.right, **options})


@pytest.mark.parametrize("source", ["torch-ops", "torch-modules"])
def test_the_cases_of_torch_are_pickled_and_run(source, file):
    cases = list(itertools.islice(built_in(source)(), 3))
    rows = swept(file, [pickle.loads(pickle.dumps(each)) for each in cases])

    assert {row.result.outcome for row in rows.values()} == {Outcome.PASS}
    assert all(json.loads(row.result.report)["subject"]["coordinates"] for row in rows.values())


def test_every_generator_is_seeded_for_a_case_and_restored(monkeypatch):
    seeds = []
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.manual_seed_all", seeds.append)

    def drawn():
        with seeded(7):
            return torch.rand(1).item(), random.random()

    before = torch.get_rng_state()
    assert drawn() == drawn()
    assert seeds == [7, 7]
    assert torch.equal(torch.get_rng_state(), before)
