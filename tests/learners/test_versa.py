"""VERSA's predictive likelihoods against sums over samples that are written out."""

import pytest
import torch
from torch.distributions import Normal

import cavia
from tests.conformance.cases import sines
from tests.learners.test_relation import classes


def make(**arguments):
    torch.manual_seed(0)
    learner = cavia.VERSA(cavia.MLP(1, 4, (8,), context=0), ways=2, samples=3, **arguments)
    with torch.no_grad():
        learner.writer[-1].bias[5:] = 0.0  # wide enough to see
    return learner


def test_predictions_are_the_mean_probability_over_samples():
    learner, batch = make(), classes()
    adapted = learner.predict(batch.query_x, learner.adapt(batch.support_x, batch.support_y))
    support, queries = learner.embed(batch.support_x), learner.embed(batch.query_x)
    for task in range(3):
        written = [learner.writer(support[task][batch.support_y[task] == label].mean(0)) for label in (0, 1)]
        mean, log_variance = torch.stack([w[:5] for w in written]), torch.stack([w[5:] for w in written])
        shares = []
        for noise in learner.noise:
            weights = mean + log_variance.exp().sqrt() * noise  # [ways, F + 1]
            shares.append((queries[task] @ weights[:, :4].T + weights[:, 4]).softmax(-1))
        torch.testing.assert_close(adapted[task], torch.stack(shares).mean(0).log())
    torch.testing.assert_close(adapted.exp().sum(-1), torch.ones(3, 5))


def test_samples_are_drawn_in_training_only():
    learner, batch = make(), classes()
    assert not torch.equal(learner(batch), learner(batch))
    learner.eval()
    assert torch.equal(learner(batch), learner.task_losses(batch))


def test_the_likelihood_of_a_regression_is_that_of_its_samples():
    torch.manual_seed(0)
    learner = cavia.VERSARegression(cavia.MLP(1, 4, (8,), context=0), encoder=(6,), samples=3).double()
    with torch.no_grad():
        learner.writer[-1].bias[5:] = 0.0
        learner.log_noise.fill_(0.3)
    batch = sines()
    values = [getattr(batch, f"{a}_{b}").double() for a in ("support", "query") for b in "xy"]
    torch.manual_seed(1)
    losses = learner(cavia.TaskBatch(*values))
    torch.manual_seed(1)
    noise = torch.randn(3, 3, 1, 5, dtype=torch.float64)
    x, y, query_x, query_y = values
    points = learner.writer[:-1](torch.cat([x, y], -1))
    for task in range(3):
        mean, log_variance = learner.writer[-1](points[task].mean(0)).chunk(2)
        h = learner.model(query_x, torch.zeros(3, 0).double())[task]
        likelihoods = []
        for sample in noise[task, :, 0]:
            weights = mean + log_variance.exp().sqrt() * sample
            predicted = h @ weights[:4] + weights[4]
            likelihoods.append(Normal(predicted, learner.log_noise.exp().sqrt()).log_prob(query_y[task, :, 0]).exp())
        torch.testing.assert_close(losses[task], -torch.stack(likelihoods).mean(0).log().mean())
        adapted = learner.adapt(x, y)
        torch.testing.assert_close(learner.predict(query_x, adapted)[task, :, 0], h @ mean[:4] + mean[4])


def test_misuse_is_named():
    with pytest.raises(cavia.CaviaError, match='loss must be "mse", got'):
        cavia.VERSARegression(cavia.MLP(1, 4, context=0), "cross_entropy")
    with pytest.raises(cavia.CaviaError, match="samples must be at least 1, got 0"):
        cavia.VERSA(cavia.MLP(1, 4, context=0), samples=0)
    learner = cavia.VERSARegression(cavia.MLP(1, 4, context=0), inputs=2)
    with pytest.raises(cavia.CaviaError, match=r"reads x \[T, K, 2\] and y \[T, K, 1\], got \[3, 6, 1\]"):
        learner.adapt(sines().support_x, sines().support_y)


@pytest.mark.slow
def test_the_regression_learns_sine_curves():
    torch.manual_seed(0)
    learner = cavia.VERSARegression(cavia.MLP(1, 40, (40,), context=0))
    before = cavia.evaluate(learner, cavia.Sine(), tasks=100).mean[-1]
    cavia.fit(learner, cavia.Sine(), 500, progress=False, validation=cavia.Validation(0))
    assert cavia.evaluate(learner, cavia.Sine(), tasks=100).mean[-1] < 0.75 * before
