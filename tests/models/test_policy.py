"""Policies against torch.distributions."""

import pytest
import torch
from torch.distributions import Categorical, Normal, kl_divergence

import cavia
from cavia.models.policy import CategoricalPolicy, GaussianPolicy


def predictions(count=2, width=4):
    return [
        torch.randn(3, 5, width, dtype=torch.float64, generator=torch.Generator().manual_seed(i)) for i in range(count)
    ]


def normal(prediction):
    mean, log_std = prediction.chunk(2, -1)
    return Normal(mean, log_std.exp())


def test_gaussian_equals_torch():
    old, new = predictions()
    action = torch.randn(3, 5, 2, dtype=torch.float64)
    assert torch.allclose(GaussianPolicy.log_prob(old, action), normal(old).log_prob(action).sum(-1))
    assert torch.allclose(GaussianPolicy.kl(old, new), kl_divergence(normal(old), normal(new)).sum(-1))
    assert torch.allclose(GaussianPolicy.entropy(old), normal(old).entropy().sum(-1))


def test_categorical_equals_torch():
    old, new = predictions()
    action = torch.randint(4, (3, 5))
    one, other = Categorical(logits=old), Categorical(logits=new)
    for given in (action, action.unsqueeze(-1)):
        assert torch.allclose(CategoricalPolicy.log_prob(old, given), one.log_prob(action))
    assert torch.allclose(CategoricalPolicy.kl(old, new), kl_divergence(one, other))
    assert torch.allclose(CategoricalPolicy.entropy(old), one.entropy())


@pytest.mark.parametrize("policy", [GaussianPolicy, CategoricalPolicy])
def test_fisher_is_the_hessian_of_the_kl_divergence(policy):
    point, change = (value[:1, :1] for value in predictions())
    hessian = torch.autograd.functional.hessian(lambda new: policy.kl(point, new).sum(), point).view(4, 4)
    assert torch.allclose(policy.fisher(point, change).flatten(), hessian @ change.flatten())


@pytest.mark.parametrize("policy", [GaussianPolicy, CategoricalPolicy])
def test_actions_come_from_the_generator_and_have_the_right_chances(policy):
    prediction = predictions(1)[0][:1, :1].expand(1, 20_000, 4)
    random = torch.Generator().manual_seed(0)
    drawn = policy.sample(prediction, random)
    assert torch.equal(drawn, policy.sample(prediction, torch.Generator().manual_seed(0)))
    if policy.discrete:
        shares = torch.bincount(drawn.flatten(), minlength=4) / 20_000
        assert torch.allclose(shares.double(), prediction[0, 0].softmax(-1), atol=0.02)
        assert policy.mode(prediction)[0, 0] == prediction[0, 0].argmax()
    else:
        spread = normal(prediction[0, 0]).stddev
        assert torch.allclose(drawn.std((0, 1)), spread, rtol=0.03)
        assert torch.equal(policy.mode(prediction), prediction[..., :2])


def test_a_policy_is_a_network_with_context_that_learners_save_and_load(tmp_path):
    for policy in (GaussianPolicy(3, 2, (8,), 4, std=0.5), CategoricalPolicy(3, 2, (8,), 4)):
        learner = cavia.CAVIA(policy, policy.loss, inner_lr=0.5)
        x = torch.randn(2, 7, 3)
        assert learner.model(x, torch.zeros(2, 4)).shape == (2, 7, 2 if policy.discrete else 4)
        learner.save(tmp_path / "policy.cavia")
        again = cavia.load(tmp_path / "policy.cavia")
        assert torch.equal(again.predict(x, again.start(2)), learner.predict(x, learner.start(2)))
    assert GaussianPolicy(3, 2, std=0.5).log_std.exp().tolist() == pytest.approx([0.5, 0.5])
    with pytest.raises(cavia.CaviaError, match="std must be above 0"):
        GaussianPolicy(3, 2, std=0.0)
