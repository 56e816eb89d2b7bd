"""Runs to compare between ranks and one process."""

import pytest
import torch
from torch.nn.utils import parameters_to_vector

import cavia
from tests.training.runs import fit, make

TASKS = 6


class Double(cavia.TaskFamily):
    """Sine curves in float64."""

    draws_ahead = True

    def sample(self, tasks, support, query, generator, split="train"):
        batch = cavia.Sine().sample(tasks, support, query, generator, split)
        parts = (batch.support_x, batch.support_y, batch.query_x, batch.query_y)
        return cavia.TaskBatch(*(part.double() for part in parts))


def trained(method, iterations, run_dir=None, changes=(), double=True):
    """A run on sine curves: the weights and what `fit` returns."""
    learner = make(method)
    learner, family = (learner.double(), Double()) if double else (learner, cavia.Sine())
    settings = {"every": 50, "tasks_per_batch": TASKS, "validation_tasks": 8, "progress": False, "compile": False}
    ended = fit(learner, family, iterations, run_dir, **settings | dict(changes))
    return parameters_to_vector(learner.parameters()).detach().tolist(), ended.loss, ended.best_score


def assert_alike(one, several, tolerance):
    """All ranks end with the weights of the process alone, and with the same to the bit."""
    weights, *numbers = one
    assert all(actual == several[0] for actual in several)
    torch.testing.assert_close(*map(torch.DoubleTensor, (several[0][0], weights)), rtol=0, atol=tolerance)
    assert several[0][1:] == pytest.approx(numbers, abs=tolerance)
