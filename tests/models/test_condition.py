"""`condition`: any module, unchanged at φ = 0, tasks apart, with every learner that makes sense."""

import gc
from collections import OrderedDict

import pytest
import torch
from torch import nn

import cavia
from cavia.training.step import MetaStep


class Convolutions(nn.Module):
    def __init__(self, norm=nn.Identity):
        super().__init__()
        self.first = nn.Conv2d(3, 6, 3, padding=1)
        self.norm = norm(6)
        self.second = nn.Conv2d(6, 8, 3, padding=1)
        self.out = nn.Linear(8, 4)

    def forward(self, x):
        h = torch.relu(self.norm(self.first(x)))
        return self.out(torch.relu(self.second(h)).mean((2, 3)))


class Encoder(nn.Module):
    def __init__(self, dropout=0.0):
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=dropout, batch_first=True)
        self.embed = nn.Embedding(11, 8)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(8, 4)

    def forward(self, tokens):
        return self.out(self.encoder(self.embed(tokens)).mean(1))


class Recurrent(nn.Module):
    """Reads its answer off the output or off the final state."""

    def __init__(self, kind=nn.GRU, reads="output", **options):
        super().__init__()
        self.recurrent = kind(3, 6, batch_first=True, **options)
        self.reads = reads
        self.out = nn.Linear(12 if options.get("bidirectional") else 6, 4)

    def forward(self, x):
        h, state = self.recurrent(x)
        state = state[0] if isinstance(state, tuple) else state
        last = h[:, -1] if self.reads == "output" else state[-1]
        return self.out(last)


