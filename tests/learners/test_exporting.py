"""A learner as an ONNX graph, whose numbers are onnxruntime's."""

import sys

import pytest
import torch
from torch import nn

import cavia
from cavia.learners.decompositions import convolution_backward, max_pool_backward

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")
NUMBERS = ((1, 1, 1), (6, 9, 2), (2, 20, 33))  # of tasks, support and query points


def inputs(tasks, support, query, shape=(1,), outputs=1, labels=0, mask=False):
    """By the graph's names."""
    generator = torch.Generator().manual_seed(tasks)
    y = torch.randn(tasks, support, outputs, generator=generator)
    points = {
        "support_x": torch.randn(tasks, support, *shape, generator=generator),
        "support_y": torch.randint(labels, (tasks, support), generator=generator) if labels else y,
        "query_x": torch.randn(tasks, query, *shape, generator=generator),
    }
    return points | ({"support_mask": torch.rand(tasks, support, generator=generator) < 0.5} if mask else {})


def check_same(learner, path, steps=None, **kind):
    """onnxruntime and the learner agree, for numbers of tasks and points that no example had."""
    session = onnxruntime.InferenceSession(path)
    names = [output.name for output in session.get_outputs()]
    for numbers in NUMBERS:
        given = inputs(*numbers, **kind)
        outputs = dict(zip(names, session.run(None, {k: v.numpy() for k, v in given.items()}), strict=True))
        adapted = learner.adapt(given["support_x"], given["support_y"], given.get("support_mask"), steps=steps)
        close(outputs["prediction"], learner.predict(given["query_x"], adapted))
        assert ("context" in outputs) == ("context" in adapted)
        if "context" in outputs:
            close(outputs["context"], adapted.context)


def close(actual, wanted):
    torch.testing.assert_close(torch.from_numpy(actual), wanted, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
    "learner",
    [
        lambda: cavia.CAVIA(cavia.MLP(1, 1, context=5), "mse", inner_lr=0.5, inner_steps=2),
        lambda: cavia.MAML(cavia.MLP(1, 1, hidden=(8,), context=2), "mse", inner_steps=2),
        lambda: cavia.ANIL(cavia.MLP(1, 1, hidden=(8,), context=0), "mse"),
        lambda: cavia.MetaSGD(cavia.MLP(1, 1, hidden=(8,)), "mse", adapts="context"),
        lambda: cavia.CNP(cavia.MLP(1, 1, hidden=(8,)), "mse", inputs=1, outputs=1, encoder=(8,)),
    ],
    ids=["CAVIA", "MAML", "ANIL", "MetaSGD", "CNP"],
)
def test_a_graph_adapts_and_predicts_any_number_of_tasks_and_points(learner, tmp_path):
    torch.manual_seed(0)
    learner = learner()
    learner.export(tmp_path / "model.onnx")
    check_same(learner, tmp_path / "model.onnx")


@pytest.mark.slow
def test_steps_and_a_mask_are_the_graphs(tmp_path):
    torch.manual_seed(0)
    learner = cavia.CAVIA(cavia.MLP(1, 1, hidden=(8,), at=(0, 1)), "mse", inner_lr=0.5)
    learner.export(tmp_path / "model.onnx", steps=3, mask=True)
    check_same(learner, tmp_path / "model.onnx", steps=3, mask=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [cavia.CAVIA, cavia.CaviaMAML])
def test_without_steps_every_task_starts_alike(kind, tmp_path):
    torch.manual_seed(0)
    learner = kind(cavia.MLP(1, 1, hidden=(8,), context=2), "mse")
    learner.export(tmp_path / "model.onnx", steps=0)
    check_same(learner, tmp_path / "model.onnx", steps=0)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [cavia.CAVIA, cavia.ProtoNets, cavia.MatchingNets])
def test_labels(kind, tmp_path):
    torch.manual_seed(0)
    model = cavia.MLP(4, 5, hidden=(8,), context=3 if kind is cavia.CAVIA else 0)
    learner = kind(model, "cross_entropy")
    learner.export(tmp_path / "model.onnx")
    check_same(learner, tmp_path / "model.onnx", shape=(4,), labels=5)


