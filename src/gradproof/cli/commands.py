"""The commands: check or compare functions, render reports, show a demonstration, examine the installation.

Each command imports torch and the renderers when it needs them, so that `gradproof --help` is fast.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from gradproof._check import check as check_gradients
from gradproof._compare import DRAWS
from gradproof._compare import compare as compare_implementations
from gradproof._examine import session
from gradproof._options import CONTRACT_GROUPS, ContractName, Options
from gradproof._report import Report, reports_from_json
from gradproof.cli.audit import audit
from gradproof.cli.delivery import IN_FULL, Delivery
from gradproof.cli.exit_codes import ExitCode
from gradproof.cli.group import Commands, Misuse, OnNumbers
from gradproof.cli.keywords import split_name, with_inputs
from gradproof.cli.naming import one_line, resolve
from gradproof.cli.output import reader_may_leave, say
from gradproof.engine.results import Verdict
from gradproof.errors import InputError, OutOfMemoryError

CONTRACT_NAMES = ", ".join((*ContractName, *CONTRACT_GROUPS))
DEMO_PAGE = "gradproof-demo.html"

json_option = click.option("--json", "json_file", metavar="FILE", help="Write the report as JSON; - for the terminal.")
html_option = click.option("--html", "html_file", metavar="FILE", help="Write the report as a page of its own.")


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gradproof")
def main() -> None:
    """Verify gradients with error bars instead of tolerances.

    Exit codes: 0 all pass, 1 a gradient is wrong, 2 misuse, 3 inconclusive, 4 a missing framework or another failure,
    130 interrupted.
    """


main.add_command(audit)


@main.command(cls=OnNumbers)
@click.argument("function", metavar="MODULE:FUNCTION")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option(
    "--wrt", multiple=True, metavar="WHICH", help="Check only this input: a position, name or path; repeatable."
)
@click.option("--modes", metavar="MODES", help="reverse, forward, or both with a comma.")
@click.option("--order", type=int, default=1, show_default=True, help="1, or 2 for second derivatives.")
@click.option(
    "--full",
    "coverage",
    flag_value="full",
    default="probe",
    help="Check every entry instead of random directions.",
)
@click.option("--masked/--unmasked", default=False, help="The semantics of sparse inputs.")
@click.option("--contracts", metavar="NAMES", help=f"Laws to check, with commas: {CONTRACT_NAMES}, or none.")
@click.option("--rtol", type=float, default=0.0, help="A relative error tolerated on top of the bar.")
@click.option("--atol", type=float, default=0.0, help="An absolute error tolerated on top of the bar.")
@click.option("--nondet-tol", type=float, default=0.0, help="How far two calls at the same point may differ.")
@click.option("--probes", type=int, default=1, show_default=True, help="The number of random directions.")
@click.option("--min-resolution", type=float, help="Call a pass inconclusive that would not catch this relative error.")
@click.option("--budget", type=float, metavar="SECONDS", help="After so many seconds, say what is known by then.")
@click.option("--explain/--no-explain", default=True, help="Say what a mistake looks like, and what is to blame.")
@click.option("--seed", type=int, help="The seed of inputs and directions; a report states its own.")
@click.option("--progress/--no-progress", default=None, help="A progress bar; by default on a terminal.")
@json_option
@html_option
def check(function: str, inputs: tuple[str, ...], **options: Any) -> ExitCode:
    """Check the gradients of a function.

    MODULE:FUNCTION names it: torch:sin, package.module:Function.apply, or file.py:function.

    An INPUT is a small expression, such as 'randn(3,4)', 'complex128 randn(5)', 'csr(100,100,density=.05)', 'fixed
    randint(5, high=3)' (fixed: needs no gradient), a number, or a MODULE:FACTORY that makes one input, or all.
    NAME=INPUT passes one by name, such as dim=-1.
    """
    subject = _callable(function)
    options["modes"] = _listed(options["modes"])
    return _examine(check_gradients, [subject], inputs, options, f"{function} could not be called")


@main.command(cls=OnNumbers)
@click.argument("function", metavar="MODULE:KERNEL")
@click.argument("reference", metavar="MODULE:REFERENCE")
@click.argument("inputs", nargs=-1, required=True, metavar="INPUT...")
@click.option("--wrt", multiple=True, metavar="WHICH", help="Compare only this gradient: a position, name or path.")
@click.option("--draws", type=int, default=DRAWS, show_default=True, help="The number of points that are compared.")
@click.option("--contracts", metavar="NAMES", default="none", help="Laws of the kernel's gradient to check as well.")
@click.option("--seed", type=int, help="The seed of inputs and incoming gradients; a report states its own.")
@json_option
@html_option
def compare(function: str, reference: str, inputs: tuple[str, ...], **options: Any) -> ExitCode:
    """Compare the values and gradients of a kernel with those of a reference.

    Both are named as for `gradproof check`, and so are the inputs, such as 'randn(128,256,dtype=bfloat16)'. No
    tolerance is needed: an entry is wrong if its error exceeds what the precision explains.
    """
    functions = [_callable(function), _callable(reference)]
    complaint = f"{function} and {reference} could not be compared"
    return _examine(compare_implementations, functions, inputs, options, complaint)


@main.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE.json...")
@json_option
@html_option
def report(files: tuple[str, ...], json_file: str | None, html_file: str | None) -> ExitCode:
    """Render reports that were written as JSON, or merge several into one."""
    delivery = Delivery.to(json_file, html_file)
    reports: list[Report] = []
    for file in files:
        try:
            reports += reports_from_json(Path(file).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise Misuse(f"{file} cannot be read: {error}") from None
        except InputError as error:
            raise Misuse(f"{file}: {error}") from None
    return delivery.deliver(reports)


@main.command()
@click.argument("title", default="")
@click.option("--html", "html_file", default=DEMO_PAGE, show_default=True, help="Where to write the page.")
def demo(title: str, html_file: str) -> ExitCode:
    """Check planted bugs, and compare with what torch's own check says about each.

    With a TITLE, or part of one, show the scenes of that title alone, in full.
    """
    from gradproof.cli.demo import played, scenes
    from gradproof.cli.screen import screen

    delivery = Delivery.to(None, html_file)
    brief = not title and len(scenes()) > IN_FULL
    seen = []
    for shown in played(title):
        seen.append(shown)
        if not brief:
            say(f"── {shown.title} ".ljust(96, "─"))
            with reader_may_leave():
                shown.report.show()
            say("")
    for line, is_heading in screen(seen, shutil.get_terminal_size((80, 0)).columns) if brief else ():
        say(line, bold=is_heading)
    if not seen:
        raise Misuse(f"No scene is called {title!r}.")
    wrong = sum(shown.report.verdict is Verdict.FAIL for shown in seen)
    overlooked = sum(shown.overlooked for shown in seen)
    say(f"Found wrong: {wrong} of {len(seen)}; of these torch's check with fast_mode=True passes {overlooked}.")
    delivery.write([shown.report for shown in seen], "Planted bugs, and what gradproof says about them")
    delivery.announce()
    return ExitCode.PASS


@main.command()
def doctor() -> ExitCode:
    """Say what is installed here, and whether it works."""
    from gradproof.cli.doctor import diagnose

    healthy = True
    for line in diagnose():
        sign = {True: "✓", False: "✗", None: " "}[line.healthy]
        say(f"{sign} {line.what:<18} {line.found}")
        healthy &= line.healthy is not False
    return ExitCode.PASS if healthy else ExitCode.FAILED


def _examine(
    examine: Callable[..., Report],
    functions: list[Any],
    texts: tuple[str, ...],
    options: dict[str, Any],
    complaint: str,
) -> ExitCode:
    """Make the inputs, check or compare functions at them, and deliver the report; complain if a function raises."""
    delivery = Delivery.to(options.pop("json_file"), options.pop("html_file"))
    options["wrt"] = [int(each) if each.isdigit() else each for each in options["wrt"]] or None
    options["contracts"] = _listed(options["contracts"])
    options["seed"] = session.chosen_seed(Options(seed=options["seed"]).seed)
    functions, inputs = with_inputs(functions, *_inputs(texts, options["seed"]))
    with _running(complaint):
        report = examine(*functions, inputs, **options)
    return delivery.deliver([report])


def _callable(text: str) -> Any:
    """Return the function that is named."""
    found = resolve(text)
    if isinstance(found, type):
        raise Misuse(f"{text} is a class. Name an instance, a function, or the apply of an autograd Function.")
    return found


def _listed(text: str | None) -> list[str] | None:
    if text is None:
        return None
    return [] if text == "none" else [part.strip() for part in text.split(",")]


def _inputs(texts: tuple[str, ...], seed: int) -> tuple[Any, dict[str, Any]]:
    """Make the inputs from expressions and factories: those by position, and those by name."""
    import torch

    from gradproof.cli.tensor_expressions import tensor_from

    generator = torch.Generator().manual_seed(seed)
    placed: list[Any] = []
    named: dict[str, Any] = {}
    for name, text in map(split_name, texts):
        made = _made(text) if ":" in text else tensor_from(text, generator)
        if name in named:
            raise Misuse(f"{name} is given twice.")
        if name:
            named[name] = made
        else:
            placed.append(made)
    return placed[0] if len(placed) == 1 and ":" in texts[0] else tuple(placed), named


def _made(text: str) -> Any:
    factory = resolve(text)
    if not callable(factory):
        return factory
    with _running(f"{text} could not be called"):
        return factory()


@contextmanager
def _running(complaint: str) -> Iterator[None]:
    """Report what the user's code raises as misuse; SystemExit too, which must not end this process."""
    try:
        yield
    except (InputError, NotImplementedError, OutOfMemoryError, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise Misuse(f"{complaint}: {one_line(error)}.") from None
