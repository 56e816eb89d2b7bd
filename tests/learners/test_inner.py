"""At test time the inner gradient is taken by cheaper means: the same numbers, and nothing else changes."""

import pytest
import torch
from torch import nn

import cavia
from cavia.learners import gradient, inner

METHODS = {
    "CAVIA": lambda model: cavia.CAVIA(model, "mse", inner_steps=3),
    "CAVIA, learned start": lambda model: cavia.CAVIA(model, "mse", learn_init=True),
    "MAML": lambda model: cavia.MAML(model, "mse", inner_steps=2),
    "ANIL": lambda model: cavia.ANIL(model, "mse"),
    "Meta-SGD on context": lambda model: cavia.MetaSGD(model, "mse", adapts="context"),
    "CAVIA+MAML": lambda model: cavia.CaviaMAML(model, "mse"),
    "Reptile": lambda model: cavia.Reptile(model, "mse"),
}


def doubles(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mlp(**arguments):
    torch.manual_seed(0)
    return cavia.MLP(**{"inputs": 2, "outputs": 2, "hidden": (7, 5), "context": 3} | arguments).double()


def by_transform(learner, x, y, mask=None):
    """What `adapt` returns, by the code that training differentiates through."""
    with torch.enable_grad():
        actual = learner._infer(x, y, mask, learner.inner_steps, None)
    return {name: value.detach() for name, value in actual.items()}


@pytest.fixture
def no_transform(monkeypatch):
    def refuse(*_):
        raise AssertionError("a transform was used")

    return lambda: monkeypatch.setattr(gradient, "by_transform", refuse)


@pytest.mark.parametrize("tasks", [1, 4])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_numbers_are_those_of_a_transform(name, masked, tasks, no_transform):
    learner, x, y = METHODS[name](mlp()), doubles(tasks, 6, 2), doubles(tasks, 6, 2, seed=1)
    mask = doubles(tasks, 6, seed=2) > -0.5 if masked else None
    expected = by_transform(learner, x, y, mask)
    no_transform()
    torch.testing.assert_close(learner.adapt(x, y, mask).parameters, expected, rtol=1e-10, atol=1e-12)
    assert all(parameter.grad is None for parameter in learner.parameters())


@pytest.mark.parametrize("at", [0, 1, 2, (0, 2), (0, 1, 2)])
def test_the_gradient_by_the_context_is_autograds(at):
    model, x, context = mlp(at=at), doubles(4, 6, 2), doubles(4, 3, seed=1).requires_grad_()
    slope = doubles(4, 6, 2, seed=2)
    features = model.stem(x).detach()
    (expected,) = torch.autograd.grad((model.head(features, context) * slope).sum(), context)
    actual = model.context_gradient(features, context.detach(), lambda prediction: slope)
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-13)


def test_the_gradient_by_the_context_keeps_what_is_not_finite():
    model, x = mlp(), doubles(2, 6, 2)
    x[0, 0] = torch.nan
    context = cavia.CAVIA(model, "mse").adapt(x, x)["context"]
    assert context[0].isnan().all()
    assert context[1].isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_targets_may_have_another_type(dtype):
    learner, x = cavia.CAVIA(mlp(), "mse"), doubles(4, 6, 2)
    y = (3 * doubles(4, 6, 2, seed=1)).to(dtype)
    torch.testing.assert_close(learner.adapt(x, y).parameters, by_transform(learner, x, y))


def test_a_task_without_points_stays_at_the_start():
    learner, x = cavia.CAVIA(mlp(), "mse"), doubles(2, 6, 2)
    mask = torch.tensor([[True], [False]]).expand(2, 6)
    assert learner.adapt(x, x, mask)["context"][1].eq(0).all()


class Doubled(cavia.MLP):
    """A class of one's own."""

    def head(self, h, context):
        return 2 * super().head(h, context)


def hooked():
    model = mlp()
    model.layers[1].register_forward_hook(lambda _module, _inputs, output: 2 * output)
    return model


def replaced():
    model = mlp()
    model.layers[1] = nn.Sequential(nn.Linear(7, 5), nn.Tanh()).double()
    return model


def normed():
    model = mlp()
    nn.utils.parametrizations.weight_norm(model.layers[1])
    return model


