"""A batch that is not finite changes nothing, and the message says what is to blame."""

import pytest
import torch

import cavia
from cavia.training.several import Loop
from cavia.training.step import MetaStep
from tests.training.runs import assert_same, weights


class Broken(cavia.Sine):
    """One number of one batch is wrong."""

    def __init__(self, at=30, name="support_y", value=float("nan")):
        super().__init__()
        object.__setattr__(self, "wrong", [at, name, value])

    def sample(self, *arguments, **named):
        batch = super().sample(*arguments, **named)
        if arguments[-1] != "val":
            self.wrong[0] -= 1
            if self.wrong[0] == 0:
                getattr(batch, self.wrong[1])[2, 3] = self.wrong[2]
        return batch


def learner(**arguments):
    torch.manual_seed(0)
    return cavia.CAVIA(cavia.MLP(1, 1, hidden=(8,), context=2), "mse", **arguments)


@pytest.mark.parametrize("name", ["support_x", "support_y", "query_x", "query_y"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_the_learner_keeps_its_weights_and_the_number_is_named(name, value):
    trained, expected = learner(), learner()
    cavia.fit(expected, Broken(at=10**9), 29, validation=cavia.Validation(tasks=0), progress=False)
    with pytest.raises(cavia.Diverged, match=rf"at iteration 30; {name} of task 2, point 3 of the batch is {value}"):
        cavia.fit(trained, Broken(30, name, value), 60, validation=cavia.Validation(tasks=0), progress=False)
    assert_same(weights(trained), weights(expected))


def test_rates_are_to_blame_where_the_data_are_fine():
    trained = learner(inner_lr=1e30)
    with pytest.raises(cavia.Diverged, match="try a smaller inner_lr or lr"):
        cavia.fit(trained, cavia.Sine(), 5, validation=cavia.Validation(tasks=0), progress=False)
    assert all(value.isfinite().all() for value in trained.parameters())


@pytest.mark.parametrize(("name", "value"), [("query_y", 1e30), ("support_x", -1e37)])
def test_finite_data_that_overflow_are_to_blame(name, value):
    trained = learner()
    message = rf"{name} of task 2, point 3 of the batch is {value:g}".replace("+", r"\+") + ", too large"
    with pytest.raises(cavia.Diverged, match=message):
        cavia.fit(trained, Broken(3, name, value), 5, validation=cavia.Validation(tasks=0), progress=False)
    assert all(parameter.isfinite().all() for parameter in trained.parameters())


@pytest.mark.parametrize("chunk", [None, 2])
def test_a_gradient_that_is_not_finite_ends_the_run_though_the_loss_is(chunk):
    class Zero(cavia.Sine):
        def sample(self, *arguments, **named):
            batch = super().sample(*arguments, **named)
            return cavia.TaskBatch(batch.support_x, 0 * batch.support_y, batch.query_x, 0 * batch.query_y)

    trained = cavia.CAVIA(cavia.MLP(1, 1, hidden=(8,), context=2), lambda p, t: (p - t).abs().sqrt().sum(-1))
    with torch.no_grad():
        for value in trained.parameters():
            value.zero_()  # predicts 0, where the root has no gradient
    with pytest.raises(cavia.Diverged, match="the loss or its gradient is nan at iteration 1; try a smaller"):
        cavia.fit(
            trained,
            Zero(),
            5,
            tasks_per_batch=4,
            outer=cavia.Adam(chunk=chunk),
            validation=cavia.Validation(tasks=0),
            progress=False,
        )
    assert all(not value.any() for value in trained.parameters())


def test_weights_that_were_lost_before_are_named():
    trained = learner()
    with torch.no_grad():
        trained.model.layers[0].bias[0] = torch.nan
    with pytest.raises(cavia.Diverged, match=r"model\.layers\.0\.bias of the learner was not finite before"):
        cavia.fit(trained, cavia.Sine(), 2, progress=False)
    with torch.inference_mode():
        frozen = learner()
    with pytest.raises(cavia.CaviaError, match="the learner was made in torch"):
        cavia.fit(frozen, cavia.Sine(), 2, progress=False)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda batch: (batch.support_x, batch.support_y), "Own.sample must return a cavia.TaskBatch, got"),
        (lambda batch: None, "Own.sample must return a cavia.TaskBatch, got None"),
        (lambda batch: batch.part(0, 3), "Own.sample must return the 5 tasks that it was asked for, got 3"),
    ],
)
def test_what_a_family_returns_is_checked(change, message):
    class Own(cavia.Sine):
        def sample(self, *arguments, **named):
            return change(super().sample(*arguments, **named))

    with pytest.raises(cavia.CaviaError, match=message):
        cavia.fit(learner(), Own(), 2, tasks_per_batch=5, progress=False)
    with pytest.raises(cavia.CaviaError, match=message):
        cavia.evaluate(learner(), Own(), tasks=5)


