"""Contexts drawn once an episode: outer gradients against plain autograd, task by task, and what an episode keeps."""

import pytest
import torch
from torch.distributions import Normal, kl_divergence

import cavia
from cavia.envs import Navigation
from cavia.learners.acting import MetaBatch, Points, actor, adapt_in, drawn_once
from cavia.tasks.share import Share
from cavia.training.trpo import TRPOStep
from tests.reference_rl import distribution

KINDS = {
    "SampledCAVIA": lambda policy: cavia.SampledCAVIA(policy, policy.loss, 0.7, std_lr=0.2, std=1.3),
    "MAESN": lambda policy: cavia.MAESN(policy, policy.loss, 0.7, std_lr=0.2, weights_lr=0.1, kl=0.3),
    "MAESN, first order": lambda policy: cavia.MAESN(policy, policy.loss, 0.7, first_order=True),
}


def points(seed, tasks=3, count=20):
    random = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(tasks, count, width, generator=random, dtype=torch.float64) for width in (3 + 4 + 1, 3))
    return Points(x, y, torch.rand(tasks, count, generator=random) < 0.8)


def make(kind, updates=1):
    torch.manual_seed(0)
    policy = cavia.GaussianPolicy(3, 2, hidden=(7, 6), context=4, std=0.7)
    learner = KINDS[kind](policy).double()
    with torch.no_grad():  # away from the prior, where gradients of the start are not zero by symmetry
        for parameter in learner.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return learner, MetaBatch([points(i) for i in range(updates)], points(9))


def one_task(learner, batch, task):
    """The adapted policy for a task's query steps, written out: φ is an action, drawn before the first step."""
    weights, graph = dict(learner.model.named_parameters()), not learner.first_order
    mean, log_std = learner.initial_context, learner.initial_log_std
    rates = learner.step_size()
    for part in batch.support:
        (x, noise, credit), y = part.x[task][part.mask[task]].split([3, 4, 1], 1), part.y[task][part.mask[task]]
        drawn = mean + log_std.exp() * noise
        at = [mean.clone().requires_grad_(), log_std.clone().requires_grad_()]
        of_context = Normal(at[0], at[1].exp()).log_prob(drawn).sum(1)
        by_mean, by_log_std = torch.autograd.grad(-(credit[:, 0] * of_context).mean(), at, create_graph=graph)
        if learner.moves_weights:
            policy = torch.stack([distribution(a[None], weights, c).log_prob(b[:-1]).sum() for a, b, c in
                                  zip(x, y, drawn, strict=True)])  # fmt: skip
            loss = -(policy * y[:, -1]).mean()
            slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=graph, retain_graph=True)
            pairs = zip(weights.items(), slopes, strict=True)
            weights = {name: value - rates[name] * slope for (name, value), slope in pairs}
        mean, log_std = mean - rates["context"] * by_mean, log_std - rates["context_log_std"] * by_log_std
    x, noise, _ = batch.query.x[task].split([3, 4, 1], 1)
    drawn = mean + log_std.exp() * noise
    return [distribution(a[None], weights, c) for a, c in zip(x, drawn, strict=True)]


@pytest.mark.parametrize("updates", [1, 2])
@pytest.mark.parametrize("kind", KINDS)
def test_the_outer_gradient_is_that_of_autograd_task_by_task(kind, updates):
    learner, batch = make(kind, updates)
    total = 0
    for task in range(len(batch)):
        mask, y = batch.query.mask[task], batch.query.y[task]
        logs = torch.stack([d.log_prob(b[:-1]).sum() for d, b in zip(one_task(learner, batch, task), y, strict=True)])
        total = total - ((logs - logs.detach()).exp() * y[:, -1])[mask].mean() / len(batch)
    if "MAESN" in kind:
        start = Normal(learner.initial_context, learner.initial_log_std.exp())
        total = total + learner.kl * kl_divergence(start, Normal(torch.zeros(4), torch.ones(4))).sum()
    gradient, loss, old = TRPOStep(learner).gradient([batch])
    assert loss == pytest.approx(total.item(), rel=1e-10)
    wanted = torch.autograd.grad(total, list(learner.parameters()), materialize_grads=True)
    torch.testing.assert_close(gradient, torch.cat([one.flatten() for one in wanted]), rtol=1e-8, atol=1e-12)
    assert TRPOStep(learner).judge([batch], old) == pytest.approx((loss, 0.0), rel=1e-10, abs=1e-12)


