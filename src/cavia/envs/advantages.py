"""Returns, a baseline and advantages of rollouts (Section 5.3); everything is [T, R, H] and masked."""

import torch
from torch import Tensor

from cavia.envs.rollouts import Rollouts

RIDGE = 1e-5
ROUNDING = 1e-10  # a ridge that matters only where rounding does
TIME_UNIT = 100.0  # steps; keeps t³ on the scale of the other features


def discounted_returns(rewards: Tensor, discount: float) -> Tensor:
    """Σₖ γᵏ r(t + k) at every step: rewards [T, R, H], 0 after the end of an episode → [T, R, H]."""
    return _backwards(rewards, discount)


def generalised_advantages(rewards: Tensor, values: Tensor, mask: Tensor, discount: float, trace: float) -> Tensor:
    """GAE: Σₖ (γλ)ᵏ δ(t + k) with δ(t) = r(t) + γ V(t + 1) − V(t), all [T, R, H].

    values: V at every step; after the end of an episode, and after the last step, V counts as 0.
    """
    values = values.where(mask, 0)
    following = torch.cat([values[..., 1:], torch.zeros_like(values[..., :1])], -1)
    errors = (rewards + discount * following - values).where(mask, 0)
    return _backwards(errors, discount * trace)


def baseline_values(rollouts: Rollouts, returns: Tensor) -> Tensor:
    """A linear baseline, fitted to each task's own returns [T, R, H] by one batched solve: V of every step, [T, R, H].

    Features: the observation, its squares, t, t², t³ and 1, in float64; ridge regression on steps of running episodes.
    """
    features = _features(rollouts.observations)  # [T, R, H, F]
    x = features.where(rollouts.mask.unsqueeze(-1), 0).flatten(1, 2)  # [T, N, F]
    y = returns.to(x).where(rollouts.mask, 0).flatten(1).unsqueeze(-1)  # [T, N, 1]
    eye = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
    products = x.mT @ x + RIDGE * eye
    # Rescaling the features leaves the solution unchanged and keeps huge or repeated observations from making it
    # singular.
    size = products.diagonal(dim1=1, dim2=2).sqrt().unsqueeze(-1)  # [T, F, 1]
    weights = torch.linalg.solve(products / size / size.mT + ROUNDING * eye, x.mT @ y / size) / size  # [T, F, 1]
    return (features.flatten(1, 2) @ weights).view(returns.shape).to(returns)


def advantages(rollouts: Rollouts, discount: float = 0.95, trace: float = 1.0) -> Tensor:
    """GAE over the refitted baseline, with mean 0 and standard deviation 1 over the steps of each task: [T, R, H].

    0 after the end of an episode. A task in which all steps have the same advantage gets zeros.
    """
    rewards = rollouts.rewards.where(rollouts.mask, 0)
    values = baseline_values(rollouts, discounted_returns(rewards, discount))
    advantages = generalised_advantages(rewards, values, rollouts.mask, discount, trace)
    count = rollouts.mask.sum((1, 2), keepdim=True).clamp(min=1)
    centred = (advantages - advantages.sum((1, 2), keepdim=True) / count).where(rollouts.mask, 0)
    std = (centred.square().sum((1, 2), keepdim=True) / count).sqrt()
    return centred / std.clamp(min=1e-8)


def _features(observations: Tensor) -> Tensor:
    """[T, R, H, observations] → [T, R, H, 2·observations + 4], float64"""
    x = observations.double()
    time = torch.arange(x.shape[2], dtype=x.dtype, device=x.device) / TIME_UNIT
    clock = torch.stack([time, time**2, time**3, torch.ones_like(time)], -1).expand(*x.shape[:3], 4)
    return torch.cat([x, x.square(), clock], -1)


def _backwards(values: Tensor, factor: float) -> Tensor:
    """Σₖ factorᵏ values(t + k) along the last axis."""
    total, sums = torch.zeros_like(values[..., 0]), torch.empty_like(values)
    for step in reversed(range(values.shape[-1])):
        total = values[..., step] + factor * total
        sums[..., step] = total
    return sums