class Dictionaries(nn.Module):
    """In the manner of Hugging Face: keyword arguments, layers that return tuples, an output with names."""

    class Layer(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(8, 8)

        def forward(self, hidden, scale=1.0):
            return (torch.tanh(self.linear(hidden)) * scale, "attentions")

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.layers = nn.ModuleList(self.Layer() for _ in range(3))
        self.out = nn.Linear(8, 4)

    def forward(self, *, input_ids, attention_mask=None, return_all=False):
        h = self.embed(input_ids)
        for layer in self.layers:
            h = layer(hidden=h, scale=2.0)[0]
        outputs = OrderedDict(logits=self.out(h.mean(1)))
        if return_all:
            outputs["hidden"] = h
        return outputs


def mlp():
    return nn.Sequential(OrderedDict(a=nn.Linear(3, 8), b=nn.ReLU(), drop=nn.Dropout(0.3), c=nn.Linear(8, 4)))


def points(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def tokens(*shape):
    return torch.randint(11, shape, generator=torch.Generator().manual_seed(1))


pictures, rows, series = (lambda *n: points(*n, 3, 6, 6)), (lambda *n: points(*n, 3)), (lambda *n: points(*n, 5, 3))
words = lambda *n: tokens(*n, 5)  # noqa: E731

# name → (module, inputs for leading axes, arguments of condition)
CASES = {
    "mlp": (mlp, rows, {"at": "a"}),
    "mlp, concat": (mlp, rows, {"at": ["a", "c"], "how": "concat"}),
    "convolutions": (Convolutions, pictures, {"at": "second"}),
    "convolutions, concat": (Convolutions, pictures, {"at": ["first", "second"], "how": "concat"}),
    "batch norm, frozen": (lambda: Convolutions(nn.BatchNorm2d), pictures, {"at": "norm", "norm": "frozen"}),
    "batch norm, task": (lambda: Convolutions(nn.BatchNorm2d), pictures, {"at": "norm", "norm": "task"}),
    "group norm": (lambda: Convolutions(lambda c: nn.GroupNorm(2, c)), pictures, {"at": "norm"}),
    "encoder": (Encoder, words, {"at": "encoder.layers.*"}),
    "encoder, dropout": (lambda: Encoder(0.1), words, {"at": "encoder.layers.1"}),
    "encoder, inner layer": (Encoder, words, {"at": "encoder.layers.0.linear1", "how": "concat"}),
    "gru": (Recurrent, series, {"at": "recurrent"}),
    "gru, state": (lambda: Recurrent(reads="state"), series, {"at": "recurrent"}),
    "lstm, state": (lambda: Recurrent(nn.LSTM, "state", num_layers=2), series, {"at": "recurrent"}),
    "lstm, two ways": (lambda: Recurrent(nn.LSTM, bidirectional=True), series, {"at": "recurrent"}),
    "keywords": (
        Dictionaries,
        words,
        {
            "at": "layers.?",
            "argument": "input_ids",
            "output": "logits",
            "keywords": {"return_all": True, "attention_mask": None},
        },
    ),
}
each_case = pytest.mark.parametrize("case", CASES)


def make(case, **changes):
    torch.manual_seed(0)
    build, inputs, arguments = CASES[case]
    module = build()
    return module, cavia.condition(module, context=3, example=inputs(4), **arguments | changes), inputs


def call(module, x, arguments):
    output = module(**{arguments["argument"]: x}) if "argument" in arguments else module(x)
    return output[arguments["output"]] if "output" in arguments else output


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


def test_a_module_that_does_not_fit_the_file_is_named(tmp_path):
    _, model, _ = make("mlp")
    cavia.CAVIA(model, "cross_entropy").save(tmp_path / "own.cavia")
    with pytest.raises(
        cavia.CaviaError, match=r"does not fit .*own\.cavia: the module has no layer 'a'; it has 'first'"
    ):
        cavia.load(tmp_path / "own.cavia", module=Convolutions())
    with pytest.raises(cavia.CaviaError, match="do not fit the network: size mismatch"):
        cavia.load(tmp_path / "own.cavia", module=nn.Sequential(OrderedDict(a=nn.Linear(3, 9))))


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


def test_task_statistics_are_those_of_batch_norm_on_each_task():
    module, model, inputs = make("batch norm, task")
    x = inputs(3, 5)
    module.train()
    expected = torch.stack([module(task) for task in x])
    torch.testing.assert_close(model.train()(x, torch.zeros(3, 3)), expected)
    mask = torch.ones(3, 5, dtype=torch.bool)
    with pytest.raises(cavia.CaviaError, match="has batch norm, whose statistics padded points would change"):
        cavia.CAVIA(model, "cross_entropy").adapt(x, torch.zeros(3, 5, dtype=torch.long), mask)


class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 4)

    def forward(self, x):
        return self.linear(x - x.mean(0))


class SequenceFirst(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16)
        self.out = nn.Linear(8, 4)

    def forward(self, x):  # [N, L, 8]
        return self.out(self.layer(x.transpose(0, 1)).mean(0))


def test_a_layer_with_the_batch_on_its_second_axis():
    model = cavia.condition(SequenceFirst(), at="layer", context=3, example=points(4, 5, 8))
    assert model.arguments["sites"] == [{"layer": "layer", "channels": 8, "axis": 2, "batch": 1}]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: make("mlp", at="layer"), "the module has no layer 'layer'; it has 'a', 'b', 'drop', 'c'"),
        (lambda: make("convolutions", at="secnd"), "no layer 'secnd'; the nearest are 'second'"),
        (
            lambda: make("encoder", at="encoder.layer.*"),
            r"no layer 'encoder.layer.\*'; the nearest are 'encoder.layers",
        ),
        (lambda: make("mlp", at=[]), "at must name at least one layer"),
        (lambda: make("mlp", how="filn"), "unknown how 'filn'; did you mean 'film'"),
        (lambda: make("gru", how="concat"), "'recurrent' is a GRU: use how=\"film\""),
        (lambda: make("batch norm, frozen", norm=None), "'norm' is a batch norm, whose statistics would mix tasks"),
        (lambda: make("batch norm, frozen", norm="froze"), "unknown norm 'froze'; did you mean 'frozen'"),
        (lambda: make("keywords", argument=None), "cannot run on the example"),
        (lambda: make("keywords", output=None), "the module returns a OrderedDict, not a tensor; name the part"),
        (lambda: make("keywords", output="logit"), "has no part 'logit'; it is logits, hidden"),
        (lambda: make("convolutions", axis=4), "channels must be on an axis behind that, got axis=4"),
        (lambda: cavia.condition(mlp(), "a", -1, example=rows(4)), "context must be at least 0, got -1"),
        (lambda: cavia.condition(mlp(), "a", 3, example=points(4, 2)), r"cannot run on the example \[4, 2\]"),
        (lambda: cavia.condition(mlp(), "a", 3, example=None), "example must be a tensor"),
        (lambda: cavia.condition(Mixing(), "linear", 3, example=rows(4)), "tasks do not stay apart"),
        (
            lambda: cavia.condition(Encoder(), "encoder.layers.0.self_attn.out_proj", 3, example=words(4)),
            "never called",
        ),
    ],
)
def test_misuse_is_named(build, message):
    with pytest.raises(cavia.CaviaError, match=message):
        build()


def test_a_context_without_effect_is_refused():
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.used, self.unused = nn.Linear(3, 4), nn.Linear(3, 4)

        def forward(self, x):
            self.unused(x)
            return self.used(x)

    with pytest.raises(cavia.CaviaError, match="the output does not depend on unused"):
        cavia.condition(Unused(), at="unused", context=3, example=rows(4))


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
