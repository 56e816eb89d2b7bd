"""Flow: the integrators against closed forms and each other, derivatives against differences, and misuse."""

import builtins

import pytest
import torch

import cavia
import cavia.models.adaptive
from cavia.errors import CaviaError
from cavia.tasks.integrating import rk4


def make(**arguments):
    torch.manual_seed(0)
    return cavia.Flow(
        **{"states": 2, "hidden": (6, 5), "context": 3, "centre": (0.5, 1), "scale": (0.4, 2)} | arguments
    )


def points(*middle, tasks=3, trajectories=2, times=3):
    generator = torch.Generator().manual_seed(1)
    lengths = torch.rand(tasks, trajectories, *middle, times, generator=generator, dtype=torch.float64)
    state = torch.randn(tasks, trajectories, *middle, 2, generator=generator, dtype=torch.float64)
    return {"state": state, "times": lengths.cumsum(-1)}  # times of its own for each trajectory


def test_rk4_is_of_fourth_order_on_a_linear_system():
    matrix = torch.tensor([[-0.3, 1.0], [-1.0, 0.1]], dtype=torch.float64)
    start, times = torch.tensor([[1.0, 2.0]], dtype=torch.float64), torch.tensor([[0.7, 1.0, 3.0]], dtype=torch.float64)
    exact = torch.stack([torch.linalg.matrix_exp(matrix * t) @ start[0] for t in times[0]])

    def error(substeps):
        return (torch.cat(rk4(lambda z: z @ matrix.T, start, times, substeps)) - exact).abs().max()

    assert error(64) < 1e-7
    assert 14 < error(8) / error(16) < 18


def field_of(model, z, context):
    """ż of one state [2] with context [3], layer by layer."""
    h = (z - torch.tensor([0.5, 1.0])) / torch.tensor([0.4, 2.0])
    for layer in model.layers[:-1]:
        h = torch.nn.functional.silu(layer.weight @ h + layer.bias)
    fields = (model.layers[-1].weight @ h + model.layers[-1].bias).view(2, 4)
    return torch.tensor([0.4, 2.0]) / model.tempo * (fields[:, 0] + fields[:, 1:] @ context)


