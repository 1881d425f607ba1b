"""`gradproof audit`: run many checks, keep the results in a journal, go on after an interruption."""

from __future__ import annotations

import pickle
import shlex
import signal
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from gradproof.cli.audit_options import devices, selecting, size
from gradproof.cli.delivery import to_file, write
from gradproof.cli.exit_codes import ExitCode, of_verdicts
from gradproof.cli.group import Failed, Misuse
from gradproof.cli.naming import one_line, resolve
from gradproof.cli.output import reader_may_leave, say, tell
from gradproof.report.characters import without_controls

if TYPE_CHECKING:
    from gradproof.audit import Case
    from gradproof.audit.executors import Executor

LOCAL = "local"  # a cluster of its own on this machine
WRONG_FIRST = ("fail", "crash", "memory", "timeout", "error", "inconclusive", "skipped", "pass")


class WithDefault(click.Group):
    """A group whose command `run` may be left out, and whose journals and clusters may fail."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command, and say in a sentence what failed under it."""
        from gradproof.audit import JournalFailedError
        from gradproof.audit.executors.remote import UnreachableError

        try:
            return super().invoke(ctx)
        except (JournalFailedError, UnreachableError) as error:
            raise Failed(str(error)) from None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Treat a first argument that is not a command as the source of `run`."""
        if args and args[0] not in self.commands:
            args = ["run", *args]
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Let the options of `run` precede the source."""
        if args and args[0].startswith("-") and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


@click.group(cls=WithDefault, subcommand_metavar="[run] SOURCE | COMMAND [ARGS]...")
def audit() -> None:
    """Run thousands of checks in worker processes, and keep the results in a journal.

    `gradproof audit SOURCE --journal FILE` is short for `gradproof audit run`.
    """


@audit.command()
@click.argument("source")
@click.option("--journal", "file", required=True, metavar="FILE", help="The SQLite file that keeps the results.")
@click.option("--resume", is_flag=True, help="Go on with a journal that has results; those are not run again.")
@click.option(
    "--timeout", type=click.FloatRange(min=0, min_open=True), default=60.0, show_default=True, metavar="SECONDS"
)
@click.option("--memory", type=size, metavar="SIZE", help="What a case may allocate, such as 4G (on Linux).")
@click.option("--workers", type=click.IntRange(min=1), default=1, show_default=True, help="Processes.")
@click.option("--lifetime", type=click.IntRange(min=1), default=200, show_default=True, help="Cases of a process.")
@click.option("--dask", metavar="ADDRESS", help="Run on a Dask cluster: tcp://HOST:PORT of its scheduler, or local.")
@click.option("--ray", metavar="ADDRESS", help="Run on a Ray cluster: HOST:PORT, auto, or local.")
@click.option("--devices", "gpus", type=devices, metavar="LIST", help="GPUs, one process for each: all, or 0,1.")
@selecting
def run(
    source: str,
    file: str,
    resume: bool,
    timeout: float,
    memory: int | None,
    workers: int,
    lifetime: int,
    dask: str | None,
    ray: str | None,
    gpus: tuple[str, ...] | None,
    **chosen: Any,
) -> ExitCode:
    """Run the cases of SOURCE that the journal has no result of.

    SOURCE is torch-ops, torch-modules, pytest:TESTS for the tests of a file or folder, or a MODULE:GENERATOR of
    gradproof.audit.Case objects.
    """
    from gradproof.audit import Journal, Selection, sweep
    from gradproof.audit.worker import Limits
    from gradproof.cli.audit_progress import Counting, Progress

    if gpus and workers not in (1, len(gpus)):
        raise Misuse(f"Leave out --workers, or pass {len(gpus)}: --devices makes one process for each device.")
    selection = Selection(**chosen)
    cases, limits = _cases(source), Limits(seconds=timeout, memory=memory)
    with Journal.to_write(file, source=source, resume=resume) as journal:
        executor = _executor(dask, ray, gpus)(workers=workers, limits=limits, lifetime=lifetime)
        with _terminated_as_interrupted(), Progress(executor, Counting(source, selection)) as progress:
            try:
                sweep(progress.counted(selection.of(cases())), journal, executor, watch=progress.show)
            except KeyboardInterrupt:
                progress.note(f"What has ended is in {file}. Go on with the same command and --resume.")
                raise
            finally:
                executor.close()
        code = _concluded(journal.counts())
        if code is not ExitCode.PASS:
            progress.note(f"To see which: gradproof audit report {shlex.quote(file)}")
        return code


@audit.command()
@click.argument("source")
@selecting
def count(source: str, **chosen: Any) -> ExitCode:
    """Print how many cases of SOURCE would be run."""
    from gradproof.audit import Selection

    total = sum(1 for _ in Selection(**chosen).of(_cases(source)()))
    say(f"{total:,} cases")
    return ExitCode.PASS


@audit.command()
@click.argument("file", metavar="JOURNAL")
@click.option("--html", "html_file", metavar="FILE", help="Write a page with a table of all cases.")
@click.option("--json", "json_file", metavar="FILE", help="Write every row with its report.")
@click.option("--junit", "junit_file", metavar="FILE", help="Write JUnit XML, as CI systems read it.")
@click.option("--github", is_flag=True, help="Print annotations of a GitHub workflow instead of lines.")
def report(file: str, html_file: str | None, json_file: str | None, junit_file: str | None, github: bool) -> ExitCode:
    """Show the results of an audit: cases that fail or ended without a verdict, and the number of cases by outcome."""
    from gradproof.audit import Journal, exports
    from gradproof.audit.page import page

    renderers = [(html_file, page), (json_file, exports.to_json), (junit_file, exports.to_junit)]
    wanted = [(to_file(name), render) for name, render in renderers if name]
    with Journal.to_read(file) as journal:
        if any(path.exists() and path.samefile(file) for path, _ in wanted):
            raise Misuse(f"{file} is the journal: name another file for what is written.")
        for path, render in wanted:
            write(path, render(journal))
        for line in (exports.to_github if github else exports.to_lines)(journal):
            say(without_controls(line))
        for path, _ in wanted:
            tell(f"Written: {path}")
        return _concluded(journal.counts())


