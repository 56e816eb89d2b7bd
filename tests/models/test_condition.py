"""`condition`: any module, unchanged at φ = 0, tasks apart, with every learner that makes sense."""

import gc

import pytest
import torch
from torch import nn

import cavia
from cavia.training.step import MetaStep
from tests.models.modules import CASES, call, each_case, make, mlp, points, rows


@each_case
def test_at_zero_context_it_computes_what_it_computed_before_to_the_bit(case):
    module, model, inputs = make(case)
    arguments = CASES[case][2]
    if case == "batch norm, task":
        pytest.skip("other statistics are what it is for")
    model.eval()
    with torch.no_grad():
        x = inputs(1, 7)
        before = call(module, x[0], arguments)
        now = model(x, torch.zeros(1, 3))[0]
        torch.testing.assert_close(now, before)
        if case != "encoder, inner layer":  # PyTorch's fused inference path would pass it by
            assert torch.equal(now, before)
        other = model(x, torch.ones(1, 3))[0]
    assert not torch.allclose(other, before)
    if "encoder" not in case:  # attention with second derivatives is rounded otherwise
        module.eval()
        assert torch.equal(model(x, torch.zeros(1, 3))[0], call(module, x[0], arguments))


@each_case
def test_the_context_has_a_gradient_from_the_start_and_so_has_the_map(case):
    _, model, inputs = make(case)
    model.eval()
    learner = cavia.CAVIA(model, "cross_entropy", inner_lr=0.1)
    x, labels = inputs(2, 6), torch.randint(4, (2, 6))
    fast = learner.adapt(x, labels)
    assert (fast["context"] != 0).any(1).all()
    learner(cavia.TaskBatch(x, labels, x, labels)).mean().backward()  # second derivatives, attention's too
    assert all(modulation.weight.grad.abs().sum() > 0 for modulation in model.modulations)
    assert all(p.grad is None or p.grad.isfinite().all() for p in model.parameters())


@each_case
def test_tasks_together_are_tasks_alone(case):
    _, model, inputs = make(case)
    learner = cavia.CAVIA(model.eval(), "cross_entropy", inner_lr=0.5, inner_steps=2)
    x, labels = inputs(5, 6), torch.randint(4, (5, 6), generator=torch.Generator().manual_seed(0))
    together = learner.adapt(x, labels)["context"]
    alone = torch.cat([learner.adapt(x[i : i + 1], labels[i : i + 1])["context"] for i in range(5)])
    torch.testing.assert_close(together, alone, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
@each_case
def test_the_module_stays_as_it_was(case):
    torch.manual_seed(0)
    build, inputs, arguments = CASES[case]
    module = build()
    weights = {name: value.clone() for name, value in module.state_dict().items()}
    names = {name: set(vars(layer)) for name, layer in module.named_modules()}
    model = cavia.condition(module, context=3, example=inputs(4), **arguments)
    model(inputs(2, 6), torch.ones(2, 3))
    assert all(torch.equal(weights[name], value) for name, value in module.state_dict().items())
    assert {name: set(vars(layer)) for name, layer in module.named_modules()} == names
    del model
    gc.collect()
    assert not any(layer._forward_hooks for layer in module.modules())


@each_case
def test_saved_and_loaded_with_the_module(case, tmp_path):
    _, model, inputs = make(case)
    learner = cavia.CAVIA(model, "cross_entropy").eval()
    learner.save(tmp_path / "own.cavia")
    with pytest.raises(cavia.CaviaError, match=r"own\.cavia holds a module conditioned at .*module=that_module"):
        cavia.load(tmp_path / "own.cavia")
    torch.manual_seed(5)
    loaded = cavia.load(tmp_path / "own.cavia", module=CASES[case][0]()).eval()
    x, labels = inputs(2, 6), torch.randint(4, (2, 6))
    predictions = [one.predict(x, one.adapt(x, labels)) for one in (learner, loaded)]
    assert torch.equal(*predictions)


@pytest.mark.parametrize("case", ["mlp", "convolutions", "batch norm, frozen", "encoder", "keywords", "lstm, state"])
@pytest.mark.parametrize(
    "method",
    [
        lambda model: cavia.MetaSGD(model, "cross_entropy", inner_lr=0.1, adapts="context"),
        lambda model: cavia.MAML(model, "cross_entropy", inner_lr=0.1),
        lambda model: cavia.ANIL(model, "cross_entropy", inner_lr=0.1),
        lambda model: cavia.CaviaMAML(model, "cross_entropy", inner_lr=0.1),
    ],
)
def test_other_methods(case, method):
    _, model, inputs = make(case)
    learner = method(model)
    x, labels = inputs(3, 6), torch.randint(4, (3, 6))
    learner(cavia.TaskBatch(x, labels, x, labels)).mean().backward()
    fast = learner.eval().adapt(x, labels)
    together = learner.predict(x, fast)
    alone = [learner.predict(x[i : i + 1], learner.adapt(x[i : i + 1], labels[i : i + 1])) for i in range(3)]
    torch.testing.assert_close(together, torch.cat(alone), rtol=1e-4, atol=1e-5)


def test_without_context_it_is_any_module_for_maml():
    module = mlp()
    model = cavia.condition(module, at=[], context=0, example=rows(4))
    learner = cavia.MAML(model, "cross_entropy")
    assert set(learner.fast_names) == {f"module.{name}" for name, _ in module.named_parameters()}


def test_frozen_weights_stay_and_the_conditioning_learns():
    module = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 1))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = cavia.condition(module, at="0", context=4, example=torch.zeros(3, 1), freeze=True)
    learner = cavia.CAVIA(model, "mse", inner_lr=0.1)
    maps = {name: value.clone() for name, value in model.modulations.state_dict().items()}
    cavia.fit(learner, cavia.Sine(), 5, progress=False, validation=cavia.Validation(0))
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())
    assert not any(torch.equal(maps[name], value) for name, value in model.modulations.state_dict().items())
    assert cavia.MAML(model, "mse").fast_names == ("modulations.0.weight", "context")


