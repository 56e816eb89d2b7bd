"""The conditional neural process: the same calls as every learner, and what sets it apart."""

import pytest
import torch

import cavia
from cavia.training.step import MetaStep


def make(dtype=torch.float64):
    torch.manual_seed(0)
    learner = cavia.CNP(cavia.MLP(2, 3, hidden=(16, 16), context=6), "mse", inputs=2, outputs=3, encoder=(12, 10))
    x, y = torch.rand(4, 7, 2), torch.rand(4, 7, 3)
    return learner.to(dtype), x.to(dtype), y.to(dtype)


def test_no_step_gives_zeros_and_any_more_the_embedding():
    learner, x, y = make()
    assert torch.equal(learner.adapt(x, y, steps=0)["context"], torch.zeros(4, 6, dtype=x.dtype))
    once = learner.adapt(x, y)["context"]
    assert once.shape == (4, 6)
    assert once.abs().min() > 0
    assert torch.equal(once, learner.adapt(x, y, steps=3)["context"])
    assert torch.equal(once, learner.adapt(x, y, steps=0, start=cavia.Adapted({"context": once}))["context"])
    assert learner.predict(x, cavia.Adapted({"context": once})).shape == (4, 7, 3)


def test_the_order_of_points_does_not_matter():
    learner, x, y = make()
    order = torch.randperm(7, generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(learner.adapt(x, y)["context"], learner.adapt(x[:, order], y[:, order])["context"])


def test_padding_does_not_matter():
    learner, x, y = make()
    mask = torch.arange(7).expand(4, 7) < torch.tensor([[7], [5], [1], [0]])
    padded = learner.adapt(x, y, mask)["context"]
    for i, count in enumerate((7, 5, 1)):
        alone = learner.adapt(x[i : i + 1, :count], y[i : i + 1, :count])["context"]
        torch.testing.assert_close(padded[i : i + 1], alone)
    assert padded[3].isfinite().all()


def test_a_batch_of_tasks_equals_one_task_at_a_time():
    learner, x, y = make()
    together = learner.predict(x, learner.adapt(x, y))
    for i in range(4):
        one = slice(i, i + 1)
        torch.testing.assert_close(together[one], learner.predict(x[one], learner.adapt(x[one], y[one])))


def test_save_and_load(tmp_path):
    learner, x, y = make(torch.float32)
    learner.save(tmp_path / "model.cavia")
    loaded = cavia.load(tmp_path / "model.cavia")
    assert isinstance(loaded, cavia.CNP)
    assert loaded.arguments == learner.arguments
    torch.testing.assert_close(loaded.predict(x, loaded.adapt(x, y)), learner.predict(x, learner.adapt(x, y)))


def test_training_lowers_the_loss_and_trains_encoder_and_decoder():
    torch.manual_seed(0)
    learner = cavia.CNP(cavia.MLP(1, 1, hidden=(32, 32), context=8), "mse", inputs=1, outputs=1, encoder=(32, 32))
    before = {name: value.clone() for name, value in learner.state_dict().items()}
    start = cavia.evaluate(learner, cavia.Sine(), tasks=50).mean
    cavia.fit(learner, cavia.Sine(), iterations=200, progress=False, validation=cavia.Validation(0, every=100))
    after = cavia.evaluate(learner, cavia.Sine(), tasks=50).mean
    assert after.shape == (2,)
    assert after[1] < 0.8 * start[1]
    assert all((value != before[name]).any() for name, value in learner.state_dict().items())


@pytest.mark.slow
def test_compiled_equals_eager():
    results = []
    for compiled in (False, True):
        learner, x, y = make(torch.float32)
        step = MetaStep(learner, lr=0.001, clip=10.0, compiled=compiled)
        losses = [step(cavia.TaskBatch(x, y, x, y)) for _ in range(5)]
        results.append((torch.stack(losses), [p.detach().clone() for p in learner.parameters()]))
    torch.testing.assert_close(results[0], results[1], rtol=1e-4, atol=1e-5)


def test_wrong_shapes_are_named():
    learner, x, y = make()
    with pytest.raises(cavia.CaviaError, match=r"reads x \[T, K, 2\] and y \[T, K, 3\], got \[4, 7, 1\]"):
        learner.adapt(x[..., :1], y)
    with pytest.raises(cavia.CaviaError, match="for the 2 tasks of x"):
        learner.predict(x[:2], learner.adapt(x, y))
    with pytest.raises(cavia.CaviaError, match="context=0"):
        cavia.CNP(cavia.MLP(2, 3, context=0), "mse", inputs=2, outputs=3)
    with pytest.raises(cavia.CaviaError, match="encoder must be at least 1, got 0"):
        cavia.CNP(cavia.MLP(2, 3, context=4), "mse", inputs=2, outputs=3, encoder=(0,))
