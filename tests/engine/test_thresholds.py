"""The engine's numeric constants."""

from collections import Counter

from benchmarks.sensitivity_constants import constants


def test_no_two_constants_of_the_engine_share_a_name():
    names = Counter(constant.name for constant in constants())

    assert [name for name, times in names.items() if times > 1] == []
