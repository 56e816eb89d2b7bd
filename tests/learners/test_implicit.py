"""The implicit gradient against finite differences of a minimum that was found to the end."""

import pytest
import torch

import cavia
from cavia.learners.implicit import conjugate_gradients


def sines(tasks=3):
    batch = cavia.Sine().sample(tasks, 6, 5, torch.Generator().manual_seed(1))
    return cavia.TaskBatch(*(getattr(batch, f"{a}_{b}").double() / 4 for a in ("support", "query") for b in "xy"))


@pytest.mark.parametrize(("hidden", "strength"), [((), 0.7), pytest.param((4,), 3.0, marks=pytest.mark.slow)])
def test_the_gradient_is_that_of_finite_differences(hidden, strength):
    torch.manual_seed(0)
    model, batch = cavia.MLP(1, 1, hidden, context=0).double(), sines()
    learner = cavia.ImplicitMAML(model, "mse", inner_lr=0.15, inner_steps=80, strength=strength, cg_steps=15)
    gradients = torch.cat([g.flatten() for g in torch.autograd.grad(learner(batch).mean(), list(learner.parameters()))])
    step, expected = 1e-5, []
    with torch.no_grad():
        for parameter in learner.parameters():
            for place in range(parameter.numel()):
                ends = []
                for sign in (1, -1, 0):
                    value = parameter.view(-1)[place].item()
                    parameter.view(-1)[place] = value + sign * step
                    ends.append(learner.task_losses(batch).mean() if sign else None)
                    parameter.view(-1)[place] = value
                expected.append((ends[0] - ends[1]) / (2 * step))
    torch.testing.assert_close(gradients, torch.stack(expected), rtol=1e-5, atol=1e-8)


def test_a_task_ends_at_the_minimum_of_loss_and_distance():
    torch.manual_seed(0)
    model, batch = cavia.MLP(1, 1, (), context=0).double(), sines()
    learner = cavia.ImplicitMAML(model, "mse", inner_lr=0.2, inner_steps=300, strength=0.5)
    adapted = learner.adapt(batch.support_x, batch.support_y)
    x = torch.cat([batch.support_x, torch.ones_like(batch.support_x)], -1)  # [T, K, 2]: weight and bias
    start = torch.cat([p.flatten() for p in model.parameters()]).detach()
    # 2/K Xᵀ(X φ − y) + λ(φ − θ) = 0
    matrix = 2 / 6 * x.mT @ x + 0.5 * torch.eye(2, dtype=torch.float64)
    expected = torch.linalg.solve(matrix, 2 / 6 * (x.mT @ batch.support_y).squeeze(-1) + 0.5 * start)
    actual = torch.cat([adapted["layers.0.weight"].flatten(1), adapted["layers.0.bias"]], 1)
    torch.testing.assert_close(actual, expected)


def test_conjugate_gradients_solve_each_task_and_stop_where_the_loss_bends_down():
    generator = torch.Generator().manual_seed(0)
    root = torch.randn(3, 4, 4, generator=generator, dtype=torch.float64)
    matrices = root @ root.mT + torch.eye(4)
    matrices[2] = -torch.eye(4)
    wanted = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    wanted[1] = 0
    solution = conjugate_gradients(lambda v: {"a": (matrices @ v["a"].unsqueeze(-1)).squeeze(-1)}, {"a": wanted}, 8)[
        "a"
    ]
    torch.testing.assert_close(solution[:2], torch.linalg.solve(matrices[:2], wanted[:2]))
    assert solution[2].eq(0).all()


@pytest.mark.parametrize(("name", "value"), [("strength", 0.0), ("cg_steps", 0), ("inner_lr", -1.0)])
def test_bad_arguments_are_named(name, value):
    with pytest.raises(cavia.CaviaError, match=f"{name} must be"):
        cavia.ImplicitMAML(cavia.MLP(1, 1), "mse", **{name: value})
