"""Relation Networks against g([class, query]) written out pair by pair."""

import pytest
import torch

import cavia
from tests.conformance.cases import sines


def classes():
    """Two classes, every other point."""
    batch, labels = sines(), torch.arange(6).expand(3, 6) % 2
    return cavia.TaskBatch(batch.support_x, labels, batch.query_x, labels[:, :5])


def make(loss="score_mse", **arguments):
    torch.manual_seed(0)
    return cavia.RelationNets(cavia.MLP(1, 4, (8,), context=0), loss, 2, **arguments)


def score(learner, one, query):
    """g of a class's sum [F] and a query [F], side by side."""
    first = torch.cat([learner.reads_class.weight, learner.reads_query.weight], 1)
    h = first @ torch.cat([one, query]) + learner.reads_class.bias
    for layer in learner.layers:
        h = layer.weight @ h.clamp(min=0) + layer.bias
    return h.squeeze()


def test_scores_are_those_of_each_pair():
    learner, batch = make(hidden=(6, 3)), classes()
    adapted = learner.predict(batch.query_x, learner.adapt(batch.support_x, batch.support_y))
    support, queries = learner.embed(batch.support_x), learner.embed(batch.query_x)
    for task in range(3):
        sums = [support[task][batch.support_y[task] == label].sum(0) for label in (0, 1)]
        expected = torch.stack([torch.stack([score(learner, one, query) for one in sums]) for query in queries[task]])
        torch.testing.assert_close(adapted[task], expected)


def test_the_loss_is_the_squared_error_of_the_scores():
    learner, batch = make(), classes()
    logits = learner.predict(batch.query_x, learner.adapt(batch.support_x, batch.support_y))
    wanted = torch.nn.functional.one_hot(batch.query_y, 2)
    expected = (logits.sigmoid() - wanted).square().sum(-1).mean(1)
    torch.testing.assert_close(learner(batch), expected)
    assert make("cross_entropy")(batch).shape == (3,)


def test_misuse_is_named():
    batch = classes()
    with pytest.raises(cavia.CaviaError, match=r"labels y must be from 0 to 1 for logits of 2 classes, got [56]"):
        make()(cavia.TaskBatch(batch.support_x, batch.support_y, batch.query_x, batch.query_y + 5))
    with pytest.raises(cavia.CaviaError, match=r"was built for 7 features, the model gives .*say features=4"):
        make(features=7).adapt(batch.support_x, batch.support_y)
    with pytest.raises(cavia.CaviaError, match="hidden must be at least 1, got 0"):
        make(hidden=(0,))
