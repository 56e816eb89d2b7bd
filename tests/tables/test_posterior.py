"""The default learner of tables: a mixed model with a network beside it, adapted by its posterior."""

import numpy as np
import pytest
import torch

import cavia
from cavia.tables.mixed import fit_mixed
from cavia.tables.network import EffectsNet
from cavia.tables.posterior import Posterior
from cavia.tables.rivals import training_rows
from cavia.tables.starting import simplest, start_at_mixed


def learner_of(loss="mse", outputs=1, effects=3):
    torch.manual_seed(0)
    network = EffectsNet(2, outputs, (8,), effects)
    torch.nn.init.normal_(network.line.weight)
    torch.nn.init.normal_(network.last.weight)
    return Posterior(network, loss, noise=0.3, inner_steps=1 if loss == "mse" else 20)


def groups_of(tasks=40, rows=12, noise=0.1, seed=0):
    """Every group has an intercept and a slope of its own, with variances 4 and 1."""
    numbers = np.random.default_rng(seed)
    x = numbers.normal(size=(tasks, rows))
    own = numbers.normal(size=(tasks, 2)) * [2, 1]
    y = 1 + own[:, :1] + (0.5 + own[:, 1:]) * x + noise * numbers.normal(size=x.shape)
    return {"user": np.repeat(np.arange(tasks), rows), "x": x.ravel(), "y": y.ravel()}


def test_one_step_is_ridge_regression_on_the_effects():
    learner, generator = learner_of(), torch.Generator().manual_seed(1)
    x, y = (torch.randn(4, 6, width, generator=generator) for width in (2, 1))
    contexts = learner.adapt(x, y).context[:, :3]
    with torch.no_grad():
        basis = learner.model.stem(x)[:, :, 0].double().numpy()
    for task in range(4):
        J, left = basis[task, :, 1:], y[task, :, 0].numpy() - basis[task, :, 0]
        wanted = np.linalg.solve(J.T @ J + 0.3**2 * np.eye(3), J.T @ left)
        np.testing.assert_allclose(contexts[task].numpy(), wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("outputs", [1, 2])
def test_rows_may_come_one_after_the_other(outputs):
    learner, generator = learner_of(outputs=outputs), torch.Generator().manual_seed(1)
    x, y = (torch.randn(4, 6, width, generator=generator) for width in (2, outputs))
    first = learner.adapt(x[:, :2], y[:, :2])
    both = learner.adapt(x[:, 2:], y[:, 2:], start=first)
    assert torch.allclose(both.context, learner.adapt(x, y).context, rtol=1e-4, atol=1e-6)


def test_padding_and_no_steps_change_nothing():
    learner, generator = learner_of(), torch.Generator().manual_seed(1)
    x, y = (torch.randn(3, 6, width, generator=generator) for width in (2, 1))
    mask = torch.arange(6) < torch.tensor([[4]] * 3)
    assert torch.allclose(learner.adapt(x, y, mask).context, learner.adapt(x[:, :4], y[:, :4]).context)
    assert not learner.adapt(x, y, steps=0).context.any()


def test_for_classes_it_ends_at_the_mode_of_the_posterior():
    learner, generator = learner_of("cross_entropy", outputs=3), torch.Generator().manual_seed(1)
    x, y = torch.randn(4, 9, 2, generator=generator), torch.randint(3, (4, 9), generator=generator)
    effects = learner.adapt(x, y).context[:, :3].clone().requires_grad_()
    rest = torch.zeros(4, learner.model.context - 3)
    outputs = learner.model(x, torch.cat([effects, rest], 1))
    loss = torch.nn.functional.cross_entropy(outputs.flatten(0, 1), y.flatten(), reduction="sum")
    (gradient,) = torch.autograd.grad(loss + effects.square().sum() / 2, effects)
    assert gradient.abs().max() < 1e-4


def test_deviation_falls_with_known_rows_and_rises_away_from_them():
    learner, generator = learner_of(), torch.Generator().manual_seed(1)
    x, y = (torch.randn(2, 8, width, generator=generator) for width in (2, 1))
    few, many = learner.adapt(x[:, :1], y[:, :1]), learner.adapt(x, y)
    near, far = x[:, :1], 10 * x[:, :1]
    assert (learner.deviation(near, many) < learner.deviation(near, few)).all()
    assert (learner.deviation(far, many) > learner.deviation(near, many)).all()


def test_expectation_maximisation_finds_the_variances():
    family = cavia.Tasks.from_table(groups_of(tasks=300), "user", "y", splits=(1.0, 0.0, 0.0))
    mixed = fit_mixed(*_one_target(family))
    unit = family.encoding.target.scale
    np.testing.assert_allclose(np.diag(mixed.spread) * unit**2, [4, 1], rtol=0.25)
    assert mixed.noise * unit**2 == pytest.approx(0.01, rel=0.1)


def test_training_starts_at_the_mixed_model():
    family = cavia.Tasks.from_table(groups_of(), "user", "y", splits=(0.6, 0.2, 0.2), support=4)
    learner = Posterior(EffectsNet(1, 1, (8,), 4))
    start_at_mixed(learner, family)
    model = fit_mixed(*_one_target(family))
    batch = family.sample(5, 4, 6, torch.Generator().manual_seed(0), "test")
    ours = learner.predict(batch.query_x, learner.adapt(batch.support_x, batch.support_y))[..., 0]
    for task in range(5):
        known = batch.support_x[task].double().numpy(), batch.support_y[task, :, 0].double().numpy()
        theirs = model.predict(batch.query_x[task].double().numpy(), *known)
        np.testing.assert_allclose(ours[task].numpy(), theirs, atol=5e-3)


def test_of_models_that_tasks_cannot_tell_apart_the_simplest_is_taken():
    numbers = torch.randn(50, generator=torch.Generator().manual_seed(0))
    assert simplest([numbers + 1, numbers + 0.001 * numbers.flip(0), numbers]) == 1
    assert simplest([numbers + 1, numbers + 0.5, numbers]) == 2
    assert simplest([torch.tensor([1.0]), torch.tensor([0.5])]) == 1


def _one_target(family):
    x, y, starts = training_rows(family)
    return x, y[:, 0], starts


@pytest.mark.parametrize(
    "columns",
    [
        {"x": [1.0] * 12, "y": [2.0] * 12},
        {"x": [0.0, 1e8] * 6, "y": [1e-9, 1e9] * 6},
        {"x": np.arange(12.0), "z": 2 * np.arange(12.0), "y": 3 * np.arange(12.0)},
        {"x": ["a", "b", "c"] * 4, "y": [0.0, 0.0, 1.0] * 4},
    ],
)
def test_a_degenerate_table_has_a_start_too(columns):
    table = {"user": [1, 1, 2, 2, 3, 3] * 2, **columns}
    family = cavia.Tasks.from_table(table, "user", "y", problem="regression", splits=(1.0, 0.0, 0.0))
    learner = Posterior(EffectsNet(family.encoding.width, 1, (4,), 2))
    start_at_mixed(learner, family)
    assert learner.adapt(family.x[None], family.y[None]).finite.all()
