"""Checked training steps: does a right one ever fail, and are wrong ones found?

Networks of many kinds, in both precisions, under torch's optimizers with tiny, usual and large rates, several steps
from each seed. Right steps are counted by verdict, and each fail is shown. Then the same networks take steps that are
wrong: gradients scaled or turned around, entries that move and should not, patterns that change, numbers that are not
finite. A step so long that the loss rises is told as such, and counted by itself. At last come the kinds of
`right_steps`, and the mistakes of `wrong_steps`, on some of the networks; `--kinds` shows these alone.

The exit status is 1 if a right step fails, or if fewer wrong ones are found than the goals say.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.right_steps import RIGHT
from benchmarks.step_networks import NETWORKS
from benchmarks.written_rules import RULES, written
from benchmarks.wrong_steps import wrong_steps
from gradproof import Report, check_step
from gradproof.sparse import Pattern, matmul

OPTIMIZERS: dict[str, tuple[Callable[..., torch.optim.Optimizer], dict[str, Any]]] = {
    "SGD": (torch.optim.SGD, {"lr": 0.1}),
    "momentum": (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}),
    "Adam": (torch.optim.Adam, {"lr": 3e-3}),
    "AdamW": (torch.optim.AdamW, {"lr": 3e-3}),
    "RMSprop": (torch.optim.RMSprop, {"lr": 3e-3}),
    "LBFGS": (torch.optim.LBFGS, {"lr": 0.5, "max_iter": 3}),
}
RATES = {"tiny": 1e-4, "usual": 1.0, "large": 20.0}
DTYPES = (torch.float32, torch.float64)
SAMPLES = 48
GOALS = {  # the share of wrong steps to find; five hundredths are within the bar of some steps in single precision
    "scaled": 0.9,
    "turned": 1.0,
    "left behind": 1.0,
    "unstored": 1.0,
    "pattern": 1.0,
    "non-finite": 1.0,
}
KINDS_FOUND = 0.95  # of the mistakes of `wrong_steps`
KINDS_ON = ("relu, wide", "tanh", "GRU", "attention, at rest", "sparse, relu", "graph", "dropout, statistics")
Step = Callable[[], Any]
TOO_LONG = {"non-finite", "loss"}  # findings about a rate that is too large: of a right gradient and a right rule


@dataclass(frozen=True)
class Setting:
    """One network under one optimizer."""

    network: str
    optimizer: str
    rate: str
    dtype: torch.dtype
    seed: int

    def made(self) -> tuple[nn.Module, torch.optim.Optimizer, Callable[[], Tensor]]:
        """The network, its optimizer and its loss: classes for even seeds, numbers for odd ones."""
        torch.manual_seed(self.seed)
        net = NETWORKS[self.network]().to(self.dtype)
        kind, options = OPTIMIZERS[self.optimizer]
        optimizer = kind(net.parameters(), **{**options, "lr": options["lr"] * RATES[self.rate]})
        x, numbers = torch.randn(SAMPLES, 20, dtype=self.dtype), torch.randn(SAMPLES, 3, dtype=self.dtype)
        classes = torch.randint(3, (SAMPLES,))
        if self.seed % 2:
            return net, optimizer, lambda: nn.functional.l1_loss(net(x), numbers)
        return net, optimizer, lambda: nn.functional.cross_entropy(net(x), classes)


def settings(seeds: list[int], rates: list[str]) -> Iterator[Setting]:
    for chosen in product(NETWORKS, OPTIMIZERS, rates, DTYPES, seeds):
        yield Setting(*chosen)


def right_steps(setting: Setting, steps: int) -> Iterator[Report]:
    net, optimizer, loss = setting.made()
    for _ in range(steps):
        report = check_step(optimizer, loss, net)
        yield report
        if any(finding.kind == "non-finite" for finding in report.findings):
            return  # a rate so large that training ends here


def heaviest(net: nn.Module, loss: Callable[[], Tensor]) -> nn.Parameter:
    """The parameter with the largest gradient, so that what is done to it matters."""
    parameters = list(net.parameters())
    with torch.random.fork_rng():
        gradients = torch.autograd.grad(loss(), parameters)
    return max(zip(gradients, parameters, strict=True), key=lambda pair: float(pair[0].norm()))[1]


def scaled(net: nn.Module, heavy: nn.Parameter, step: Step) -> Step:
    """Every gradient is five hundredths too large."""
    for parameter in net.parameters():
        parameter.register_hook(lambda gradient: 1.05 * gradient)
    return step


def turned(net: nn.Module, heavy: nn.Parameter, step: Step) -> Step:
    """One layer's gradient has the wrong sign."""
    heavy.register_hook(lambda gradient: -gradient)
    return step


