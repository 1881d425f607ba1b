"""Cases of a test suite: every test that pytest collects, each run by pytest in a worker."""

from __future__ import annotations

import io
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gradproof import Report, Verdict, reports_from_json
from gradproof.audit.case import Case, Skip
from gradproof.errors import InputError

if TYPE_CHECKING:
    import pytest

PREFIX = "pytest:"
QUIET = ("-q", "-p", "no:cacheprovider")
LATEST = 2000  # characters of what pytest says, at its end


def cases(path: str) -> Iterator[Case]:
    """Return a case for every test in a file, a folder, or a part of a file such as `test_ops.py::TestSine`."""
    seen = _Seen()
    code, said = _pytest("--collect-only", "-p", "no:warnings", path, plugin=seen)
    if code:
        raise InputError(f"pytest could not collect {path} (exit code {code}): {said}")
    for name in seen.names:
        file, _, test = name.partition("::")
        yield Case(
            name,
            make=partial(checked, f"{seen.root}/{name}"),
            tags=(f"op={test.partition('[')[0]}", f"file={file}"),
            entry="report",
        )


def checked(test: str) -> Report:
    """Run a test, and return the report that decides: the one that failed it, or else a check that passed."""
    seen = _Seen()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "checks.json"
        _, said = _pytest(test, f"--gradproof-report={file}", plugin=seen)
        print(said)
        reports = reports_from_json(file.read_text(encoding="utf-8")) if file.exists() else []
    if seen.skipped:
        raise Skip(seen.skipped)
    wanted = (Verdict.FAIL, Verdict.INCONCLUSIVE) if seen.failed else (Verdict.PASS,)
    found = [report for verdict in wanted for report in reports if report.verdict is verdict]
    if found:
        return found[0]
    if seen.passed and not seen.failed:
        raise Skip("the test passes, and no check in it does" if reports else "the test checks no gradient")
    raise AssertionError(seen.failed or said)


@dataclass(slots=True)
class _Seen:
    """A plugin of pytest's that keeps the names of the tests and how they end."""

    root: Path = field(default_factory=Path)
    names: list[str] = field(default_factory=list)
    failed: str = ""
    skipped: str = ""
    passed: bool = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self.root = session.config.rootpath
        self.names = [item.nodeid for item in session.items]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed = report.longreprtext[-LATEST:]
        elif report.skipped:
            self.skipped = str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else "the test is skipped"
        elif report.when == "call":
            self.passed = True


def _pytest(*arguments: str, plugin: Any) -> tuple[int, str]:
    """Run pytest in this process, and return its exit code and the end of what it printed."""
    try:
        import pytest
    except ModuleNotFoundError:
        raise InputError("pytest is not installed. Install it: pip install pytest") from None
    with redirect_stdout(io.StringIO()) as said:
        code = pytest.main([*QUIET, *arguments], plugins=[plugin])
    return int(code), said.getvalue().strip()[-LATEST:]