def test_episodes_keep_what_was_drawn_and_share_the_credit_of_their_first_step():
    learner = cavia.SampledCAVIA(cavia.GaussianPolicy(2, 2, (8,), 3), cavia.GaussianPolicy.loss)
    env, random = Navigation(6, goals="semicircle"), torch.Generator().manual_seed(0)
    stages = adapt_in(learner, env, env.sample_tasks(3, random), 4, 1, random)
    x = stages[0].points.x.view(3, 4, 6, 2 + 3 + 1)
    assert (x[..., 2:] == x[:, :, :1, 2:]).all()
    assert not torch.equal(x[:, 0, 0, 2:5], x[:, 1, 0, 2:5])
    credit = x[:, :, 0, -1]
    torch.testing.assert_close(credit.mean(1), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(credit.square().mean(1), torch.ones(3))
    torch.testing.assert_close(stages[1].adapted.context, (credit.unsqueeze(-1) * x[:, :, 0, 2:5]).mean(1))


def test_the_same_context_gives_the_same_likeliest_action_and_another_draw_another():
    learner = cavia.SampledCAVIA(cavia.GaussianPolicy(2, 2, (8,), 3), cavia.GaussianPolicy.loss)
    seen, random = torch.zeros(2, 5, 2), torch.Generator().manual_seed(0)
    noise = drawn_once(learner, 2, 5, random)
    act = actor(learner, learner.start(2), random, mean=True, noise=noise)
    assert torch.equal(act(seen), act(seen))
    assert not torch.allclose(act(seen)[:, 0], act(seen)[:, 1])
    at_mean = actor(learner, learner.start(2), random, mean=True)(seen)
    torch.testing.assert_close(at_mean[:, :1].expand_as(at_mean), at_mean)
    share = drawn_once(learner, 1, 5, random.manual_seed(0), Share(1, 2, 2))
    assert torch.equal(share, noise[1:])
    assert drawn_once(cavia.CAVIA(learner.model, learner.loss), 2, 5, random) is None


@pytest.mark.parametrize("kind", ["SampledCAVIA", "MAESN"])
def test_it_trains_saves_and_goes_on(kind, tmp_path):
    torch.manual_seed(0)
    policy = cavia.GaussianPolicy(2, 2, (8,), context=2)
    learner = getattr(cavia, kind)(policy, policy.loss, inner_lr=2.0)
    how = {"tasks_per_batch": 3, "support": 3, "outer": cavia.TRPO(), "progress": False}
    env = Navigation(5, goals="semicircle")
    cavia.fit(learner, env, 2, run_dir=tmp_path, validation=cavia.Validation(2, 1), **how)
    again = cavia.load(tmp_path / "model.cavia")
    assert type(again) is type(learner)
    assert again.version == learner.version
    actual, wanted = (cavia.evaluate(one, env, 3, 2, 2, 2).scores for one in (again, learner))
    assert torch.equal(actual, wanted)


POLICY = cavia.GaussianPolicy(2, 2, (4,), context=2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cavia.SampledCAVIA(POLICY, POLICY.loss, std_lr=0.0), "std_lr must be above 0"),
        (lambda: cavia.SampledCAVIA(POLICY, POLICY.loss, std=-1.0), "std must be above 0"),
        (lambda: cavia.MAESN(POLICY, POLICY.loss, kl=0.0), "kl must be above 0"),
        (lambda: cavia.MAESN(POLICY, POLICY.loss, weights_lr=-1.0), "weights_lr must be above 0"),
        (lambda: cavia.SampledCAVIA(cavia.MLP(1, 1), "mse"), "needs a policy, such as cavia.GaussianPolicy, got a MLP"),
        (lambda: cavia.SampledCAVIA(cavia.GaussianPolicy(2, 2, context=0), POLICY.loss), "the model has context=0"),
        (lambda: cavia.SampledCAVIA(POLICY, POLICY.loss).adapt(torch.zeros(1, 3, 2), torch.zeros(1, 3, 3)),
         "adapts to episodes with what was drawn in them"),
        (lambda: cavia.SampledCAVIA(POLICY, POLICY.loss).adapt(torch.zeros(1, 3, 4), torch.zeros(1, 3, 3)),
         r"x must be \[T, N, 2\], observations alone, or \[T, N, 5\]"),
    ],
)  # fmt: skip
def test_wrong_use_is_named(call, message):
    with pytest.raises(cavia.CaviaError, match=message):
        call()
