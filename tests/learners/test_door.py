"""What comes in at `adapt`, `predict`, `evaluate` and `fit` is converted, or one line says what is wrong."""

import numpy as np
import pytest
import torch

import cavia
from tests.conformance.cases import classes, mlp, sines


def cavia_learner(**arguments):
    torch.manual_seed(0)
    return cavia.CAVIA(mlp(), "mse", **arguments)


def classifier():
    torch.manual_seed(0)
    return cavia.CAVIA(mlp(outputs=2), "cross_entropy")


X, Y = torch.rand(3, 6, 1), torch.rand(3, 6, 1)
ADAPTED = cavia.Adapted({"context": torch.zeros(3, 3)})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda one: one.adapt(None, Y), "x must be a tensor, or an array or list of numbers, got None"),
        (lambda one: one.adapt("text", Y), "x must be a tensor, or an array or list of numbers, got 'text'"),
        (lambda one: one.adapt([[1.0], [1.0, 2.0]], Y), r"x must be a tensor, .* got \[\[1.0\], \[1.0, 2.0\]\]"),
        (lambda one: one.adapt(object(), Y), "got an object"),
        (lambda one: one.adapt(X, Y, mask=[[1, 0]]), "mask must be of type torch.bool, got torch.int64"),
        (lambda one: one.adapt(X.to(torch.cfloat), Y), r"x must be real, got torch.complex64 \[3, 6, 1\]"),
        (lambda one: one.adapt(X, 1j * Y), "y must be real, got torch.complex64"),
        (lambda one: one.adapt(X[:0], Y[:0]), r"with at least 1 task, got \[0, 6, 1\]"),
        (lambda one: one.adapt(X[0, 0], Y), r"x must be \[tasks, points, ...\] with at least 1 task, got \[1\]"),
        (lambda one: one.adapt(X, Y[:2]), r"same two leading axes .* got \[3, 6, 1\] and \[2, 6, 1\]"),
        (lambda one: one.adapt(X[..., [0, 0]], Y), r"takes x \[T, N, 1\], got x of shape \[3, 6, 2\]"),
        (lambda one: one.adapt(X.to("meta"), Y.to("meta")), "is on meta, the learner on cpu"),
        (lambda one: one.adapt(X.to_sparse(), Y), "x must be a dense tensor"),
        (lambda one: one.adapt(1e300 * X.double(), Y), "which the learner's torch.float32 cannot; scale the inputs"),
        (lambda one: one.adapt(X, Y, steps="3"), "steps must be a whole number, got '3'"),
        (lambda one: one.adapt(X, Y, steps=10**12), "steps must be at most 1000000, got 1000000000000"),
        (lambda one: cavia.evaluate(one, cavia.Sine(), steps=10**12), "steps must be at most 1000000"),
        (lambda one: cavia_learner(inner_steps=10**9), "inner_steps must be at most 1000000, got 1000000000"),
        (lambda one: one.adapt(X, Y, start="there"), "expected what `adapt` returned, a cavia.Adapted"),
        (lambda one: one.predict(None, ADAPTED), "x must be a tensor"),
        (lambda one: one.predict(X, None), "expected what `adapt` returned, a cavia.Adapted"),
        (lambda one: one.respond("text", ADAPTED), "x must be a tensor"),
        (lambda one: one.predict(X[:2], ADAPTED), r"'context' must be \[2, 3\] for the 2 tasks"),
        (lambda one: one(X), r"batch must be a cavia.TaskBatch, got a Tensor \[3, 6, 1\]"),
        (lambda one: one.task_losses(None), "batch must be a cavia.TaskBatch, got None"),
        (lambda one: one(cavia.TaskBatch(X, Y, X[:, :0], Y[:, :0])), "a loss needs at least 1 query point"),
        (lambda one: one.mean_loss(X, "y"), "target must be a tensor, got 'y'"),
        (lambda one: one.model(X, None), r"context must be a tensor \[3, 3\], got None"),
        (lambda one: one.model(X, torch.zeros(3, 4)), r"context must be \[3, 3\] for x \[3, 6, 1\], got .* \[3, 4\]"),
        (lambda one: cavia.evaluate(None, cavia.Sine()), "learner must be a cavia.Learner, got None"),
        (
            lambda one: cavia.evaluate(one, "sine"),
            "source must be a cavia.TaskFamily or a cavia.envs.TaskEnv, got 'sine'",
        ),
        (lambda one: cavia.evaluate(one, cavia.Sine(), tasks=10**15), "needs about .* of memory"),
        (lambda one: cavia.evaluate(one, cavia.Sine(), split="\udc80"), "unknown split"),
        (lambda one: cavia.evaluate(one, cavia.Sine(), tasks=2, metric=len), "metric=.* cannot be called so"),
        (lambda one: cavia.fit(one, cavia.Sine(), 1.5), "iterations must be a whole number, got 1.5"),
        (lambda one: cavia.fit(one, cavia.Sine(), 3, seed="x"), "seed must be a whole number, got 'x'"),
        (lambda one: cavia.fit(one, None, 3), "source must be a cavia.TaskFamily or a cavia.envs.TaskEnv, got None"),
        (lambda one: cavia.MLP(10**9, 10**9), "an MLP of inputs=1000000000, .* of memory"),
        (lambda one: cavia.CAVIA(cavia.MLP(1, 1), "mse", inner_lr=10**400), "inner_lr must be above 0 and finite"),
        (lambda one: cavia.TaskBatch(X, Y, None, Y), "query_x must be a tensor"),
        (
            lambda one: cavia.TaskBatch(X, Y, X, Y, attributes={"a": torch.zeros(2)}),
            r"attributes\['a'\] must be \[3, ...\]",
        ),
    ],
)
def test_wrong_inputs_are_one_line_that_names_them(call, message):
    with pytest.raises(cavia.CaviaError, match=message) as caught:
        call(cavia_learner())
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("kind", [cavia.CAVIA, cavia.MAML, cavia.GaussNewton])
def test_layers_of_types_that_do_not_mix_are_named(kind):
    learner = kind(mlp(), "mse")
    learner.model.layers[1].double()
    with pytest.raises(cavia.CaviaError, match=r"torch.float32, model.layers.1.weight torch.float64, .* learner.float"):
        learner.adapt(X, Y)
    with pytest.raises(cavia.CaviaError, match=r"model.layers.1.weight torch.float64"):
        cavia.fit(learner, cavia.Sine(), 1, progress=False)
    assert learner.float().adapt(X, Y).finite.all()