@pytest.mark.slow
def test_a_conditioned_network_learns_sine_curves():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(1, 40), nn.ReLU(), nn.Linear(40, 40), nn.ReLU(), nn.Linear(40, 1))
    model = cavia.condition(module, at="0", how="concat", context=5, example=torch.zeros(3, 1))
    learner = cavia.CAVIA(model, "mse", inner_lr=1.0)
    cavia.fit(learner, cavia.Sine(), 300, progress=False, validation=cavia.Validation(0))
    scores = cavia.evaluate(learner, cavia.Sine(), tasks=100).mean
    assert scores[1] < 0.6 * scores[0]


def test_concatenation_is_the_layer_with_a_wider_input():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 8))
    model = cavia.condition(module, at="0", how="concat", context=2, example=rows(4))
    wide = nn.Linear(5, 8)
    with torch.no_grad():
        wide.weight.copy_(torch.cat([module[0].weight, model.modulations[0].weight], 1))
        wide.bias.copy_(module[0].bias)
    x, context = rows(4, 6), points(4, 2)
    expected = wide(torch.cat([x, context[:, None].expand(4, 6, 2)], -1))
    torch.testing.assert_close(model(x, context), expected)


def test_each_call_draws_new_maps_and_a_seed_gives_the_same():
    torch.manual_seed(3)
    first, second = (cavia.condition(mlp(), "a", 3, example=rows(4)).modulations[0].weight for _ in range(2))
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(first, cavia.condition(mlp(), "a", 3, example=rows(4)).modulations[0].weight)


@pytest.mark.slow
@pytest.mark.parametrize("middle", [nn.ReLU, lambda: nn.TransformerEncoderLayer(8, 2, 8, 0.0, batch_first=True)])
def test_the_compiled_meta_gradient_is_the_eager_one(middle):
    points = torch.randn(4, 3, 5, 2, 1, generator=torch.Generator().manual_seed(0))  # 3 tasks of 5 sequences of 2
    results = []
    for compiled in (False, True):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(1, 8), middle(), nn.Linear(8, 1))
        model = cavia.condition(module, at="0", context=3, example=points[0, 0])
        step = MetaStep(cavia.CAVIA(model, "mse", inner_lr=0.1), lr=0.01, compiled=compiled)
        results.append(step._gradient(cavia.TaskBatch(*points)))
    torch.testing.assert_close(*results)
