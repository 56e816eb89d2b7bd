"""MAML++ against plain autograd, one task at a time."""

import pytest
import torch

import cavia
from cavia.training.step import MetaStep
from tests.reference import mlp


def make(steps=3, anneal=10):
    torch.manual_seed(0)
    learner = cavia.MAMLPlusPlus(cavia.MLP(1, 1, (7, 5), 2), "mse", 0.05, steps, anneal=anneal).double()
    batch = cavia.Sine().sample(4, 6, 5, torch.Generator().manual_seed(1))
    return learner, cavia.TaskBatch(*(getattr(batch, f"{a}_{b}").double() for a in ("support", "query") for b in "xy"))


def written_out(learner, batch, weights):
    """The mean over tasks of Σᵢ vᵢ L(θᵢ), with a rate for each tensor and step."""
    start = dict(learner.model.named_parameters()) | {"context": learner.initial_context}
    total = 0.0
    for task in batch.split(1):
        fast = start
        for step in range(learner.inner_steps):
            values = list(fast.values())
            loss = (mlp(task.support_x[0], fast["context"], without_context(fast)) - task.support_y[0]).square().mean()
            slopes = torch.autograd.grad(loss, values, create_graph=True)
            rates = [learner.rates_of_steps[name.replace(".", "-")][step] for name in fast]
            fast = {n: v - rate * g for n, v, rate, g in zip(fast, values, rates, slopes, strict=True)}
            error = mlp(task.query_x[0], fast["context"], without_context(fast)) - task.query_y[0]
            total = total + weights[step] * error.square().mean() / len(batch)
    return total


def without_context(fast):
    return {name: value for name, value in fast.items() if name != "context"}


@pytest.mark.parametrize(
    ("taken", "weights"), [(0, [1 / 3, 1 / 3, 1 / 3]), (5, [1 / 6, 1 / 6, 2 / 3]), (10, [0.0, 0.0, 1.0])]
)
def test_loss_and_gradients_are_those_of_autograd(taken, weights):
    learner, batch = make()
    with torch.no_grad():
        learner.outer_steps.fill_(taken)
        for rates in learner.rates_of_steps.values():
            rates.mul_(torch.tensor([1.0, 0.5, 1.5]))
    torch.testing.assert_close(learner.weights_of_steps().tolist(), weights)
    expected = written_out(learner, batch, weights)
    wanted = torch.autograd.grad(expected, list(learner.parameters()))
    loss = learner(batch).mean()
    gradients = torch.autograd.grad(loss, list(learner.parameters()))
    torch.testing.assert_close(loss, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(gradients, wanted, rtol=1e-8, atol=1e-10)


def test_without_annealing_the_last_step_counts():
    learner, batch = make(anneal=0)
    torch.testing.assert_close(learner(batch), learner.task_losses(batch))


def test_steps_beyond_training_take_the_last_rate():
    learner, batch = make(steps=2)
    with torch.no_grad():
        for rates in learner.rates_of_steps.values():
            rates.copy_(torch.tensor([0.0, 0.05]))
    plain = cavia.MAML(learner.model, "mse", 0.05).double()
    plain.load_state_dict({n: v for n, v in learner.state_dict().items() if n in plain.state_dict()})
    adapted = learner.adapt(batch.support_x, batch.support_y, steps=4)
    expected = plain.adapt(batch.support_x, batch.support_y, steps=3)
    assert adapted["memory.steps"].tolist() == [4.0] * 4
    for name in expected.names:
        torch.testing.assert_close(adapted[name], expected[name])


def test_a_task_without_memory_begins_at_the_first_step():
    learner, batch = make()
    adapted = learner.adapt(batch.support_x, batch.support_y, steps=1)
    bare = cavia.Adapted({name: value for name, value in adapted.items() if not name.startswith("memory.")})
    again = learner.adapt(batch.support_x, batch.support_y, steps=1, start=bare)
    assert again["memory.steps"].tolist() == [1.0] * 4
    wrong = cavia.Adapted({**bare.parameters, "memory.steps": torch.zeros(4, 2)})
    with pytest.raises(cavia.CaviaError, match=r"remembers memory\.steps \[4\]; it was given memory\.steps \[4, 2\]"):
        learner.adapt(batch.support_x, batch.support_y, steps=1, start=wrong)


@pytest.mark.slow
def test_fit_counts_steps_and_a_run_goes_on_to_the_bit(tmp_path):
    finished = []
    for name, lengths in (("whole", (4,)), ("parts", (2, 4))):
        for length in lengths:
            torch.manual_seed(0)
            learner = cavia.MAMLPlusPlus(cavia.MLP(1, 1, (7,), 0), "mse", 0.05, 2, anneal=6)
            cavia.fit(learner, cavia.Sine(), length, tasks_per_batch=2, run_dir=tmp_path / name, progress=False,
                      validation=cavia.Validation(0))  # fmt: skip
        finished.append(learner.state_dict())
    assert finished[0]["outer_steps"] == 4
    assert all(torch.equal(value, finished[1][name]) for name, value in finished[0].items())


@pytest.mark.check
def test_compiled_steps_are_those_as_it_is():
    ends = []
    for compiled in (False, True):
        learner, batch = make(steps=2, anneal=2)
        step = MetaStep(learner, 1e-2, compiled=compiled)
        for _ in range(3):
            step(batch)
        ends.append(learner.state_dict())
    assert ends[0]["outer_steps"] == 3
    torch.testing.assert_close(ends[1], ends[0], rtol=1e-8, atol=1e-10)