@pytest.mark.parametrize("convert", [torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.double, torch.Tensor.half])
def test_arrays_lists_and_other_types_are_the_same_points(convert):
    learner, x, y = cavia_learner(), (8 * X).round() / 8, (8 * Y).round() / 8
    expected = learner.adapt(x, y)
    adapted = learner.adapt(convert(x), convert(y))
    torch.testing.assert_close(adapted.context, expected.context)
    torch.testing.assert_close(learner.predict(convert(x), adapted), learner.predict(x, expected))
    batch = cavia.TaskBatch(convert(x), convert(y), convert(x), convert(y), attributes={"a": [1, 2, 3]})
    torch.testing.assert_close(learner(batch).float(), learner(cavia.TaskBatch(x, y, x, y)))


def test_arrays_that_cannot_be_written_to_or_run_backwards_are_taken():
    array = np.asarray(X.tolist())[::-1]
    array.flags.writeable = False
    learner = cavia_learner()
    torch.testing.assert_close(learner.adapt(array, Y).context, learner.adapt(X.flip(0), Y).context)


@pytest.mark.parametrize("kind", [torch.int64, torch.uint8, torch.bool])
def test_whole_numbers_are_inputs_and_targets_too(kind):
    x = torch.tensor([[[0], [1], [1]]]).to(kind)
    learners = [
        cavia_learner(),
        cavia.MAML(mlp(), "mse"),
        cavia.GaussNewton(mlp()),
        cavia.CNP(mlp(), "mse", inputs=1, outputs=1),
        cavia.CAVIA(cavia.WaveBasis(1, 1, waves=3, context=2), "mse"),
    ]
    for learner in learners:
        adapted, expected = learner.adapt(x, x), learner.adapt(x.float(), x.float())
        torch.testing.assert_close(learner.predict(x, adapted), learner.predict(x.float(), expected))