def left_behind(net: nn.Module, heavy: nn.Parameter, step: Step) -> Step:
    """One layer does not move."""

    def without() -> None:
        kept = heavy.detach().clone()
        step()
        with torch.no_grad():
            heavy.copy_(kept)

    return without


def non_finite(net: nn.Module, heavy: nn.Parameter, step: Step) -> Step:
    """One entry is divided by nothing."""

    def spoilt() -> None:
        step()
        with torch.no_grad():
            heavy.view(-1)[0] /= 0

    return spoilt


NETWORK_MISTAKES = {"scaled": scaled, "turned": turned, "left behind": left_behind, "non-finite": non_finite}


def planted(setting: Setting, mistake: str) -> str:
    """How a wrong step is judged: found, inconclusive, or passed."""
    net, optimizer, loss = setting.made()
    report = check_step(NETWORK_MISTAKES[mistake](net, heaviest(net, loss), optimizer.step), loss, net)
    if report.findings:
        return "found"
    return report.verdict.value


def unstored(seed: int, dtype: torch.dtype) -> Report:
    """A dense weight moves at one entry outside its pattern."""
    mask, x, y = matrices(seed, dtype)
    weight = (torch.randn(6, 9, dtype=dtype) * mask).requires_grad_()

    def move_elsewhere() -> None:
        assert weight.grad is not None
        with torch.no_grad():
            weight.sub_(0.1 * weight.grad * mask)
            row, column = (~mask).nonzero()[seed % int((~mask).sum())]
            weight[row, column] += 1e-3

    patterns = {"weight": Pattern.from_mask(mask)}
    return check_step(move_elsewhere, lambda: (weight @ x - y).square().mean(), {"weight": weight}, patterns=patterns)


def another_pattern(seed: int, dtype: torch.dtype) -> Report:
    """A sparse weight stores other entries after the step: COO more of them, compressed ones one of them elsewhere."""
    mask, x, y = matrices(seed, dtype)
    layout = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)[seed % 3]
    leaf = (torch.randn(6, 9, dtype=dtype) * mask).to_sparse(layout=layout).requires_grad_()

    def store_others() -> None:
        if layout is torch.sparse_coo:
            leaf.data = (leaf.detach().to_dense() + torch.eye(6, 9, dtype=dtype)).to_sparse()
        else:
            plain_indices = leaf.col_indices() if layout is torch.sparse_csr else leaf.row_indices()
            plain_indices[-1] -= 1

    return check_step(store_others, lambda: (matmul(leaf, x) - y).square().mean(), {"leaf": leaf})