@pytest.mark.parametrize("solver", [{"substeps": 40}, {"solver": "adaptive", "tolerance": 1e-9}])
def test_trajectories_are_those_of_an_independent_integrator(solver):
    integrate = pytest.importorskip("scipy.integrate")
    model, x, context = make(**solver, tempo=0.7).double(), points(), torch.randn(3, 3, dtype=torch.float64)
    predicted = model(x, context)
    assert predicted.shape == (3, 2, 3, 2)
    for task, trajectory in ((0, 0), (2, 1)):
        times = x["times"][task, trajectory].numpy()
        solved = integrate.solve_ivp(
            lambda t, z, task=task: field_of(model, torch.from_numpy(z), context[task]).detach().numpy(),
            (0, times[-1]), x["state"][task, trajectory].numpy(), "DOP853", times, rtol=1e-10, atol=1e-12,
        )  # fmt: skip
        torch.testing.assert_close(predicted[task, trajectory], torch.from_numpy(solved.y.T), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("solver", [{}, {"solver": "adaptive", "tolerance": 1e-8}])
@pytest.mark.parametrize("middle", [(), (5,)])
def test_slopes_are_finite_differences(solver, middle):
    model, x = make(**solver).double(), points(*middle)
    context = torch.randn(3, 3, dtype=torch.float64)
    start = model.stem(x)
    prediction, slopes = model.linearised(start, context)
    torch.testing.assert_close(prediction, model.head(start, context), atol=1e-6, rtol=1e-6)
    assert slopes.shape == (*prediction.shape, 3)
    torch.testing.assert_close(model.slopes(start, context), slopes)
    for c, direction in enumerate(1e-5 * torch.eye(3, dtype=torch.float64)):
        difference = (model.head(start, context + direction) - model.head(start, context - direction)) / 2e-5
        torch.testing.assert_close(slopes[..., c], difference, atol=1e-4, rtol=1e-4)
    at_once = model.linearised(start, context[:1])[1]  # the same context for all
    torch.testing.assert_close(at_once, model.slopes(start, context[:1].expand(3, -1)))


def test_the_meta_gradient_is_that_of_finite_differences():
    learner = cavia.GaussNewton(make(hidden=(4,), context=2), damping=0.1, inner_steps=2).double()
    support, query = points(3), points()
    y = [torch.randn(*x["times"].shape, 2, dtype=torch.float64) for x in (support, query)]
    batch = cavia.TaskBatch(support, y[0], query, y[1])
    learner(batch).mean().backward()
    with torch.no_grad():
        for parameter in learner.parameters():
            flat, gradient = parameter.view(-1), parameter.grad.view(-1)
            for i in (0, flat.numel() - 1):
                losses = []
                for change in (1e-6, -2e-6):
                    flat[i] += change
                    losses.append(learner(batch).mean())
                flat[i] += 1e-6
                torch.testing.assert_close((losses[0] - losses[1]) / 2e-6, gradient[i], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("solver", ["rk4", "adaptive"])
@pytest.mark.parametrize("method", [cavia.CAVIA, cavia.GaussNewton])
def test_a_broken_trajectory_breaks_its_task_alone(solver, method):
    learner = method(make(solver=solver), "mse", inner_steps=2)
    x = {name: value.float() for name, value in points().items()}
    y = torch.randn(3, 2, 3, 2)
    whole = learner.adapt(x, y)
    x["state"][1, 0, 0] = torch.nan
    adapted = learner.adapt(x, y)
    assert adapted.finite.tolist() == [True, False, True]
    torch.testing.assert_close(adapted.context[[0, 2]], whole.context[[0, 2]], atol=1e-5, rtol=1e-4)


def test_it_is_saved_and_loaded(tmp_path):
    learner = cavia.GaussNewton(make(substeps=2, tempo=0.3), damping=0.2)
    learner.save(tmp_path / "flow.cavia")
    again = cavia.load(tmp_path / "flow.cavia")
    assert again.model.arguments == learner.model.arguments
    x = {name: value.float() for name, value in points().items()}
    assert torch.equal(again.model(x, torch.ones(3, 3)), learner.model(x, torch.ones(3, 3)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"states": 0}, "states must be at least 1, got 0"),
        ({"hidden": ()}, "at least one layer"),
        ({"scale": (1.0,)}, "scale, above 0, must be 2 finite numbers"),
        ({"scale": (1.0, 0.0)}, "scale, above 0"),
        ({"centre": (1.0, float("nan"))}, "centre must be 2 finite numbers"),
        ({"tempo": 0.0}, "tempo must be above 0"),
        ({"tolerance": -1.0}, "tolerance must be above 0"),
        ({"solver": "rk5"}, "unknown solver 'rk5'; did you mean 'rk4'"),
        ({"substeps": 0}, "substeps must be at least 1"),
    ],
)
def test_wrong_arguments_are_named(arguments, message):
    with pytest.raises(CaviaError, match=message):
        make(**arguments)


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.zeros(1, 2, 2), 'a Flow takes x = {"state"'),
        ({"state": torch.zeros(1, 2, 2)}, "got a dictionary of 'state'"),
        ({"state": torch.zeros(1, 2, 3), "times": torch.zeros(1, 2, 4)}, r"\[T, N, ..., 2\]"),
        ({"state": torch.zeros(1, 2, 4, 2), "times": torch.zeros(1, 2, 5)}, "whose axes before the last are the same"),
    ],
)
def test_wrong_points_are_named(x, message):
    with pytest.raises(CaviaError, match=message):
        make()(x, torch.zeros(1, 3))


def test_without_torchode_the_fix_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *rest, **named):
        if name == "torchode":
            raise ImportError(name)
        return real(name, *rest, **named)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(CaviaError, match=r"pip install 'cavia-torch\[flow\]'"):
        make(solver="adaptive").double()(points(), torch.zeros(3, 3, dtype=torch.float64))


def test_a_field_that_explodes_is_named(monkeypatch):
    monkeypatch.setattr(cavia.models.adaptive, "MOST_STEPS", 3)
    model = make(solver="adaptive", hidden=(4,)).double()
    with torch.no_grad():
        model.layers[-1].weight.mul_(1e12)
    with pytest.raises(CaviaError, match="take a larger tolerance"):
        model(points(), torch.ones(3, 3, dtype=torch.float64))
