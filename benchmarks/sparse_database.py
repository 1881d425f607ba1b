"""The sparse samples of PyTorch's operator database, in all five layouts and under both semantics: any false alarms?

Every sample ends in one column: pass; fail; inconclusive, with the reason; not differentiable, with torch's own reason;
or raised at the point, where the function itself gives no value. Each fail is judged by plain central differences that
share no code with gradproof (`benchmarks.sparse_judge`), and so are the passes, at a few entries. The exit status is 1
where a fail is not confirmed, where gradproof itself raises, or where a pass is denied.

A malformed sparse tensor can end the process that looks at it, so each layout runs in a process of its own, which is
started again after the sample that ended it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

import gradproof
from benchmarks.sparse_judge import gradients_of, malformed, opinion
from benchmarks.sparse_samples import LAYOUTS, Sample, samples

MISSING = "not differentiable"
FEW, MANY = 4, 40  # entries of an input that the judge looks at: of a pass, of a fail
CONTRACTS: dict[str, tuple[str, ...] | None] = {"none": (), "usual": None}
COLUMNS = ("pass", "fail", "inconclusive", MISSING, "raised at the point", "gradproof raised", "ended the process")


@dataclass(frozen=True)
class Line:
    """What became of one sample under one semantics."""

    layout: str
    masked: bool
    name: str
    number: int
    outcome: str
    reason: str = ""
    judge: str = ""
    explained: bool = True


def examined(layout: str, sample: Sample, masked: bool, contracts: str) -> Line:
    """gradproof's verdict, and where there is one, what the independent judge says to it."""
    who = {"layout": layout, "masked": masked, "name": sample.name, "number": sample.number}
    try:
        sample.function(*sample.inputs)
    except Exception as error:
        return Line(**who, outcome="raised at the point", reason=_brief(error))
    try:
        report = gradproof.check(
            sample.function, sample.inputs, masked=masked, contracts=CONTRACTS[contracts], seed=sample.number
        )
    except Exception as error:
        return Line(**who, outcome="gradproof raised", reason=_brief(error), explained=False)
    if report.reason is gradproof.Reason.UNSUPPORTED:
        said = report.message.partition("of this. ")[2]
        return Line(**who, outcome=MISSING, reason=_brief(said), explained=_raises(sample))
    outcome = report.verdict.value
    if report.reason is not None:
        return Line(**who, outcome=outcome, reason=report.reason.value)
    if outcome == "pass" and not report.subject.coordinates:
        return Line(**who, outcome=outcome, reason="there is nothing to check")
    judge, explained = _judged(sample, masked, failed=outcome == "fail")
    return Line(**who, outcome=outcome, reason=_brief(report.message), judge=judge, explained=explained)


def _raises(sample: Sample) -> bool:
    """Whether torch's own backward raises, asked for without gradproof."""
    try:
        weights = [torch.ones(out.shape, dtype=out.dtype) for out in _results(sample)]
        gradients_of(sample.function, sample.inputs, weights)
    except Exception:
        return True
    return False


def _judged(sample: Sample, masked: bool, *, failed: bool) -> tuple[str, bool]:
    """The judge's words, and whether they are gradproof's."""
    if failed and not any(out.requires_grad for out in _results(sample)):
        detached = "torch returns a result that does not require grad; "
    else:
        detached = ""
    try:
        found = opinion(sample.function, sample.inputs, masked=masked, most=MANY if failed else FEW)
    except Exception as error:
        return f"{detached}no opinion: {_brief(error)}", failed and _is_malformed(sample)
    return f"{detached}{found}", bool(found.wrong) == failed


def _is_malformed(sample: Sample) -> bool:
    weights = [torch.ones(out.shape, dtype=out.dtype) for out in _results(sample)]
    found = gradients_of(sample.function, sample.inputs, weights)
    return any(malformed(gradient) for gradient in found if gradient is not None)


def _results(sample: Sample) -> list[Tensor]:
    result = sample.function(*sample.inputs)
    return [leaf for leaf in (result if isinstance(result, tuple) else (result,)) if isinstance(leaf, Tensor)]


def _brief(what: Any) -> str:
    text = f"{type(what).__name__}: {what}" if isinstance(what, Exception) else str(what)
    return text.split("\n")[0].split(" This could be because")[0].split(" (FYI")[0][:160]


