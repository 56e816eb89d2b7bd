"""The network of the few-shot experiments: its equation, and that no task sees another's statistics."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional

import cavia
from cavia.models.norm import TaskNorm
from cavia.training.step import MetaStep

NORMS = ["task", "support", "running"]


def make(norm="task", method=cavia.CAVIA, context=6, film=3, dtype=torch.float64, shrink="pool", **arguments):
    torch.manual_seed(0)
    model = cavia.ConvNet(3, 4, image=16, channels=2, context=context, film=film, norm=norm, shrink=shrink)
    generator = torch.Generator().manual_seed(1)
    points = {
        f"{name}_x": torch.rand(4, count, 2, 16, 16, generator=generator, dtype=dtype)
        for name, count in (("support", 3), ("query", 6))
    }
    labels = {f"{name}_y": torch.arange(count).expand(4, count) % 3 for name, count in (("support", 3), ("query", 6))}
    return method(model, "cross_entropy", **arguments).to(dtype), cavia.TaskBatch(**points, **labels)


def one_task(weights, x, context, film=(2,), statistics=None, seen=None, shrink="pool"):
    """The network on one task, from its equation: x [N, 2, 16, 16], context [C] → logits [N, 3].

    statistics: a (mean, variance) for each block; seen: a list that is given those of x.
    """
    for block in range(4):
        x = functional.conv2d(x, weights[f"convolutions.{block}.weight"], padding=1)
        x = x if shrink == "pool" else x[..., ::2, ::2]  # every other place is what a stride of 2 computes
        mean, variance = x.mean((0, 2, 3)), x.var((0, 2, 3), correction=0)
        if seen is not None:
            seen.append((mean, variance))
        if statistics is not None:
            mean, variance = statistics[block]
        x = (x - mean[:, None, None]) / (variance[:, None, None] + 1e-5).sqrt()
        x = x * weights[f"norms.{block}.weight"][:, None, None] + weights[f"norms.{block}.bias"][:, None, None]
        x = functional.max_pool2d(x, 2) if shrink == "pool" else x
        if block in film:
            both = weights[f"films.{block}.to_film.weight"] @ context + weights[f"films.{block}.to_film.bias"]
            scale, shift = both.chunk(2)
            x = x * scale[:, None, None] + shift[:, None, None]
        x = x.relu()
    return x.flatten(1) @ weights["linear.weight"].T + weights["linear.bias"]


@pytest.mark.parametrize("shrink", ["pool", "stride"])
@pytest.mark.parametrize(("film", "blocks"), [(3, (2,)), (1, (0,)), ((2, 4), (1, 3))])
def test_the_network_is_its_equation_on_every_task(film, blocks, shrink):
    learner, batch = make(film=film, shrink=shrink)
    context = torch.randn(4, 6, dtype=torch.float64)
    weights = dict(learner.model.named_parameters())
    expected = [one_task(weights, x, c, blocks, shrink=shrink) for x, c in zip(batch.query_x, context, strict=True)]
    torch.testing.assert_close(learner.model(batch.query_x, context), torch.stack(expected))


@pytest.mark.parametrize("first_order", [False, True])
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("chunk", [None, 1, 3])
def test_logits_and_meta_gradient_equal_those_of_one_task_at_a_time(norm, first_order, chunk):
    rate, steps = 0.5, 2
    learner, batch = make(norm, inner_lr=rate, inner_steps=steps, first_order=first_order)
    step = MetaStep(learner, 1e-3, chunk=chunk)
    gradient = torch.zeros_like(step.first_moment)
    for part in batch.split(chunk or 4):
        gradient += step.gradient(part)[0] * len(part) / 4
    logits = learner.predict(batch.query_x, learner.adapt(batch.support_x, batch.support_y))

    weights = {name: value.detach().clone().requires_grad_() for name, value in learner.model.named_parameters()}
    for i in range(4):
        context = torch.zeros(6, dtype=torch.float64, requires_grad=True)
        for _ in range(steps):
            loss = functional.cross_entropy(one_task(weights, batch.support_x[i], context), batch.support_y[i])
            (slope,) = torch.autograd.grad(loss, context, create_graph=not first_order)
            context = context - rate * slope
        statistics = None
        if norm == "support":
            statistics = []
            one_task(weights, batch.support_x[i], context, seen=statistics)
        prediction = one_task(weights, batch.query_x[i], context, statistics=statistics)
        torch.testing.assert_close(logits[i], prediction)
        (functional.cross_entropy(prediction, batch.query_y[i]) / 4).backward()
    expected = torch.cat([value.grad.flatten() for value in weights.values()])
    torch.testing.assert_close(gradient, expected, rtol=1e-7, atol=1e-11)


@pytest.mark.slow
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("name", ["MAML", "ANIL", "MetaSGD", "Reptile", "CaviaMAML", "ProtoNets", "MatchingNets"])
def test_every_method_treats_tasks_alone_and_together_alike(norm, name):
    if name in ("ProtoNets", "MatchingNets"):
        learner, batch = make(norm, lambda model, loss: getattr(cavia, name)(model, loss, ways=3))
    else:
        arguments = {"head": "linear"} if name == "ANIL" else {}
        learner, batch = make(norm, getattr(cavia, name), inner_lr=0.1, **arguments)
    together = learner(batch)
    alone = torch.cat([learner(part) for part in batch.split(1)])
    torch.testing.assert_close(together, alone)
    learner.eval()
    logits = learner.predict(batch.query_x, learner.adapt(batch.support_x, batch.support_y))
    assert logits.shape == (4, 6, 3)


def test_one_picture_alone_has_the_right_gradient():
    learner, batch = make(context=6)
    x, context = batch.query_x[:1, :1], torch.randn(1, 6, dtype=torch.float64)
    weights = dict(learner.model.named_parameters())
    ours = torch.autograd.grad(learner.model(x, context).square().sum(), list(weights.values()))
    theirs = torch.autograd.grad(one_task(weights, x[0], context[0]).square().sum(), list(weights.values()))
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other)


def test_no_task_sees_the_statistics_of_another():
    for norm in NORMS:
        learner, batch = make(norm)
        changed = batch.query_x.clone()
        changed[1] *= 5
        fast = learner.adapt(batch.support_x, batch.support_y)
        before, after = learner.predict(batch.query_x, fast), learner.predict(changed, fast)
        assert torch.equal(before[0], after[0])
        assert not torch.equal(before[1], after[1])


def test_only_with_norm_task_do_query_points_see_each_other():
    for norm, sees in (("task", True), ("support", False), ("running", False)):
        learner, batch = make(norm)
        learner.eval()
        changed = batch.query_x.clone()
        changed[:, 1] *= 5
        fast = learner.adapt(batch.support_x, batch.support_y)
        before, after = learner.predict(batch.query_x, fast), learner.predict(changed, fast)
        assert torch.allclose(before[:, 0], after[:, 0]) != sees


@pytest.mark.slow
def test_running_statistics_approach_those_of_the_training_batches_and_are_saved(tmp_path):
    learner, batch = make("running", dtype=torch.float32)
    step = MetaStep(learner, 1e-9, chunk=3)
    for _ in range(60):
        step(batch)
    start = torch.zeros(4, 6)
    expected = learner.model.statistics(batch.query_x, start).mean(0)
    torch.testing.assert_close(learner.model.running, expected, rtol=0.1, atol=0.02)
    whole, parts = (make("running", dtype=torch.float64)[0] for _ in range(2))
    for one, chunk in ((whole, None), (parts, 3)):
        MetaStep(one, 1e-9, chunk=chunk)(make("running")[1])
    torch.testing.assert_close(whole.model.running, parts.model.running)
    learner.save(tmp_path / "m.cavia")
    assert torch.equal(cavia.load(tmp_path / "m.cavia").model.running, learner.model.running)


def test_a_task_norm_is_torchs_batch_norm_of_each_task():
    torch.manual_seed(0)
    norm, h = TaskNorm(5).double(), torch.randn(3, 4, 5, 6, 6, dtype=torch.float64)
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    expected = [functional.batch_norm(x, None, None, norm.weight, norm.bias, training=True) for x in h]
    torch.testing.assert_close(norm(h), torch.stack(expected))
    torch.testing.assert_close(torch.cat([norm(x.unsqueeze(0)) for x in h]), torch.stack(expected))


def test_sizes_of_the_literature():
    for image, channels, ways in ((84, 3, 5), (28, 1, 20)):
        model = cavia.ConvNet(ways=ways, image=image, channels=channels)
        assert model(torch.rand(2, 3, channels, image, image), torch.zeros(2, 100)).shape == (2, 3, ways)
    assert cavia.ConvNet(ways=0, context=0)(torch.rand(1, 2, 3, 84, 84), torch.zeros(1, 0)).shape == (1, 2, 32 * 25)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"film": 5}, "film must name blocks from 1 to 4, got"),
        ({"film": ()}, "film must name blocks"),
        ({"norm": "tasks"}, "unknown norm 'tasks'; did you mean 'task'"),
        ({"shrink": "strides"}, "unknown shrink 'strides'; did you mean 'stride'"),
        ({"image": 8}, "image must be at least 16, got 8"),
        ({"filters": 0}, "filters must be at least 1"),
    ],
)
def test_bad_arguments_are_named(arguments, message):
    with pytest.raises(cavia.CaviaError, match=message):
        cavia.ConvNet(**arguments)


def test_pictures_of_another_shape_and_padding_are_refused():
    learner, batch = make()
    with pytest.raises(cavia.CaviaError, match=r"takes x \[T, N, 2, 16, 16\], got \[4, 6, 2, 16, 15\]"):
        learner.model(batch.query_x[..., :15], torch.zeros(4, 6).double())
    with pytest.raises(cavia.CaviaError, match="ConvNet has batch norm, whose statistics padded points would change"):
        learner.adapt(batch.support_x, batch.support_y, torch.ones(4, 3, dtype=torch.bool))
    with pytest.raises(cavia.CaviaError, match="ConvNet has batch norm"):
        learner(replace(batch, query_mask=torch.ones(4, 6, dtype=torch.bool)))


def test_predicting_with_norm_support_needs_what_adapt_returned():
    learner, batch = make("support")
    fast = learner.adapt(batch.support_x, batch.support_y)
    with pytest.raises(cavia.CaviaError, match="the statistics of the support points are missing"):
        learner.predict(batch.query_x, cavia.Adapted({"context": fast["context"]}))