def test_a_wrong_number_in_a_scored_task_is_named():
    class Gap(cavia.Sine):
        def sample(self, *arguments, **named):
            batch = super().sample(*arguments, **named)
            if arguments[-1] != "train" and len(arguments) == 5:
                batch.query_y[2, 3] = torch.nan
            return batch

    trained = learner()
    message = "the tasks cannot be scored: query_y of task 2, point 3 of the batch is nan: fix the data"
    with pytest.raises(cavia.CaviaError, match=message):
        cavia.evaluate(trained, Gap(), tasks=5)
    with pytest.raises(cavia.CaviaError, match=message):
        cavia.fit(trained, Gap(), 5, validation=cavia.Validation(tasks=5, every=2), progress=False)
    assert all(value.isfinite().all() for value in trained.parameters())


@pytest.mark.parametrize("chunk", [None, 2])
def test_a_step_that_is_not_finite_changes_nothing(chunk):
    step = MetaStep(learner(), lr=0.01, chunk=chunk)
    batch = cavia.Sine().sample(4, 5, 5, torch.Generator().manual_seed(0))
    step(batch)
    before = [value.clone() for value in step.tensors()]
    batch.query_y[3, 0] = torch.nan
    assert not step(batch).isfinite()
    assert all(torch.equal(one, other) for one, other in zip(step.tensors(), before, strict=True))
    batch.query_y[3, 0] = 0.0
    assert step(batch).isfinite()


def test_a_step_that_is_not_finite_is_not_counted():
    trained = cavia.MAMLPlusPlus(cavia.MLP(1, 1, hidden=(8,)), "mse", inner_lr=0.01)
    step = MetaStep(trained, lr=0.01)
    batch = cavia.Sine().sample(4, 5, 5, torch.Generator().manual_seed(0))
    step(batch)
    batch.query_y[3, 0] = torch.nan
    step(batch)
    assert trained.outer_steps == 1


@pytest.mark.slow
def test_a_step_of_a_loop_that_is_not_finite_changes_nothing(compiler):
    step = MetaStep(learner(), lr=0.01, compiled=True)
    batch = cavia.Sine().sample(8, 5, 5, torch.Generator().manual_seed(0))
    batch.support_y[5, 0] = torch.nan  # of the second batch
    losses = Loop(step, 2)(batch, 0, [0.01, 0.01])
    assert losses.isfinite().tolist() == [True, False]
    alone = MetaStep(learner(), lr=0.01)
    alone(batch.part(0, 4))
    for one, other in zip(step.parameters.values(), alone.parameters.values(), strict=True):
        torch.testing.assert_close(one, other)


def test_weights_without_numbers_are_refused(tmp_path):
    with torch.device("meta"):
        empty = cavia.CAVIA(cavia.MLP(1, 1, hidden=(8,), context=2), "mse")
    with pytest.raises(cavia.CaviaError, match="the learner is on the device 'meta'"):
        cavia.fit(empty, cavia.Sine(), 2, progress=False)
    with pytest.raises(cavia.CaviaError, match="is on the device 'meta', where it has no numbers to write"):
        empty.save(tmp_path / "empty.cavia")
    assert not list(tmp_path.iterdir())