def matrices(seed: int, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    mask = torch.rand(6, 9) < 0.4
    mask[-1, -2], mask[-2, -1], mask[-1, -1] = False, False, True
    return mask, torch.randn(9, 12, dtype=dtype), torch.randn(6, 12, dtype=dtype)


ENTRY_MISTAKES = {"unstored": unstored, "pattern": another_pattern}


def planted_entries(seed: int, dtype: torch.dtype, mistake: str) -> str:
    """How a mistake in which entries are stored or move is judged, in a matrix by itself."""
    report = ENTRY_MISTAKES[mistake](seed, dtype)
    return "found" if [finding.kind for finding in report.findings] == [mistake] else report.verdict.value


def show_right(options: argparse.Namespace) -> int:
    """Print the table of right steps, and return the number of false alarms."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    reasons: Counter[str] = Counter()
    alarms = 0
    for setting in settings(options.seeds, list(RATES)):
        for number, report in enumerate(right_steps(setting, options.steps)):
            word = report.verdict.value
            if report.findings and {finding.kind for finding in report.findings} <= TOO_LONG:
                word = "too long"
            counts.setdefault((setting.network, setting.rate), Counter())[word] += 1
            if report.reason:
                reasons[f"{report.reason.value}: {report.message.split(':')[0]}"] += 1
            if word == "fail":
                alarms += 1
                print(f"FALSE ALARM at step {number} of {setting}\n{report}\n", flush=True)
    print(f"{'right steps':<24}{'rate':<8}{'pass':>7}{'inconclusive':>14}{'fail':>7}{'too long':>12}")
    for (network, rate), found in counts.items():
        print(
            f"{network:<24}{rate:<8}{found['pass']:>7}{found['inconclusive']:>14}{found['fail']:>7}"
            f"{found['too long']:>12}"
        )
    total = sum(counts.values(), Counter())
    print(f"{'all':<32}{total['pass']:>7}{total['inconclusive']:>14}{total['fail']:>7}{total['too long']:>12}")
    for reason, times in reasons.most_common():
        print(f"  {times:>5} × {reason}")
    return alarms


def show_planted(options: argparse.Namespace) -> bool:
    """The table of wrong steps; says whether the goals are met."""
    print(f"\n{'wrong steps':<14}{'precision':<10}{'found':>7}{'inconclusive':>14}{'passed':>8}")
    met = True
    for mistake, goal in GOALS.items():
        for dtype in DTYPES:
            if mistake in NETWORK_MISTAKES:
                chosen = (one for one in settings(options.seeds[:1], ["tiny", "usual"]) if one.dtype is dtype)
                found = Counter(planted(one, mistake) for one in chosen if one.optimizer != "LBFGS")
            else:
                found = Counter(planted_entries(seed, dtype, mistake) for seed in range(50))
            share = found["found"] / found.total()
            met &= share >= goal
            name = str(dtype).removeprefix("torch.")
            print(
                f"{mistake:<14}{name:<10}{found['found']:>7}{found['inconclusive']:>14}"
                f"{found['pass']:>8}   {share:.0%} (goal {goal:.0%})",
                flush=True,
            )
    return met


def made(network: str, dtype: torch.dtype) -> tuple[nn.Module, Callable[[], Tensor]]:
    setting = Setting(network=network, optimizer="SGD", rate="usual", dtype=dtype, seed=100)
    net, _, loss = setting.made()
    return net, loss


def show_right_kinds(options: argparse.Namespace) -> int:
    """Check every kind of right step, several in a row, and return the number of false alarms."""
    kinds = {f"written out, {name}": partial(written, rule, "") for name, rule in RULES.items()}
    counts: Counter[str] = Counter()
    for (name, make), network, dtype in product({**RIGHT, **kinds}.items(), options.on, DTYPES):
        net, loss = made(network, dtype)
        step = make(net, loss)
        for number in range(options.steps):
            report = check_step(step, loss, net, seed=number)
            counts[report.verdict.value] += 1
            if report.findings:
                print(f"FALSE ALARM at step {number} of {name}, {network}, {dtype}\n{report}\n", flush=True)
    passed, undecided, alarms = counts["pass"], counts["inconclusive"], counts["fail"]
    print(f"\n{len(RIGHT) + len(kinds)} kinds of right steps: {passed} pass, {undecided} inconclusive, {alarms} fail")
    return alarms


def show_wrong_kinds(options: argparse.Namespace) -> bool:
    """Every mistake; says whether the goal is met."""
    counts: Counter[str] = Counter()
    mistakes = dict(wrong_steps())
    for (name, make), network, dtype in product(mistakes.items(), options.on, DTYPES):
        net, loss = made(network, dtype)
        wrong = make(net, loss)
        verdict = check_step(wrong.step, loss, net, seed=0, **wrong.options).verdict.value
        counts[verdict] += 1
        if verdict != "fail":
            print(f"  {verdict}: {name}, {network}, {dtype}", flush=True)
    share = counts["fail"] / counts.total()
    print(
        f"{len(mistakes)} mistakes: {counts['fail']} of {counts.total()} found, {share:.1%} (goal {KINDS_FOUND:.0%}), "
        f"{counts['inconclusive']} inconclusive, {counts['pass']} passed"
    )
    return share >= KINDS_FOUND


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", nargs="+", type=int, default=[100, 101])
    parser.add_argument("--steps", type=int, default=4, help="in a row, from each seed")
    parser.add_argument("--kinds", action="store_true", help="the kinds of right and of wrong steps alone")
    parser.add_argument("--on", nargs="+", default=list(KINDS_ON), choices=list(NETWORKS), help="networks of the kinds")
    options = parser.parse_args()
    torch.set_num_threads(1)
    began = time.perf_counter()
    alarms, met = 0, True
    if not options.kinds:
        alarms, met = show_right(options), show_planted(options)
    alarms += show_right_kinds(options)
    met &= show_wrong_kinds(options)
    print(f"\nfalse alarms: {alarms}; {time.perf_counter() - began:.0f} s")
    return 0 if met and not alarms else 1


if __name__ == "__main__":
    sys.exit(main())
