"""Inner optimisers against PyTorch's own, least squares, and finite differences."""

import pytest
import torch

import cavia
from cavia.learners.optimisers import OPTIMISERS


def make(optimiser, steps=3, lr=0.1, hidden=(7,), loss="mse", **model):
    torch.manual_seed(0)
    network = cavia.MLP(1, 1, hidden, **{"context": 3} | model)
    learner = cavia.CAVIA(network, loss, lr, steps, optimiser=optimiser).double()
    batch = cavia.Sine().sample(3, 6, 5, torch.Generator().manual_seed(1))
    return learner, cavia.TaskBatch(*(getattr(batch, f"{a}_{b}").double() for a in ("support", "query") for b in "xy"))


@pytest.mark.parametrize(
    ("name", "make_theirs"),
    [
        ("momentum", lambda context: torch.optim.SGD([context], 0.1, momentum=0.9)),
        ("adam", lambda context: torch.optim.Adam([context], 0.1)),
    ],
)
def test_contexts_move_as_by_pytorchs_optimiser(name, make_theirs):
    learner, batch = make(name, steps=5)
    contexts = learner.adapt(batch.support_x, batch.support_y).context
    for task in range(3):
        context = torch.zeros(1, 3, dtype=torch.float64, requires_grad=True)
        theirs = make_theirs(context)
        for _ in range(5):
            theirs.zero_grad()
            x, y = batch.support_x[task : task + 1], batch.support_y[task : task + 1]
            (learner.model(x, context) - y).square().mean().backward(inputs=[context])
            theirs.step()
        torch.testing.assert_close(contexts[task], context[0].detach(), rtol=1e-6, atol=1e-9)


def test_gauss_newton_goes_to_the_least_squares_in_one_step_if_the_rate_is_large():
    learner, batch = make("gauss_newton", steps=1, lr=1e7, hidden=(6,), at=1)  # linear in φ
    contexts = learner.adapt(batch.support_x, batch.support_y).context
    weight = learner.model.layers[1].weight[:, -3:].detach()  # [1, C]: all points see the same function of φ
    rest = batch.support_y - learner.predict(batch.support_x, learner.start(3))
    expected = (torch.linalg.pinv(weight) @ rest.mean(1).unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(contexts, expected, rtol=1e-4, atol=1e-4)


def test_gauss_newton_is_the_gradient_step_if_the_rate_is_small():
    steps = {}
    for name in ("gradient", "gauss_newton"):
        learner, batch = make(name, steps=1, lr=1e-7)
        steps[name] = learner.adapt(batch.support_x, batch.support_y).context
    torch.testing.assert_close(steps["gauss_newton"], steps["gradient"], rtol=1e-5, atol=0)


def test_gauss_newton_leaves_padding_out():
    learner, batch = make("gauss_newton")
    mask = torch.arange(6).expand(3, 6) < torch.tensor([[6], [4], [2]])
    contexts = learner.adapt(batch.support_x, batch.support_y, mask).context
    for task, points in enumerate((6, 4, 2)):
        alone = learner.adapt(batch.support_x[task : task + 1, :points], batch.support_y[task : task + 1, :points])
        torch.testing.assert_close(contexts[task], alone.context[0])


@pytest.mark.parametrize("name", OPTIMISERS)
def test_the_outer_gradient_is_that_of_finite_differences(name):
    learner, batch = make(name, steps=2)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.mul_(1.5)
    parameters = list(learner.parameters())
    gradients = torch.autograd.grad(learner(batch).mean(), parameters)
    for parameter, slope in zip(parameters, gradients, strict=True):
        direction = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        ends = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.add_(sign * 1e-6 * direction)
                ends.append(learner(batch).mean())
                parameter.add_(-sign * 1e-6 * direction)
        torch.testing.assert_close((slope * direction).sum(), (ends[0] - ends[1]) / 2e-6, rtol=1e-4, atol=1e-6)


def test_what_is_remembered_goes_on_or_begins_anew():
    learner, batch = make("adam")
    adapted = learner.adapt(batch.support_x, batch.support_y, steps=2)
    assert adapted["memory.count"].tolist() == [2.0] * 3
    bare = cavia.Adapted({"context": adapted.context})  # as from a store
    assert learner.adapt(batch.support_x, batch.support_y, steps=1, start=bare)["memory.count"].tolist() == [1.0] * 3
    torch.testing.assert_close(learner.predict(batch.query_x, bare), learner.predict(batch.query_x, adapted))


def test_files_name_the_optimiser_where_it_is_not_the_papers(tmp_path):
    assert "optimiser" not in make("gradient")[0].arguments
    learner, _ = make("adam")
    learner.save(tmp_path / "adam.cavia")
    assert cavia.load(tmp_path / "adam.cavia").optimiser == "adam"


def test_misuse_is_named():
    with pytest.raises(cavia.CaviaError, match="unknown optimiser 'adm'; did you mean 'adam'"):
        make("adm")
    with pytest.raises(cavia.CaviaError, match='loss must be "mse", got'):
        make("gauss_newton", loss="cross_entropy")
    learner, batch = make("gauss_newton")
    with pytest.raises(cavia.CaviaError, match=r"targets y must be \[3, 6, 1\] like the predictions, got \[3, 6, 2\]"):
        learner.adapt(batch.support_x, batch.support_y.repeat(1, 1, 2))


@pytest.mark.slow
def test_gauss_newton_stays_where_it_is_after_a_hundred_steps():
    torch.manual_seed(0)
    learner = cavia.CAVIA(cavia.MLP(1, 1, context=5), "mse", 1.0, 2, optimiser="gauss_newton")
    cavia.fit(learner, cavia.Sine(), 300, tasks_per_batch=10, progress=False, validation=cavia.Validation(0))
    mean = cavia.evaluate(learner, cavia.Sine(), tasks=100, steps=100).mean
    assert mean[100] < 1.1 * mean[2] < 0.8 * mean[0]
