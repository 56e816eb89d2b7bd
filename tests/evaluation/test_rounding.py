"""A mean and its interval in print: never "± 0.000", never "± nan"."""

import pytest
import torch

import cavia
from cavia.evaluation.rounding import with_interval


@pytest.mark.parametrize(
    ("mean", "width", "text"),
    [
        (0.193, 0.016, "0.193 ± 0.016"),
        (0.024, 0.0003, "0.024 ± 0.0003"),
        (0.2, 0.0, "0.200"),
        (0.2, None, "0.200"),
        (0.2, float("nan"), "0.200"),
        (float("inf"), float("nan"), "inf"),
        (2e7, 1e6, "2.0e+07 ± 1.0e+06"),
    ],
)
def test_a_width_is_shown_where_there_is_one(mean, width, text):
    assert with_interval(mean, width, 3) == text


def test_an_evaluation_whose_tasks_score_alike_has_no_interval():
    scores = torch.tensor([[0.2, 0.2], [0.2, 0.4]])
    before, after = str(cavia.Evaluation("accuracy", scores)).splitlines()
    assert before == "accuracy after 0 steps: 0.2000"
    assert after == "accuracy after 1 step: 0.3000 ± 0.1960"