@pytest.mark.slow
def test_any_module(tmp_path):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 2))
    model = cavia.condition(net, "0", 3, norm="frozen", example=torch.rand(2, 4))
    learner = cavia.CAVIA(model, "mse", inner_lr=0.3).eval()
    points = inputs(2, 3, 3, shape=(4,), outputs=2)
    example = cavia.TaskBatch(*points.values(), torch.zeros(2, 3, 2))
    learner.export(tmp_path / "model.onnx", example=example)
    check_same(learner, tmp_path / "model.onnx", shape=(4,), outputs=2)


@pytest.mark.slow
def test_the_learner_stays_as_it_is_and_a_compiled_one_exports_the_same(tmp_path):
    learner = cavia.CAVIA(cavia.MLP(1, 1, hidden=(8,)), "mse").train()
    before = learner.version
    learner.export(tmp_path / "one.onnx")
    cavia.compiled(learner).export(tmp_path / "other.onnx")
    assert learner.training
    assert learner.version == before
    assert all(value.requires_grad for value in learner.parameters())
    check_same(learner, tmp_path / "other.onnx")


@pytest.mark.slow
def test_what_cannot_be_exported_is_one_line_and_no_file(tmp_path):
    learner = cavia.GaussNewton(cavia.MLP(1, 1), "mse")
    with pytest.raises(cavia.CaviaError, match="GaussNewton on MLP cannot be exported to ONNX: ") as caught:
        learner.export(tmp_path / "model.onnx")
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_points_that_nobody_can_guess_need_an_example(tmp_path):
    model = cavia.condition(nn.Sequential(nn.Linear(4, 2)), "0", 3, example=torch.rand(2, 4))
    with pytest.raises(cavia.CaviaError, match="CAVIA on Conditioned does not say what points it takes; give example="):
        cavia.CAVIA(model, "mse").export(tmp_path / "model.onnx")


def test_a_missing_package_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "onnxscript", None)
    with pytest.raises(cavia.CaviaError, match=r"export needs onnxscript: pip install 'cavia-torch\[onnx\]'"):
        cavia.CAVIA(cavia.MLP(1, 1), "mse").export(tmp_path / "model.onnx")


@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 1, 1), (2, 1, 1), (2, 0, 2), (3, 2, 1)])
def test_the_gradient_of_a_convolution_in_onnxs_operations(stride, padding, dilation):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 3, 12, 11, dtype=torch.float64, generator=generator, requires_grad=True)
    layer = nn.Conv2d(3, 4, 3, stride, padding, dilation).double()
    actual = layer(x)
    gradient = torch.randn(actual.shape, dtype=torch.float64, generator=generator)
    wanted = torch.autograd.grad(actual, (x, layer.weight, layer.bias), gradient)
    settings = ([stride] * 2, [padding] * 2, [dilation] * 2, False, [0, 0], 1, [True] * 3)
    torch.testing.assert_close(convolution_backward(gradient, x, layer.weight, [4], *settings), wanted)


def test_the_gradient_of_max_pooling_in_onnxs_operations():
    x = torch.randn(2, 3, 7, 6, generator=torch.Generator().manual_seed(0), requires_grad=True)
    actual, places = nn.functional.max_pool2d(x, 3, 2, return_indices=True)
    gradient = torch.rand_like(actual)
    (wanted,) = torch.autograd.grad(actual, x, gradient)
    torch.testing.assert_close(max_pool_backward(gradient, x, places), wanted)


@pytest.mark.check
@pytest.mark.parametrize("norm", ["task", "support", "running"])
@pytest.mark.parametrize("kind", [cavia.CAVIA, cavia.MAML])
def test_a_convnet(kind, norm, tmp_path):
    torch.manual_seed(0)
    model = cavia.ConvNet(filters=8, image=32, channels=1, context=5 if kind is cavia.CAVIA else 0, norm=norm)
    learner = kind(model, "cross_entropy", inner_lr=0.1).eval()
    learner.export(tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    given = inputs(4, 6, 3, shape=(1, 32, 32), labels=5)
    outputs = session.run(["prediction"], {name: value.numpy() for name, value in given.items()})[0]
    wanted = learner.predict(given["query_x"], learner.adapt(given["support_x"], given["support_y"]))
    torch.testing.assert_close(torch.from_numpy(outputs), wanted, rtol=1e-4, atol=1e-4)
