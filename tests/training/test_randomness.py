"""Dropout draws a run's own random numbers, whatever other threads train."""

import threading

import pytest
import torch
from torch import nn

import cavia
from cavia.randomness import OwnRandomNumbers, may_draw
from tests.training.runs import assert_same, weights


def learner(dropout=0.3):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, 8), nn.Dropout(dropout), nn.ReLU(), nn.Linear(8, 1))
    return cavia.CAVIA(cavia.condition(net, at="0", context=3, example=torch.zeros(4, 1)), "mse", inner_lr=0.1)


def train(one, seed):
    cavia.fit(one, cavia.Sine(), 25, tasks_per_batch=3, validation=cavia.Validation(tasks=0), seed=seed, progress=False)


@pytest.mark.slow
def test_runs_with_dropout_in_two_threads_are_those_one_after_another():
    expected = [learner(), learner()]
    for seed, one in enumerate(expected):
        train(one, seed)
    together = [learner(), learner()]
    before = torch.get_rng_state()
    threads = [threading.Thread(target=train, args=(one, seed)) for seed, one in enumerate(together)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for one, other in zip(together, expected, strict=True):
        assert_same(weights(one), weights(other))
    assert torch.equal(torch.get_rng_state(), before)


def test_a_run_leaves_the_callers_random_numbers_alone():
    one = learner()
    before = torch.get_rng_state()
    cavia.fit(one, cavia.Sine(), 2, validation=cavia.Validation(tasks=0), progress=False)
    assert torch.equal(torch.get_rng_state(), before)


def test_turns_go_on_where_they_ended():
    first, second = OwnRandomNumbers(3), OwnRandomNumbers(4)
    results = []
    for _ in range(2):
        for one in (first, second):
            with one.turn():
                results.append(torch.rand(2))
            torch.rand(5)  # somebody else draws
    torch.manual_seed(3)
    assert torch.equal(torch.cat(results[::2]), torch.cat([torch.rand(2), torch.rand(2)]))
    state = first.state
    with first.turn():
        expected = torch.rand(2)
    second.go_on_from(state)
    with second.turn():
        assert torch.equal(torch.rand(2), expected)


@pytest.mark.parametrize(
    ("module", "draws"),
    [
        (lambda: cavia.MLP(1, 1), False),
        (lambda: nn.Dropout(0.1), True),
        (lambda: nn.LSTM(2, 3, 2, dropout=0.1), True),
        (lambda: nn.LSTM(2, 3), False),
        (lambda: nn.MultiheadAttention(4, 2, dropout=0.1), True),
        (lambda: type("Own", (nn.Module,), {"__module__": "mine"})(), True),
    ],
)
def test_who_may_draw(module, draws):
    assert may_draw(module()) == draws