def work(layout: str, dtype: str, contracts: str, converted: int, pattern: str, skipped: int) -> None:
    """Print a line before and after every sample, from some place on."""
    number = 0
    for sample in samples(LAYOUTS[layout], getattr(torch, dtype), converted, pattern):
        for masked in (True, False):
            number += 1
            if number <= skipped:
                continue
            print(json.dumps({"layout": layout, "masked": masked, "name": sample.name, "number": sample.number}))
            sys.stdout.flush()
            print(json.dumps(asdict(examined(layout, sample, masked, contracts))), flush=True)


def lines_of(layout: str, dtype: str, contracts: str, converted: int, pattern: str) -> Iterator[Line]:
    """All lines of a layout, from processes of their own."""
    skipped, ended = 0, True
    while ended:
        ended = False
        command = [sys.executable, "-m", "benchmarks.sparse_database", "--worker", layout, "--dtype", dtype]
        command += [
            "--contracts",
            contracts,
            "--converted",
            str(converted),
            "--operator",
            pattern,
            "--skip",
            str(skipped),
        ]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            assert process.stdout is not None
            begun = None
            for text in process.stdout:
                told = json.loads(text)
                if "outcome" in told:
                    begun = None
                    yield Line(**told)
                else:
                    skipped, begun = skipped + 1, told
        if process.returncode:
            if begun is None:
                raise SystemExit(
                    f"The samples of {layout} ended with status {process.returncode}, and not in a sample."
                )
            ended = True
            yield Line(**begun, outcome="ended the process", reason=f"status {process.returncode}", explained=False)


def show_table(lines: list[Line], dtype: str) -> None:
    print(f"\n{dtype:<12}{'masked':<8}{'samples':>8}" + "".join(f"{column:>21}" for column in COLUMNS))
    groups: defaultdict[tuple[str, bool], Counter[str]] = defaultdict(Counter)
    for line in lines:
        groups[line.layout, line.masked][line.outcome] += 1
    for (layout, masked), counts in groups.items():
        cells = "".join(f"{counts[column]:>21}" for column in COLUMNS)
        print(f"{layout:<12}{'yes' if masked else 'no':<8}{counts.total():>8}{cells}")


def show_fails(lines: list[Line]) -> None:
    fails = [line for line in lines if line.outcome == "fail"]
    print(
        f"\nfails: {len(fails)}, of which the judge confirms {sum(line.explained for line in fails)}; the worst by name"
    )
    groups: defaultdict[tuple[str, str, bool], list[Line]] = defaultdict(list)
    for line in fails:
        groups[line.layout, line.name, line.masked].append(line)
    for (layout, name, masked), found in groups.items():
        print(f"  {layout} {name} (masked={masked}), {len(found)}: {found[0].judge}")


def show_reasons(lines: list[Line]) -> None:
    for outcome in (MISSING, "raised at the point", "inconclusive"):
        print(f"\n{outcome}, by reason")
        groups: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for line in lines:
            if line.outcome == outcome:
                groups[line.layout, line.reason][line.name] += 1
        for (layout, reason), names in groups.items():
            listed = ", ".join(f"{name} {count}" for name, count in names.most_common())
            print(f"  {layout}: {reason}\n      {listed}")


def main() -> int:
    parser = argparse.ArgumentParser(description="False alarms over PyTorch's sparse samples.")
    parser.add_argument("--dtype", choices=("float64", "complex128"), default="float64")
    parser.add_argument(
        "--contracts", choices=CONTRACTS, default="none", help="of a broken one the judge knows nothing"
    )
    parser.add_argument("--layout", nargs="+", choices=LAYOUTS, default=list(LAYOUTS))
    parser.add_argument("--converted", type=int, default=4, help="dense samples, of an operator without sparse ones")
    parser.add_argument("--operator", default="", help="only operators whose name contains this")
    parser.add_argument("--worker", choices=LAYOUTS, help=argparse.SUPPRESS)
    parser.add_argument("--skip", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.dtype, options.contracts, options.converted, options.operator, options.skip)
        return 0
    lines = [
        line
        for layout in options.layout
        for line in lines_of(layout, options.dtype, options.contracts, options.converted, options.operator)
    ]
    show_table(lines, options.dtype)
    show_fails(lines)
    show_reasons(lines)
    unexplained = [line for line in lines if not line.explained]
    print(f"\nunexplained: {len(unexplained)}")
    for line in unexplained:
        print(f"  {line.layout} {line.name} sample {line.number} (masked={line.masked}): {line.outcome}: {line.reason}")
        if line.judge:
            print(f"    {line.judge}")
    return int(bool(unexplained))


if __name__ == "__main__":
    sys.exit(main())
