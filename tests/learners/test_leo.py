"""LEO against plain autograd, one task at a time, pair by pair."""

import pytest
import torch
from torch.nn.functional import cross_entropy

import cavia
from tests.learners.test_relation import classes


def make(**arguments):
    torch.manual_seed(0)
    options = {
        "ways": 2,
        "inner_lr": 0.5,
        "inner_steps": 2,
        "latent": 3,
        "hidden": 4,
        "kl": 0.1,
        "encoder_penalty": 0.2,
    }
    learner = cavia.LEO(cavia.MLP(1, 5, (8,), context=0), **options | arguments).double().eval()
    batch = classes()
    return learner, cavia.TaskBatch(batch.support_x.double(), batch.support_y, batch.query_x.double(), batch.query_y)


def written_out(learner, x, y, query_x, query_y):
    """The outer loss of one task at the means: [K, 1], [K], [N, 1], [N]."""
    model = learner.model
    embedded = model(x[None], torch.zeros(1, 0).double())[0]
    codes = learner.encode(embedded)
    means, variances = [], []
    for label in range(2):
        pairs = [learner.relate(torch.cat([codes[i], codes[j]])) for i in range(len(x)) if y[i] == label
                 for j in range(len(x))]  # fmt: skip
        mean, log_variance = torch.stack(pairs).mean(0).chunk(2)
        means.append(mean)
        variances.append(log_variance)
    start = z = torch.stack(means)
    for _ in range(learner.inner_steps):
        loss = cross_entropy(embedded @ learner.decode(z)[:, :5].T, y)
        (slope,) = torch.autograd.grad(loss, z, create_graph=True)
        z = z - learner.log_rate.exp() * slope
    queries = model(query_x[None], torch.zeros(1, 0).double())[0]
    loss = cross_entropy(queries @ learner.decode(z)[:, :5].T, query_y)
    log_variance = torch.stack(variances)
    divergence = 0.5 * (log_variance.exp() + start.square() - 1 - log_variance).sum()
    rows = learner.decode.weight.T
    cosines = torch.stack([torch.stack([a @ b / (a.norm() * b.norm()) for b in rows]) for a in rows])
    alike = (cosines - torch.eye(3).double()).square().mean()
    return loss + 0.1 * divergence + 0.2 * (z.detach() - start).square().sum() + 0.1 * alike


def test_loss_and_gradients_are_those_of_autograd():
    learner, batch = make()
    parts = (batch.support_x, batch.support_y, batch.query_x, batch.query_y)
    expected = torch.stack([written_out(learner, *(part[i] for part in parts)) for i in range(3)])
    losses = learner(batch)
    torch.testing.assert_close(losses, expected)
    wanted = torch.autograd.grad(expected.mean(), list(learner.parameters()))
    torch.testing.assert_close(torch.autograd.grad(losses.mean(), list(learner.parameters())), wanted)


def test_codes_move_and_noise_stays():
    learner, batch = make()
    ends = [learner.adapt(batch.support_x, batch.support_y, steps=steps) for steps in (0, 2)]
    assert not torch.equal(ends[0]["codes"], ends[1]["codes"])
    assert ends[1]["noise"].eq(0).all()
    learner.train()
    assert not torch.equal(learner(batch), learner(batch))


def test_misuse_is_named():
    learner, batch = make()
    with pytest.raises(cavia.CaviaError, match=r"labels must be from 0 to 1 \(ways=2\), got 1 to 2"):
        learner.adapt(batch.support_x, batch.support_y + 1)
    with pytest.raises(cavia.CaviaError, match="latent must be at least 1"):
        make(latent=0)
    with pytest.raises(cavia.CaviaError, match="kl must be above 0"):
        make(kl=-1.0)