@pytest.mark.parametrize(
    "build",
    [lambda: Doubled(2, 2, (7, 5), 3).double(), hooked, replaced, normed],
    ids=["class", "hook", "layer", "norm"],
)
def test_networks_that_were_changed_are_differentiated_as_they_are(build):
    learner, x, y = cavia.CAVIA(build(), "mse"), doubles(4, 6, 2), doubles(4, 6, 2, seed=1)
    torch.testing.assert_close(learner.adapt(x, y).parameters, by_transform(learner, x, y), rtol=1e-10, atol=1e-12)


def test_a_mean_of_ones_own_is_differentiated_as_it_is():
    class Halved(cavia.CAVIA):
        def mean_loss(self, prediction, target, mask=None):
            return super().mean_loss(prediction, target, mask) / 2

    x, y = doubles(4, 6, 2), doubles(4, 6, 2, seed=1)
    half, whole = (kind(mlp(), "mse").adapt(x, y)["context"] for kind in (Halved, cavia.CAVIA))
    torch.testing.assert_close(2 * half, whole)


class Counting(cavia.ContextModel):
    """Norms by running statistics, which a forward pass in training moves."""

    context = 2

    def __init__(self):
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(2), nn.Linear(2, 2)

    def stem(self, x):
        return x

    def head(self, h, context):
        moved = (h + context.unsqueeze(1)).flatten(0, 1)
        return self.linear(self.norm(moved)).view(h.shape)


@pytest.mark.parametrize("kind", [cavia.CAVIA, cavia.MAML])
def test_running_statistics_stay_as_they_are(kind):
    learner, x = kind(Counting().double(), "mse"), doubles(1, 6, 2)
    before = {name: value.clone() for name, value in learner.named_buffers()}
    with pytest.raises(RuntimeError, match="in-place"):
        learner.adapt(x, x)
    assert all(torch.equal(before[name], value) for name, value in learner.named_buffers())
    learner.eval()
    torch.testing.assert_close(learner.adapt(x, x).parameters, by_transform(learner, x, x))
    assert all(torch.equal(before[name], value) for name, value in learner.named_buffers())


def test_dropout_draws_the_same_numbers():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(2, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, 2)).double()
    learner = cavia.CAVIA(cavia.condition(net, at="0", context=3, example=doubles(1, 2)), "mse")
    x, actual = doubles(4, 6, 2), []
    for adapt in (learner.adapt, lambda x, y: by_transform(learner, x, y)):
        torch.manual_seed(1)
        actual.append(adapt(x, x)["context"])
    torch.testing.assert_close(*actual)


def test_what_a_loss_does_not_depend_on_stays():
    class Idle(cavia.ContextModel):
        context = 2

        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(2, 2), nn.Linear(2, 2)

        def stem(self, x):
            return self.used(x)

        def head(self, h, context):
            return h

    x = torch.rand(1, 6, 2)
    for kind, freeze in ((cavia.MAML, False), (cavia.CAVIA, False), (cavia.CAVIA, True)):
        learner = kind(Idle().requires_grad_(not freeze), "mse")
        fast, start = learner.adapt(x, x), learner.start(1)
        idle = [name for name in fast.names if not name.startswith("used")]
        assert all(torch.equal(fast[name], start[name]) for name in idle)


@pytest.mark.parametrize("name", METHODS)
def test_tensors_of_inference_mode_are_taken_anywhere(name):
    with torch.inference_mode():
        learner = METHODS[name](mlp())
        x, y = doubles(2, 6, 2), doubles(2, 6, 2, seed=1)
        expected = learner.adapt(x, y).parameters
    torch.testing.assert_close(learner.adapt(x, y).parameters, expected)
    torch.testing.assert_close(learner.adapt(x.clone(), y.clone()).parameters, expected)


def test_a_gradient_is_wanted_where_gradients_are_on():
    model, x = mlp(), doubles(2, 6, 2)
    assert not inner.only_numbers(model, x)  # outside of torch.no_grad
    with torch.no_grad():
        assert inner.only_numbers(model, x)
        assert not torch.vmap(lambda one: one * inner.only_numbers(model, one))(x).any()
        assert not inner.only_numbers(nn.Sequential(nn.BatchNorm1d(2)), x)
