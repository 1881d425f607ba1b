"""The journal of an audit: a SQLite file with one row a case, written for good when the case ends."""

from __future__ import annotations

import json
import math
import os
import platform
import socket
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

from gradproof.audit import lock
from gradproof.audit.case import Outcome, Result
from gradproof.errors import InputError

APPLICATION = 0x67707266  # "gprf", in the header of the file
SCHEMA = 1
SYNCED = 1.0  # seconds between two writes that are flushed to the disk
PATIENCE = 10.0  # seconds to wait for another program that has locked the file
TABLES = """
CREATE TABLE sweep (
    id INTEGER PRIMARY KEY, source TEXT NOT NULL, versions TEXT NOT NULL, host TEXT NOT NULL, began REAL NOT NULL
);
CREATE TABLE result (
    name TEXT PRIMARY KEY, outcome TEXT NOT NULL, reason TEXT NOT NULL, message TEXT NOT NULL, report TEXT NOT NULL,
    output TEXT NOT NULL, seconds REAL NOT NULL, seed INTEGER NOT NULL, host TEXT NOT NULL, finished REAL NOT NULL,
    tags TEXT NOT NULL, pickled BLOB NOT NULL, sweep INTEGER NOT NULL REFERENCES sweep (id)
) WITHOUT ROWID;
"""
COLUMNS = "name, outcome, reason, message, report, output, seconds, seed, host, finished, tags"


class JournalError(InputError):
    """A journal that is not the one that is meant, or that another sweep holds."""


class JournalFailedError(Exception):
    """A journal that could be used, and cannot be any more: the disk is full, or another program locks the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What a journal holds of a case, but for the case itself."""

    result: Result
    finished: float
    tags: tuple[str, ...]


class Ended(NamedTuple):
    """A case that has ended: its result, the case as it was sent, and its tags."""

    result: Result
    pickled: bytes = b""
    tags: tuple[str, ...] = ()

    def values(self) -> tuple[Any, ...]:
        """Return the values of the columns."""
        result = self.result
        texts = (result.name, result.outcome.value, result.reason, result.message, result.report, result.output)
        rest = (result.seconds, result.seed, result.host, time.time(), json.dumps(self.tags), self.pickled)
        return *map(_text, texts), *rest


