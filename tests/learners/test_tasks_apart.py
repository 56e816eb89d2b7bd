"""One task's data reach that task alone, in every learner and network of ours."""

import pytest
import torch

import cavia
from cavia.tasks.points import each, lead
from tests.conformance.cases import LEARNERS, mlp, sines
from tests.graphs import as_traced

BAD = 1  # the task with the fault, of four
VALUES = [float("nan"), float("inf"), 1e30, -1e38]


def waves():
    return cavia.WaveBasis(1, 1, waves=4, context=5)


def grid():
    """All tasks have their points at the same places, as whole pictures do."""
    batch, x = sines(), torch.linspace(0, 1, 6).view(1, 6, 1).expand(3, 6, 1)
    return cavia.TaskBatch(x, batch.support_y, x[:, :5], batch.query_y)


EVERY = LEARNERS | {
    "CAVIA, waves": lambda: (cavia.CAVIA(waves(), "mse", inner_steps=2), sines()),
    "CAVIA, waves on a grid": lambda: (cavia.CAVIA(waves(), "mse"), grid()),
    "MAML, waves": lambda: (cavia.MAML(waves(), "mse"), sines()),
    "GaussNewton, waves": lambda: (cavia.GaussNewton(waves(), "mse", inner_steps=2), sines()),
    "CNP, waves": lambda: (cavia.CNP(waves(), "mse", inputs=1, outputs=1), sines()),
    "CAVIA, running norm": lambda: (
        cavia.CAVIA(cavia.ConvNet(3, 4, image=16, channels=1, context=4, norm="running"), "cross_entropy", 0.1),
        LEARNERS["CAVIA on pictures"]()[1],
    ),
}


def make(name):
    """The learner and support_x, support_y, query_x of four tasks."""
    torch.manual_seed(0)
    learner, batch = EVERY[name]()
    points = (batch.support_x, batch.support_y, batch.query_x)
    return learner.eval(), [each(doubled, value) for value in points]


def doubled(value):
    """[T, N, ...] → four tasks, some of them with their points in another order."""
    return torch.cat([value, value.flip(1)])[:4].clone()


def run(learner, support_x, support_y, query_x):
    adapted = learner.adapt(support_x, support_y)
    return adapted, learner.predict(query_x, adapted)


def assert_apart(actual, expected):
    (adapted, prediction), (whole, predicted) = actual, expected
    others = [0, 2, 3]
    for name in whole.names:
        torch.testing.assert_close(adapted[name][others], whole[name][others], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(prediction[others], predicted[others], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("place", [0, 1, 2], ids=["support_x", "support_y", "query_x"])
@pytest.mark.parametrize("name", EVERY)
def test_a_fault_in_one_task_reaches_no_other(name, place):
    learner, points = make(name)
    expected = run(learner, *points)
    if not lead(points[place]).is_floating_point():
        return  # labels are whole numbers
    if (name, place) == ("SampledCAVIA", 1):
        return  # it adapts by what was drawn and its credit, which stand in x
    for value in VALUES:
        faulty = [each(torch.clone, one) for one in points]
        lead(faulty[place])[BAD, 0] = value
        done = run(learner, *faulty)
        assert_apart(done, expected)
        if value != value and "own loss" not in name:  # what NaN counts is the own loss's business
            assert not done[1][BAD].isfinite().all(), "the fault shows in its own task"
            assert done[0].finite.tolist() == [True, place == 2, True, True] or "points" in done[0]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["CAVIA", "MAML", "GaussNewton", "CAVIA, waves", "ProtoNets", "CNP"])
def test_nor_in_compiled_graphs(name):
    learner, points = make(name)
    with as_traced():
        service = cavia.compiled(learner)
        expected = run(service, *points)
        for place in (0, 2):
            for value in VALUES:
                faulty = [one.clone() for one in points]
                faulty[place][BAD, 0] = value
                assert_apart(run(service, *faulty), expected)
        assert not service.has_warned


def test_a_poisoned_task_leaves_the_running_statistics_as_they_are_without_it():
    model = cavia.ConvNet(3, 4, image=16, channels=1, context=0, norm="running")
    x = torch.rand(3, 4, 1, 16, 16)
    before = model.running.clone()
    model.observe(x[[0, 2]], 3)
    expected = model.running.clone()
    model.running.copy_(before)
    x[1, 0] = torch.nan
    model.observe(x, 2)
    torch.testing.assert_close(model.running, expected)
    model.observe(x[1:2], 1)
    torch.testing.assert_close(model.running, expected)


def test_a_network_that_is_not_finite_is_not_the_tasks_fault():
    learner = cavia.GaussNewton(mlp(), "mse")
    batch = sines()
    x = batch.support_x.clone()
    x[0, 0] = torch.nan
    assert learner.adapt(x, batch.support_y).finite.tolist() == [False, True, True]
    with torch.no_grad():
        learner.model.layers[0].weight[0] = torch.nan
    with pytest.raises(cavia.Diverged, match="the network's weights are not finite"):
        learner.adapt(batch.support_x, batch.support_y)
