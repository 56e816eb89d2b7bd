"""Small policies, environments and training runs."""

import torch

import cavia
from cavia.envs.base import Step, TaskEnv
from tests.training.runs import fit


def make(method="CAVIA", env=None, hidden=(8,), **arguments):
    torch.manual_seed(0)
    env = env or cavia.envs.Navigation()
    kind = cavia.CategoricalPolicy if env.discrete else cavia.GaussianPolicy
    policy = kind(env.observations, env.actions, hidden, context=3 if method == "CAVIA" else 0)
    return getattr(cavia, method)(policy, policy.loss, **{"inner_lr": 0.1} | arguments)


def train(learner, iterations, run_dir=None, env=None, **changes):
    settings = {"every": 3, "tasks_per_batch": 4, "support": 3, "validation_tasks": 4, "progress": False}
    env = env or cavia.envs.Navigation(horizon=10)
    return fit(learner, env, iterations, run_dir, **settings | changes)


class Bandit(TaskEnv):
    """Three arms, five pulls; the task is which arm pays, and an episode ends when it is hit twice."""

    observations, actions, discrete = 1, 3, True

    def __init__(self, horizon=5):
        self.horizon = horizon

    def _draw(self, count, generator, split):
        return torch.arange(count) % 3

    def _start(self, tasks, rollouts, generator):
        self._arm, self._hits = tasks[:, None], torch.zeros(len(tasks), rollouts)
        return torch.zeros(len(tasks), rollouts, 1)

    def _advance(self, action):
        hit = (action == self._arm).float()
        self._hits = self._hits + hit
        return Step(torch.zeros(*action.shape, 1), hit, self._hits >= 2)

    def _state(self):
        return {"arm": self._arm, "hits": self._hits}

    def _load_state(self, state):
        self._arm, self._hits = state["arm"].clone(), state["hits"].clone()
