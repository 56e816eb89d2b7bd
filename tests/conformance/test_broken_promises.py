"""Whoever breaks a promise is told which."""

import pytest
import torch

import cavia
from cavia.conformance.promise import Broken
from cavia.envs import Navigation
from cavia.envs.base import Step
from tests.conformance.cases import mlp, sines


class Leaking(cavia.CAVIA):
    """The mean over tasks reaches each of them."""

    def infer(self, x, y, mask, steps, start):
        return super().infer(x, y, mask, steps, start).map(lambda value: value - value.mean(0))


class Remembering(cavia.CAVIA):
    def respond(self, x, adapted):
        with torch.no_grad():
            next(iter(self.parameters())).mul_(1.001)
        return super().respond(x, adapted)


class Looking(cavia.CAVIA):
    """Looks at padding."""

    def infer(self, x, y, mask, steps, start):
        return super().infer(x, y.nan_to_num(1.0), None, steps, start)


class Starting(cavia.CAVIA):
    """Begins anew at every call."""

    def infer(self, x, y, mask, steps, start):
        return super().infer(x, y, mask, steps, None)


class Unsaid(cavia.CAVIA):
    def __init__(self, model, loss, extra=1):
        super().__init__(model, loss)


class Detached(cavia.CAVIA):
    def task_losses(self, batch):
        return super().task_losses(batch).detach()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Leaking, "a task among others adapts and predicts as it does alone"),
        (Remembering, "the same points give the same prediction|no weight or buffer|as it does alone"),
        (Looking, "points that the mask leaves out do not count"),
        (Starting, "end where steps at once do|leave what was given"),
        (Unsaid, "must have its constructor's argument 'extra' as an attribute"),
        (Detached, "does not require grad|depends on what is trained"),
    ],
)
def test_a_learner_that_breaks_a_promise_is_told_which(kind, message):
    torch.manual_seed(0)
    with pytest.raises((cavia.CaviaError, RuntimeError), match=message):
        cavia.check_learner(kind(mlp(), "mse", **({} if kind is Unsaid else {"inner_steps": 2})), sines())


class Mixing(cavia.MLP):
    def head(self, h, context):
        return super().head(h, context) + h.mean()


class Deaf(cavia.MLP):
    def head(self, h, context):
        return super().head(h, torch.zeros_like(context))


class Flat(cavia.MLP):
    def head(self, h, context):
        return super().head(h, context).flatten()


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Mixing, "depends on that task alone"),
        (Deaf, "the context changes the prediction"),
        (Flat, r"predictions are \[T, N, ...\]"),
    ],
)
def test_a_network_that_breaks_a_promise_is_told_which(kind, message):
    with pytest.raises(Broken, match=message):
        cavia.check_model(kind(1, 1, (8,), 3), torch.rand(3, 4, 1))


class Careless(cavia.Sine):
    """Draws from PyTorch's own generator."""

    def sample(self, tasks, support, query, generator, split="train"):
        return super().sample(tasks, support, query, torch.Generator().manual_seed(int(torch.randint(9, ()))), split)


class Stubborn(cavia.Sine):
    def sample(self, tasks, support, query, generator, split="train"):
        return super().sample(tasks, support, query, torch.Generator().manual_seed(0), split)


class Short(cavia.Sine):
    def sample(self, tasks, support, query, generator, split="train"):
        return super().sample(tasks, support - 1, query, generator, split)


@pytest.mark.parametrize(
    ("kind", "message"),
    [(Careless, "not from PyTorch's own"), (Stubborn, "gives other tasks"), (Short, "10 support points")],
)
def test_a_family_that_breaks_a_promise_is_told_which(kind, message):
    with pytest.raises(Broken, match=message):
        cavia.check_tasks(kind())


class Forgetting(Navigation):
    def _load_state(self, state):
        super()._load_state(state)
        self._position = self._position + 1


class Endless(Navigation):
    def _advance(self, action):
        step = super()._advance(action)
        return Step(step.observation, torch.full_like(step.reward, torch.nan), step.done)


@pytest.mark.parametrize(("kind", "message"), [(Forgetting, "load_state resumes"), (Endless, "rewards are finite")])
def test_an_environment_that_breaks_a_promise_is_told_which(kind, message):
    with pytest.raises(Broken, match=message):
        cavia.check_env(kind(horizon=4))