@audit.command()
@click.argument("old")
@click.argument("new")
def diff(old: str, new: str) -> ExitCode:
    """Compare two journals: what newly fails or passes, is slower, or is in one of them alone.

    The exit code is 1 if a case newly fails.
    """
    from gradproof.audit import Journal
    from gradproof.audit.diff import Change, differences

    found: Counter[Change] = Counter()
    with Journal.to_read(old) as before, Journal.to_read(new) as after:
        for each in differences(before, after):
            found[each.change] += 1
            say(without_controls(str(each)))
    say(", ".join(f"{found[change]:,} {change}" for change in Change if found[change]) or "Nothing changed.")
    return ExitCode.WRONG if found[Change.NEWLY_FAILING] else ExitCode.PASS


@audit.command()
@click.argument("file", metavar="JOURNAL")
@click.argument("name")
@click.option("--shrink", "shrinks", is_flag=True, help="Look for smaller inputs that fail, and print a script.")
def replay(file: str, name: str, shrinks: bool) -> ExitCode:
    """Run one case of a journal again, in this process, and show its report.

    A journal holds pickled cases, and unpickling runs code: replay your own journals alone.
    """
    from gradproof.audit import Journal, Skip
    from gradproof.audit.running import report_of, seeded
    from gradproof.audit.shrink import shrink

    with Journal.to_read(file) as journal:
        pickled, source = journal.pickled(name), journal.described()["source"]
    if not pickled:
        raise Misuse(f"The case {name!r} could not be pickled, and cannot be replayed.")
    _cases(source)  # makes its module importable, as in the sweep
    try:
        case: Case = pickle.loads(pickled)
        with seeded(case.seed):
            found = report_of(case)
        smaller = shrink(case) if shrinks and found.findings else None
    except Skip as reason:
        say(f"There is nothing to check: {reason}.")
        return ExitCode.PASS
    except (Exception, SystemExit) as error:
        raise Failed(f"{name} raised {one_line(error)}.") from None
    with reader_may_leave():
        found.show()
    if smaller:
        say(f"\n# The smallest inputs that fail, after {smaller.attempts} checks:\n{without_controls(smaller.script)}")
    return of_verdicts([found.verdict])


def _concluded(counts: dict[str, int]) -> ExitCode:
    """Print the number of cases by outcome, and return the exit code of the worst outcome."""
    total = sum(counts.values())
    say(
        f"{total:,} cases: "
        + (", ".join(f"{counts[each]:,} {each}" for each in WRONG_FIRST if each in counts) or "none")
    )
    return code_of(counts)


def code_of(outcomes: Iterable[str]) -> ExitCode:
    """Return the exit code of the worst outcome; a case without a verdict counts as inconclusive.

    >>> code_of(["pass", "crash"]).name, code_of(["pass", "skipped"]).name
    ('INCONCLUSIVE', 'PASS')
    """
    from gradproof.audit.case import UNDECIDED

    found = set(outcomes)
    if "fail" in found:
        return ExitCode.WRONG
    return ExitCode.INCONCLUSIVE if found & UNDECIDED else ExitCode.PASS


def _executor(dask: str | None, ray: str | None, gpus: Sequence[str] | None) -> Callable[..., Executor]:
    """Return a factory of the chosen executor: local processes, unless a cluster is named."""
    if dask and ray:
        raise Misuse("Pass --dask or --ray: an audit runs on one cluster.")
    if gpus and (dask or ray):
        raise Misuse("Pass --devices for processes of this machine: a cluster assigns its devices itself.")
    if dask:
        from gradproof.audit.executors.dask import DaskCluster

        return partial(DaskCluster, "" if dask == LOCAL else dask)
    if ray:
        from gradproof.audit.executors.ray import RayCluster

        return partial(RayCluster, "" if ray == LOCAL else ray)
    from gradproof.audit.executors.processes import LocalProcesses

    return partial(LocalProcesses, devices=gpus or ())


def _cases(source: str) -> Callable[[], Iterable[Case]]:
    """Return the generator that a source names."""
    from gradproof.audit.sources import built_in, is_built_in

    if is_built_in(source):
        return built_in(source)
    if ":" not in source:
        raise Misuse(
            f"{source!r} is not a source: choose torch-ops or torch-modules, or write pytest:TESTS or MODULE:GENERATOR."
        )
    folder = Path(source.rpartition(":")[0]).parent.absolute()
    if source.rpartition(":")[0].endswith(".py") and str(folder) not in sys.path:
        sys.path.append(str(folder))  # workers import the module by its name
    found = resolve(source)
    if not callable(found):
        return lambda: iter(found)
    return lambda: _called(source, found)


def _called(source: str, generator: Callable[[], Iterable[Case]]) -> Iterable[Case]:
    try:
        return iter(generator())
    except Exception as error:
        raise Misuse(f"{source} could not be called: {one_line(error)}.") from None


@contextmanager
def _terminated_as_interrupted() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C: workers are ended, and the journal is closed."""

    def interrupt(number: int, frame: Any) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
