import math

import pytest

from cavia.evaluation.verdict import verdict


@pytest.mark.parametrize(
    ("ours", "paper", "higher_is_better", "expected"),
    [
        ((0.22, 0.02), (0.21, 0.02), False, "within"),
        ((0.234, 0.02), (0.21, 0.02), False, "within"),  # 0.024 is inside 0.02 and half a unit of the last digit
        ((0.24, 0.02), (0.21, 0.02), False, "short"),
        ((0.18, 0.02), (0.21, 0.02), False, "better"),
        ((0.24, 0.02), (0.21, 0.02), True, "better"),
        ((0.18, 0.02), (0.21, 0.02), True, "short"),
        ((0.30, 0.20), (0.21, 0.02), False, "short"),  # a wide interval of ours does not help where the paper has one
        ((0.30, 0.20), (0.21, None), False, "within"),
        ((0.195, None), (0.19, None), False, "within"),  # the rounding alone, to its very edge
        ((0.196, None), (0.19, None), False, "short"),
        ((math.nan, None), (0.19, 0.02), True, "short"),
        ((math.inf, None), (0.19, 0.02), False, "short"),
    ],
)
def test_verdict_follows_the_interval_and_the_direction(ours, paper, higher_is_better, expected):
    assert verdict(*ours, *paper, higher_is_better=higher_is_better, digits=2) == expected


def test_rounding_follows_the_printed_digits():
    assert verdict(0.374, None, 0.37, None, higher_is_better=False, digits=2) == "within"
    assert verdict(0.374, None, 0.37, None, higher_is_better=False, digits=3) == "short"