@pytest.mark.parametrize("label", [-100, -1, 2])
def test_labels_that_no_class_has_are_named(label):
    learner, batch = classifier(), classes()
    batch.support_y[1, 2] = label
    with pytest.raises(cavia.CaviaError, match=rf"labels y must be from 0 to 1 .* got {label} for task 1, point 2"):
        learner.adapt(batch.support_x, batch.support_y)
    mask = torch.ones(3, 6, dtype=torch.bool)
    mask[1, 2] = False
    assert learner.adapt(batch.support_x, batch.support_y, mask).finite.all()
    with pytest.raises(cavia.CaviaError, match=r"cross_entropy needs whole-number labels, got torch.float32"):
        learner.adapt(batch.support_x, batch.support_y.float())


def test_labels_of_other_types_are_the_same():
    learner, batch = classifier(), classes()
    expected = learner.adapt(batch.support_x, batch.support_y)
    for kind in (torch.int32, torch.uint8, torch.bool):
        assert torch.equal(learner.adapt(batch.support_x, batch.support_y.to(kind)).context, expected.context)


METRIC = {
    "ProtoNets": lambda: cavia.ProtoNets(mlp(context=0, outputs=4), ways=2),
    "MatchingNets": lambda: cavia.MatchingNets(mlp(context=0, outputs=4), ways=2),
}


@pytest.mark.parametrize("name", METRIC)
def test_a_task_without_points_finds_all_classes_as_likely(name):
    learner, batch = METRIC[name](), classes()
    mask = torch.ones(3, 6, dtype=torch.bool)
    mask[1] = False
    logits = learner.predict(batch.query_x, learner.adapt(batch.support_x, batch.support_y, mask))
    assert logits.isfinite().all()
    torch.testing.assert_close(logits[1].softmax(-1), torch.full((5, 2), 0.5))
    learner(cavia.TaskBatch(batch.support_x, batch.support_y, batch.query_x, batch.query_y, mask)).sum().backward()
    assert all(value.grad.isfinite().all() for value in learner.parameters())
    none = learner.predict(batch.query_x, learner.adapt(batch.support_x[:, :0], batch.support_y[:, :0]))
    torch.testing.assert_close(none.softmax(-1), torch.full((3, 5, 2), 0.5))


def test_without_points_a_cnp_is_where_padding_alone_leaves_it():
    learner, batch = cavia.CNP(mlp(), "mse", inputs=1, outputs=1), sines()
    masked = learner.adapt(batch.support_x, batch.support_y, torch.zeros(3, 6, dtype=torch.bool))
    adapted = learner.adapt(batch.support_x[:, :0], batch.support_y[:, :0])
    assert adapted.finite.all()
    torch.testing.assert_close(adapted.context, masked.context)


@pytest.mark.parametrize("kind", [cavia.CAVIA, cavia.MAML, cavia.GaussNewton])
def test_without_points_nothing_adapts(kind):
    learner = kind(mlp(), "mse")
    adapted, start = learner.adapt(X[:, :0], Y[:, :0]), learner.adapt(X, Y, steps=0)
    for name in start.names:
        torch.testing.assert_close(adapted[name], start[name])
    assert learner.predict(X[:, :0], adapted).shape == (3, 0, 1)


def test_what_adapted_in_another_type_is_converted():
    learner = cavia_learner()
    adapted = learner.adapt(X, Y)
    torch.testing.assert_close(learner.predict(X, adapted.to(torch.float64)), learner.predict(X, adapted))
