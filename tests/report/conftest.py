"""Reports of every kind, made once."""

import pytest

from support import reports


@pytest.fixture(scope="session")
def kinds():
    """A report of every kind."""
    return {
        "pass": reports.a_pass(),
        "fail": reports.diagnosed(reports.a_fail(), "It is twice the truth.", "It is something else."),
        "one wrong entry": reports.one_wrong_entry(),
        "every entry": reports.a_fail(coverage="full"),
        "both modes": reports.a_pass(modes=("reverse", "forward")),
        "inconclusive": reports.an_inconclusive(),
    }
