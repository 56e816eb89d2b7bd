"""Products in bf16: close to the exact gradient, opt-in, recorded, and refused where they do not serve."""

import json

import pytest
import torch
from torch import nn

import cavia
from cavia.training.step import MetaStep
from tests.training.runs import assert_same, make, train, weights


def faces():
    return cavia.Completion(cavia.synthetic_faces(train=20, val=2, test=2))


def wide(method=cavia.CAVIA):
    torch.manual_seed(0)
    return method(cavia.MLP(2, 3, hidden=(64, 64), context=16, init="he"), "mse", inner_steps=2)


def gradient(learner, batch, **options):
    return MetaStep(learner, 1e-3, **options)._gradient(batch)[0].double()


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("method", [cavia.CAVIA, cavia.MAML])
def test_the_gradient_is_the_exact_one_up_to_bf16(method, compiled):
    batch = faces().sample(4, 50, 100, torch.Generator().manual_seed(0))
    points = (batch.support_x, batch.support_y, batch.query_x, batch.query_y)
    exact = gradient(wide(method).double(), cavia.TaskBatch(*(part.double() for part in points)))
    error = {
        precision: (gradient(wide(method), batch, compiled=compiled, precision=precision) - exact).norm() / exact.norm()
        for precision in ("float32", "bf16")
    }
    assert error["float32"] < 1e-5
    assert 1e-4 < error["bf16"] < 2e-2  # eight bits, but rounded: not float32 by another name


def test_weights_adam_and_loss_stay_in_float32():
    step = MetaStep(wide(), 1e-3, precision="bf16")
    loss = step(faces().sample(4, 50, 100, torch.Generator().manual_seed(0)))
    assert {value.dtype for value in (loss, *step.state().values(), *step.parameters.values())} == {torch.float32}


def test_the_loss_of_logits_is_taken_in_float32():
    torch.manual_seed(0)
    learner = cavia.CAVIA(cavia.MLP(2, 5, hidden=(32,), context=4), "cross_entropy")
    x, y = torch.randn(4, 200, 2), torch.randint(5, (4, 200))
    with torch.autocast("cpu", torch.bfloat16):
        logits = learner.model(x, torch.zeros(4, 4))
        loss = learner.mean_loss(logits, y)
    assert logits.dtype == torch.bfloat16
    assert torch.equal(loss, learner.mean_loss(logits.float(), y))


@pytest.mark.slow
def test_a_run_in_bf16_says_so_and_goes_on_to_the_bit(tmp_path):
    whole, part = make(hidden=(32, 32)), make(hidden=(32, 32))
    train(whole, 20, tmp_path / "whole", precision="bf16")
    train(part, 10, tmp_path / "part", precision="bf16")
    train(part, 20, tmp_path / "part", precision="bf16")
    assert_same(weights(whole), weights(part))
    exact = make(hidden=(32, 32))
    train(exact, 20, tmp_path / "exact")
    assert not torch.equal(whole.model.layers[1].weight, exact.model.layers[1].weight)
    configs = [json.loads((tmp_path / name / "config.json").read_text()) for name in ("whole", "exact")]
    assert configs[0].pop("precision") == "bf16"
    assert configs[0] == configs[1]  # what earlier versions wrote


def test_a_run_in_float32_does_not_go_on_in_bf16(tmp_path):
    train(make(), 10, tmp_path)
    with pytest.raises(cavia.CaviaError, match="precision is None there and 'bf16' here"):
        train(make(), 20, tmp_path, precision="bf16")


class Recurrent(cavia.MLP):
    """With a layer that is not linear."""

    def __init__(self):
        super().__init__(1, 1, hidden=(4,), context=2)
        self.memory = nn.GRU(4, 4)


@pytest.mark.parametrize(
    ("learner", "precision", "message"),
    [
        (make(), "half", "unknown precision 'half'; choose from bf16, float32"),
        (
            cavia.CAVIA(cavia.ConvNet(2, 4, 28, 1, context=2), "mse"),
            "bf16",
            "networks of linear layers, not for Conv2d",
        ),
        (cavia.CAVIA(Recurrent(), "mse"), "bf16", 'not for GRU; use precision="float32"'),
        (
            cavia.GaussNewton(cavia.MLP(1, 1, hidden=(4,), context=2), "mse"),
            "bf16",
            "GaussNewton solves linear systems",
        ),
        (make().double(), "bf16", r"this one has torch.float64; use .float\(\)"),
    ],
    ids=["unknown", "convolutions", "recurrent", "systems", "double"],
)
def test_what_it_is_not_for_is_named(learner, precision, message):
    with pytest.raises(cavia.CaviaError, match=message):
        train(learner, 10, precision=precision)