class Journal:
    """A journal that is open: for one sweep, which holds it alone, or for readers, as many as there are.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder, Journal.to_write(Path(folder) / "a.db", source="mine") as journal:
    ...     journal.record(Ended(Result(name="sin", outcome=Outcome.PASS), tags=("op=sin",)))
    ...     journal.has("sin"), journal.has("cos"), journal.counts()
    (True, False, {'pass': 1})
    """

    def __init__(self, path: Path, connection: sqlite3.Connection, *, held: int | None = None) -> None:
        self.path, self._connection, self._held, self._sweep = path, connection, held, 0
        self._synced = -math.inf

    @classmethod
    def to_write(cls, path: str | os.PathLike[str], *, source: str, resume: bool = False) -> Journal:
        """Open a new journal, or with `resume` one that has results, for one sweep.

        Raise `JournalError` if another sweep holds it, or if it was written by other versions or of another source.
        """
        path = Path(path).absolute()
        try:
            held = lock.acquire(path.with_name(f"{path.name}.lock"), f"process {os.getpid()} on {socket.gethostname()}")
        except lock.HeldElsewhereError as holder:
            raise JournalError(
                f"{path} is in use by another sweep ({holder}). Wait for it, or give each sweep a journal of its own, "
                "such as one for each shard."
            ) from None
        except OSError as error:
            raise JournalError(f"{path} cannot be written: {error.strerror}.") from None
        try:
            journal = cls(path, _connected(path), held=held)
            with journal._telling():
                journal._begin(source, resume)
        except BaseException:
            lock.release(held)
            raise
        return journal

    @classmethod
    def to_read(cls, path: str | os.PathLike[str]) -> Journal:
        """Open a journal that exists, perhaps while a sweep writes it."""
        path = Path(path).absolute()
        if not path.is_file():
            raise JournalError(f"There is no journal {path}.")
        journal = cls(path, _connected(path, query="?mode=ro"))
        with journal._telling():
            if not journal._is_ours():
                raise JournalError(f"{path} is empty: no sweep has written to it.")
        return journal

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file and let others write it."""
        self._connection.close()
        if self._held is not None:
            lock.release(self._held)
            self._held = None

    def is_new(self, name: str) -> bool:
        """Return True if this sweep has not met a case of this name; the names are kept on disk, not in memory."""
        with self._telling():
            return self._connection.execute("INSERT OR IGNORE INTO temp.met VALUES (?)", (name,)).rowcount == 1

    def has(self, name: str) -> bool:
        """Return True if a case has ended."""
        with self._telling():
            return self._connection.execute("SELECT 1 FROM result WHERE name = ?", (name,)).fetchone() is not None

    def record(self, *ended: Ended) -> None:
        """Write the rows of cases in one transaction; when this returns, they survive the end of this process.

        Once in `SYNCED` seconds the file is flushed to the disk too, which takes longer than many a case: a power loss
        takes the rows since then, and their cases run again.
        """
        with self._telling():
            self._synchronise()
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.executemany(
                    f"INSERT INTO result ({COLUMNS}, pickled, sweep) VALUES ({', '.join('?' * 13)})",
                    ((*each.values(), self._sweep) for each in ended),
                )
            finally:
                self._connection.commit()  # those before an interruption too

    def rows(self) -> Iterator[Row]:
        """Return the rows of all cases, by name, one at a time."""
        with self._telling():
            for found in self._connection.execute(f"SELECT {COLUMNS} FROM result ORDER BY name"):
                held = dict(zip(COLUMNS.split(", "), found, strict=True))
                finished, tags = held.pop("finished"), tuple(json.loads(held.pop("tags")))
                result = Result(**held | {"outcome": Outcome(held["outcome"])})
                yield Row(result=result, finished=finished, tags=tags)

    def counts(self) -> dict[str, int]:
        """Return how many cases ended in which way."""
        with self._telling():
            return dict(self._connection.execute("SELECT outcome, count(*) FROM result GROUP BY outcome"))

    def pickled(self, name: str) -> bytes:
        """Return a case as it was sent to its worker. Unpickling runs code: do so with your own journals alone."""
        with self._telling():
            found = self._connection.execute("SELECT pickled FROM result WHERE name = ?", (name,)).fetchone()
        if found is None:
            raise JournalError(f"{self.path} has no case {name!r}.")
        return bytes(found[0])

    def described(self) -> dict[str, Any]:
        """Return the source, the versions and the start of the first sweep."""
        with self._telling():
            source, versions, host, began = self._connection.execute(
                "SELECT source, versions, host, began FROM sweep ORDER BY id LIMIT 1"
            ).fetchone()
        return {"source": source, "versions": json.loads(versions), "host": host, "began": began}

    def _begin(self, source: str, resume: bool) -> None:
        if self._is_ours():
            self._check(source, resume)
        else:
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.executescript(
                f"BEGIN; {TABLES} PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {SCHEMA}; COMMIT;"
            )
        self._connection.execute("PRAGMA temp_store = FILE")
        self._connection.execute("CREATE TABLE temp.met (name TEXT PRIMARY KEY) WITHOUT ROWID")
        self._sweep = int(
            self._connection.execute(
                "INSERT INTO sweep (source, versions, host, began) VALUES (?, ?, ?, ?)",
                (source, json.dumps(versions_here()), socket.gethostname(), time.time()),
            ).lastrowid
            or 0
        )

    def _synchronise(self) -> None:
        """Choose whether the next write is flushed, with all that precede it."""
        now = time.monotonic()
        due = now - self._synced > SYNCED
        self._connection.execute(f"PRAGMA synchronous = {'FULL' if due else 'NORMAL'}")
        if due:
            self._synced = now

    def _is_ours(self) -> bool:
        """Return False for an empty file; raise for one that is not a journal, or that a newer version wrote."""
        if not self._connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
            return False
        if self._pragma("application_id") != APPLICATION:
            raise JournalError(f"{self.path} is a SQLite database, but not a journal of an audit. Name another file.")
        if self._pragma("user_version") > SCHEMA:
            raise JournalError(
                f"{self.path} was written by a newer version of gradproof. Upgrade: pip install -U gradproof"
            )
        return True

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    def _check(self, source: str, resume: bool) -> None:
        """Refuse to mix the results of two audits."""
        count = sum(self.counts().values())
        if count and not resume:
            raise JournalError(f"{self.path} holds {count:,} results. Pass --resume to go on, or name a new file.")
        if self._connection.execute("SELECT count(*) FROM sweep").fetchone()[0] == 0:
            return
        before = self.described()
        if before["source"] != source:
            raise JournalError(f"{self.path} is of the source {before['source']}, not {source}. Name a new file.")
        if before["versions"] != (here := versions_here()):
            raise JournalError(
                f"{self.path} was written with {_listed(before['versions'])}; here are {_listed(here)}. Begin a new "
                "journal, and compare the two with `gradproof audit diff`."
            )

    @contextmanager
    def _telling(self) -> Iterator[None]:
        """Turn an error of SQLite's into a sentence."""
        try:
            yield
        except sqlite3.Error as error:
            raise _described(self.path, error) from None


def versions_here() -> dict[str, str]:
    """Return the versions that a verdict may depend on.

    >>> sorted(versions_here())
    ['gradproof', 'python', 'torch']
    """
    found = {"python": platform.python_version()}
    for name in ("gradproof", "torch"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "unknown"
    return found


def _listed(versions: dict[str, str]) -> str:
    return ", ".join(f"{name} {versions[name]}" for name in sorted(versions))


def _connected(path: Path, query: str = "") -> sqlite3.Connection:
    try:
        return sqlite3.connect(path.as_uri() + query, uri=True, timeout=PATIENCE, isolation_level=None)
    except sqlite3.Error as error:
        raise _described(path, error) from None


def _described(path: Path, error: sqlite3.Error) -> JournalError | JournalFailedError:
    words = str(error)
    kept = "The results up to here are kept; go on with --resume."
    if "not a database" in words or "malformed" in words:
        return JournalError(f"{path} is not a journal of an audit ({words}). Name another file.")
    if "unable to open" in words:
        return JournalError(f"{path} cannot be opened: it is not a file, or you may not read it. Name another file.")
    if "readonly" in words:
        return JournalError(f"{path} is read-only. Make it writable, or name another file.")
    if "disk is full" in words:
        return JournalFailedError(f"{path} cannot grow: the disk is full. {kept}")
    if "locked" in words:
        return JournalFailedError(f"{path} was locked by another program for {PATIENCE:g} seconds. End it. {kept}")
    return JournalFailedError(f"{path} could not be used: {words}. {kept}")


def _text(text: str) -> str:
    """Return a text that SQLite takes: lone surrogates are no UTF-8."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
