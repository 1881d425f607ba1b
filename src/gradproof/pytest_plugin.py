"""The pytest plugin: a `gradproof` fixture, failures that show findings, and one report of all checks of a run.

torch is imported by the first check, and whatever renders by the first report.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Unpack

import pytest

from gradproof._check import check
from gradproof._compare import CompareOptions, compare
from gradproof._examine import session
from gradproof._options import CheckOptions
from gradproof._pytest.failures import annotation, line_of
from gradproof._pytest.options import chosen, chosen_coverage, chosen_seed, options_of
from gradproof._pytest.seeds import Seeds
from gradproof._report import GradientError, Report, reports_from_json, reports_to_html, reports_to_json
from gradproof.report.files import destination, write_whole

OURS = Path(__file__).parent
MARKER = "gradproof(**options): defaults for the checks that the gradproof fixture makes in this test"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of the command line and of the configuration file."""
    group = parser.getgroup("gradproof", "verified gradients")
    group.addoption("--gradproof-report", metavar="FILE", help="write all checks of the run to FILE.html or FILE.json")
    group.addoption("--gradproof-seed", type=int, metavar="SEED", help="draw every direction from SEED")
    group.addoption(
        "--gradproof-coverage",
        choices=["probe", "full"],
        help="what the gradproof fixture covers: random directions, or every entry",
    )
    parser.addini("gradproof_report", "where all checks of the run are written: FILE.html or FILE.json")
    parser.addini("gradproof_seed", "the seed of every direction; by default one for each test, made from its name")
    parser.addini("gradproof_coverage", "what the gradproof fixture covers: probe or full")
    parser.addini(
        "gradproof_replace_gradcheck",
        "replace torch.autograd.gradcheck and gradgradcheck by gradproof's for the whole run",
        type="bool",
        default=False,
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and the recorder, and replace torch's checks if the configuration says so."""
    config.addinivalue_line("markers", MARKER)
    config.pluginmanager.register(Recorder(config, _destination(config)), "gradproof-recorder")
    if config.getini("gradproof_replace_gradcheck"):
        from gradproof._gradcheck import replace_gradcheck

        replaced = ExitStack()
        replaced.enter_context(replace_gradcheck())
        config.add_cleanup(replaced.close)


def _destination(config: pytest.Config) -> Path | None:
    """Return where the report of the run goes; refuse what cannot be written before any test runs."""
    file = chosen(config, "report")
    if file is None:
        return None
    if Path(file).suffix not in (".html", ".json"):
        raise pytest.UsageError(f"--gradproof-report={file}: the name of a report ends in .html or .json.")
    try:
        return destination(config.invocation_params.dir / Path(file).expanduser())
    except OSError as error:
        raise pytest.UsageError(f"--gradproof-report={file} cannot be written: {error.strerror or error}.") from None


class Checker:
    """The `gradproof` fixture: call it to assert that gradients are right, or `check` to look at a report."""

    def __init__(self, options: Callable[[], dict[str, Any]]) -> None:
        self._options = options

    @property
    def options(self) -> dict[str, Any]:
        """Defaults of the options, from the markers of the test that runs and from the command line."""
        return self._options()

    def __call__(self, func: Callable[..., Any], inputs: Any, **options: Unpack[CheckOptions]) -> Report:
        """Fail the test unless the gradients are verified. The options are those of `gradproof.check`."""
        __tracebackhide__ = True
        report = self.check(func, inputs, **options)
        if not report.passed:
            raise GradientError(str(report), report)
        return report

    def check(self, func: Callable[..., Any], inputs: Any, **options: Unpack[CheckOptions]) -> Report:
        """Return the report of a check, whatever its verdict."""
        return check(func, inputs, **{**self.options, **options})

    def compare(
        self,
        func: Callable[..., Any],
        reference: Callable[..., Any],
        inputs: Any,
        **options: Unpack[CompareOptions],
    ) -> Report:
        """Fail the test unless `func` is equivalent to `reference`. The options are those of `gradproof.compare`."""
        __tracebackhide__ = True
        shared = {name: value for name, value in self.options.items() if name in CompareOptions.__annotations__}
        report = compare(func, reference, inputs, **{**shared, **options})
        if not report.passed:
            raise GradientError(str(report), report)
        return report


@pytest.fixture(name="gradproof", scope="session")
def gradproof_fixture(pytestconfig: pytest.Config) -> Checker:
    """Verify gradients: `gradproof(function, inputs)` fails the test where they are wrong.

    There is one for the whole run, which looks up the options of the test that runs: so Hypothesis accepts it.
    """
    recorder = pytestconfig.pluginmanager.get_plugin("gradproof-recorder")
    assert isinstance(recorder, Recorder)
    return Checker(recorder.options)


@dataclass(slots=True)
class Summary:
    """Counts of all checks of the run."""

    verdicts: list[str] = field(default_factory=list)
    weakest: float = 0.0
    where: str = ""
    texts: list[str] = field(default_factory=list)
    annotations: list[str] = field(default_factory=list)

    def add(self, phase: dict[str, Any]) -> None:
        """Count the checks of one phase of a test."""
        for verdict, resolution, origin in phase["checks"]:
            self.verdicts.append(verdict)
            if verdict == "pass" and resolution is not None and resolution > self.weakest:
                self.weakest, self.where = resolution, origin
        if phase["json"]:
            self.texts.append(phase["json"])
        if "annotation" in phase:
            self.annotations.append(phase["annotation"])

    def line(self) -> str:
        """Return a summary of the run's checks in one line."""
        from gradproof.report.words import count

        parts = [
            f"{self.verdicts.count(verdict)} {verdict}"
            for verdict in ("pass", "fail", "inconclusive")
            if verdict in self.verdicts
        ]
        weakest = f"; weakest resolution {self.weakest:.1e} of the largest entry ({self.where})" if self.where else ""
        return f"gradproof: {count(len(self.verdicts), 'check')}, {', '.join(parts)}{weakest}"


class Recorder:
    """A listener of all checks: it attaches them to the report of their test, also across processes, and sums up."""

    def __init__(self, config: pytest.Config, file: Path | None) -> None:
        self.config, self.file, self.tally = config, file, Summary()
        self.seeds, self.coverage = Seeds(config, chosen_seed(config)), chosen_coverage(config)
        self.unwritten = ""  # why the report could not be written
        self.recorded: list[Report] = []
        self.item: pytest.Item | None = None
        self.outer = session.seed, session.listeners
        session.seed, session.listeners = self.seeds.given, [self.record]

    def options(self) -> dict[str, Any]:
        """Return the defaults of the checks of the test that runs."""
        given = {"coverage": self.coverage, "seed": self.seeds.given}
        return options_of(self.item) | {name: value for name, value in given.items() if value is not None}

    def record(self, report: Report) -> None:
        """Record a check, with the test that made it."""
        self.recorded.append(replace(report, origin=self.item.nodeid if self.item else ""))

    def pytest_unconfigure(self) -> None:
        """Restore the session's seed and listeners."""
        session.seed, session.listeners = self.outer

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Keep the test that is running, whose seed its checks use."""
        self.item, session.seed = item, self.seeds.of(item.nodeid)
        try:
            return (yield)
        finally:
            self.item, session.seed = None, self.seeds.given

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Refuse markers with unknown or positional options."""
        options_of(item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
        """Attach the checks to the test's report; for a wrong gradient, show the findings without our own frames."""
        report: Any = yield
        usual = self.config.getoption("tbstyle") in ("auto", "long", "short")
        failed = None
        if call.excinfo is not None and report.failed and _is_ours(call.excinfo.value):
            report.longrepr = _findings(item, call.excinfo) if usual else report.longrepr
            failed = next((each for each in reversed(self.recorded) if not each.passed), None)
            if failed is not None and (crash := getattr(report.longrepr, "reprcrash", None)) is not None:
                crash.message = f"{call.excinfo.typename}: {line_of(failed)}"
        if self.recorded:
            report.gradproof = self._recorded(failed, item)
            self.recorded.clear()
        return report  # type: ignore[no-any-return]  # what a wrapper returns is the hook's result

    def _recorded(self, failed: Report | None, item: pytest.Item) -> dict[str, Any]:
        """Return the checks as numbers and text, which pytest-xdist sends between processes."""
        checks = [(each.verdict.value, _finite(each.resolution.relative), each.origin) for each in self.recorded]
        found: dict[str, Any] = {"checks": checks, "json": reports_to_json(self.recorded) if self.file else ""}
        if failed is not None:
            file, line, _ = item.location
            found["failed_seed"] = failed.seed
            found["annotation"] = str(annotation(failed, (file, (line or 0) + 1)))
        return found

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Count the checks of a test, in the process that sums up."""
        if hasattr(report, "gradproof"):
            self.tally.add(report.gradproof)
        self.seeds.update(report)

    def pytest_sessionfinish(self) -> None:
        """Write the report, unless this process is a worker of pytest-xdist; a full disk fails no test."""
        if hasattr(self.config, "workerinput"):
            return
        self.seeds.save()
        if self.file is None:
            return
        reports = [report for text in self.tally.texts for report in reports_from_json(text)]
        if self.file.suffix == ".json":
            text = reports_to_json(reports)
        else:
            text = reports_to_html(reports, title="Gradient checks")
        try:
            write_whole(self.file, text)
        except OSError as error:
            self.unwritten = str(error)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the summary, and where the report is."""
        if self.tally.verdicts:
            terminalreporter.write_line(self.tally.line())
        if os.environ.get("GITHUB_ACTIONS") == "true":
            for each in self.tally.annotations:
                terminalreporter.write_line(each)
        if self.unwritten:
            terminalreporter.write_line(f"gradproof: {self.file} could not be written: {self.unwritten}", red=True)
        elif self.file is not None:
            terminalreporter.write_line(f"gradproof: the report is in {self.file}")


def _finite(number: float) -> float | None:
    return number if math.isfinite(number) else None


def _is_ours(error: BaseException) -> bool:
    """Return True if a check raised the error; the drop-ins raise a subclass of torch's own."""
    names = {f"{kind.__module__}.{kind.__name__}" for kind in type(error).__mro__}
    return isinstance(error, GradientError) or "gradproof.GradcheckError" in names  # without importing torch


def _findings(item: pytest.Item, excinfo: pytest.ExceptionInfo[BaseException]) -> Any:
    """Return the lines of the test itself, and what was found."""

    def outside(info: pytest.ExceptionInfo[BaseException]) -> Any:
        from_the_test_on = info.traceback.cut(path=item.path).filter(info)
        return from_the_test_on.filter(lambda entry: not Path(str(entry.path)).is_relative_to(OURS))

    return excinfo.getrepr(style="short", tbfilter=outside, chain=False)
