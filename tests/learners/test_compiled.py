"""A compiled learner is the learner: its numbers, its errors, its weights, from any thread."""

import threading
import warnings

import pytest
import torch

import cavia
from cavia.learners import compiled as compiled_module, graphs
from cavia.learners.padding import fillers, first_points, rounded
from cavia.models.base import NormedModel

pytestmark = pytest.mark.usefixtures("compiler")


def mlp(**arguments):
    return cavia.MLP(**{"inputs": 2, "outputs": 1, "hidden": (6,), "context": 3} | arguments)


def labels_of(x):
    return (x.sum(-1) > 0).long()


LEARNERS = {
    "CAVIA": lambda: cavia.CAVIA(mlp(), "mse", inner_steps=2),
    "CAVIA, later layers": lambda: cavia.CAVIA(mlp(at=(1,), outputs=2), "cross_entropy", learn_init=True),
    "MAML": lambda: cavia.MAML(mlp(), "mse"),
    "ANIL": lambda: cavia.ANIL(mlp(), "mse"),
    "Meta-SGD": lambda: cavia.MetaSGD(mlp(), "mse"),
    "CAVIA+MAML": lambda: cavia.CaviaMAML(mlp(), "mse"),
    "Reptile": lambda: cavia.Reptile(mlp(), "mse", inner_steps=2),
    "Gauss–Newton": lambda: cavia.GaussNewton(mlp(), "mse"),
    "Gauss–Newton on waves": lambda: cavia.GaussNewton(cavia.WaveBasis(2, 1, waves=4, context=3), "mse"),
    "CNP": lambda: cavia.CNP(mlp(), "mse", inputs=2, outputs=1, encoder=(5,)),
    "ProtoNets": lambda: cavia.ProtoNets(mlp(context=0, outputs=4), ways=2),
    "MatchingNets": lambda: cavia.MatchingNets(mlp(context=0, outputs=4), ways=2),
}


def make(name, dtype=torch.float64):
    torch.manual_seed(0)
    return LEARNERS[name]().to(dtype)


def points(learner, tasks=3, support=3, query=5, seed=0):
    """Support x and y and query x."""
    generator = torch.Generator().manual_seed(seed)
    dtype = next(learner.parameters()).dtype
    x, q = (torch.rand(tasks, n, 2, generator=generator, dtype=torch.float64).to(dtype) for n in (support, query))
    classifies = learner.loss == "cross_entropy"
    return x, labels_of(x - 0.5) if classifies else x.prod(-1, keepdim=True), q


def assert_same(compiled, learner, tasks=3, support=3, query=5, **arguments):
    x, y, q = points(learner, tasks, support, query)
    expected, adapted = (one.adapt(x, y, **arguments) for one in (learner, compiled))
    if not isinstance(learner, cavia.MatchingNets):  # which keeps every point, padding too, with no vote
        (tensors, layout), (expected_tensors, expected_layout) = adapted.flatten(), expected.flatten()
        torch.testing.assert_close(tensors, expected_tensors)
        assert layout == expected_layout
    prediction = compiled.predict(q, adapted)
    assert not prediction.requires_grad
    assert prediction.is_contiguous()
    torch.testing.assert_close(prediction, learner.predict(q, expected).detach())
    return adapted


@pytest.mark.parametrize("name", LEARNERS)
def test_a_compiled_learner_adapts_and_predicts_as_the_learner(name):
    learner = make(name)
    compiled = cavia.compiled(learner)
    state = {key: value.clone() for key, value in learner.state_dict().items()}
    for tasks, support, query in ((3, 3, 5), (4, 4, 8), (3, 4, 7)):  # all are rounded up to 4, 4 and 8
        assert_same(compiled, learner, tasks, support, query)
    assert len(compiled.graphs.graphs) == 2
    for size in (3, 4):
        x, y, q = points(learner, size, size)
        mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 1], [1, 0, 0, 0], [1, 1, 1, 0]]).bool()[:size, :size]
        poisoned = x.where(mask.unsqueeze(-1), torch.nan)
        expected, adapted = (one.predict(q, one.adapt(poisoned, y, mask)).detach() for one in (learner, compiled))
        torch.testing.assert_close(adapted, expected)
    assert len(compiled.graphs.graphs) == 2
    assert all(torch.equal(state[key], value) for key, value in learner.state_dict().items())


@pytest.mark.parametrize("name", ["CAVIA", "MAML"])
def test_steps_can_be_given_and_gone_on_from(name):
    learner = make(name)
    compiled = cavia.compiled(learner)
    for steps in (0, 1, 3):
        assert_same(compiled, learner, steps=steps)
    x, y, _ = points(learner)
    start = learner.adapt(x, 2 * y, steps=1)
    assert_same(compiled, learner, steps=2, start=start)
    assert len(compiled.graphs.graphs) <= 5  # one step, as many as in training, both from a start; predict


@pytest.fixture(scope="module")
def sine(compiler):
    """A learner in float32 and the same compiled, shared by tests that leave it as it is."""
    learner = make("CAVIA", torch.float32)
    return learner, cavia.compiled(learner)


def test_many_tasks_go_in_parts(sine):
    learner, compiled = sine
    adapted = assert_same(compiled, learner, tasks=130)
    assert adapted["context"].shape == (130, 3)
    x, y, q = points(learner, 131)
    for one in (learner, compiled):
        with pytest.raises(cavia.CaviaError, match=r"must be \[131, 3\] for the 131 tasks"):
            one.predict(q, adapted)
        with pytest.raises(cavia.CaviaError, match=r"must be \[131, 3\] for the 131 tasks"):
            one.adapt(x, y, start=adapted)


def test_graphs_follow_the_weights():
    learner = make("CAVIA", torch.float32)
    compiled = cavia.compiled(learner)
    assert_same(compiled, learner)
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.mul_(1.5)
    assert_same(compiled, learner)
    learner.model.layers[0].weight = torch.nn.Parameter(2 * learner.model.layers[0].weight.detach())
    assert_same(compiled, learner)
    assert len(compiled.graphs.graphs) == 2
    learner.double()  # other graphs
    assert_same(compiled, learner)
    assert len(compiled.graphs.graphs) == 2


@pytest.mark.slow
def test_several_threads_share_it(sine):
    learner, compiled = sine
    work = [points(learner, 1, support, 5, seed=support) for support in (1, 2, 3, 4) for _ in range(2)]
    expected = [learner.predict(q, learner.adapt(x, y)).detach() for x, y, q in work]
    wrong = []

    def serve(number):
        x, y, q = work[number]
        for _ in range(20):
            adapted = compiled.predict(q, compiled.adapt(x, y))
            if not torch.allclose(adapted, expected[number], atol=1e-5):
                wrong.append(number)

    threads = [threading.Thread(target=serve, args=(number,)) for number in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_calls_do_not_wait_while_another_kind_is_compiled(sine, monkeypatch):
    learner, compiled = sine
    assert_same(compiled, learner)
    compiling, go_on = threading.Event(), threading.Event()

    def blocked(*_):
        monkeypatch.setattr(torch.compiler, "_is_compiling_flag", True)
        compiling.set()
        assert go_on.wait(60)
        raise KeyboardInterrupt  # nothing that would leave the learner uncompiled

    def serve():
        with pytest.raises(KeyboardInterrupt):
            compiled.adapt(*points(learner, 1, 100)[:2])

    monkeypatch.setattr(graphs, "compile_graph", blocked)
    other = threading.Thread(target=serve)
    other.start()
    assert compiling.wait(60)
    monkeypatch.setattr(compiled.graphs, "as_it_is", None)  # which would wait
    try:
        assert_same(compiled, learner)
    finally:
        go_on.set()
        other.join()


def test_other_modules_need_other_graphs():
    learner = make("CAVIA", torch.float32)
    compiled = cavia.compiled(learner)
    x, y, _ = points(learner)
    compiled.adapt(x, y)
    learner.model.layers[1] = torch.nn.Linear(6, 1)
    with pytest.raises(cavia.CaviaError, match=r"were replaced since it was compiled; call cavia\.compiled again"):
        compiled.adapt(x, y)
    assert_same(cavia.compiled(learner), learner)


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("CAVIA", lambda one, x, y, q, fast: one.adapt(x, y[:, :2])),
        ("CAVIA", lambda one, x, y, q, fast: one.adapt("text", y)),
        ("CAVIA", lambda one, x, y, q, fast: one.adapt(x, None)),
        ("CAVIA", lambda one, x, y, q, fast: one.adapt(x.to(torch.cfloat), y)),
        ("CAVIA", lambda one, x, y, q, fast: one.adapt(x, y, steps=[1])),
        ("CAVIA", lambda one, x, y, q, fast: one.adapt(x.to("meta"), y.to("meta"))),
        ("CAVIA", lambda one, x, y, q, fast: one.predict(None, fast)),
        ("CAVIA", lambda one, x, y, q, fast: one.predict(q, None)),
        ("CAVIA", lambda one, x, y, q, fast: one.predict(1e300 * q.double(), fast)),
        ("CAVIA", lambda one, x, y, q, fast: one.adapt(x[..., :1], y)),
        ("CAVIA", lambda one, x, y, q, fast: one.adapt(x, y, torch.ones(3, 3))),
        ("CAVIA", lambda one, x, y, q, fast: one.adapt(x, y, torch.ones(3, 2).bool())),
        ("CAVIA", lambda one, x, y, q, fast: one.adapt(x, y, steps=-1)),
        ("CAVIA", lambda one, x, y, q, fast: one.adapt(x, y, steps=1.0)),
        ("CAVIA", lambda one, x, y, q, fast: one.adapt(x, y, start=cavia.Adapted({"weight": torch.zeros(3, 3)}))),
        ("CAVIA", lambda one, x, y, q, fast: one.adapt(x[:2], y[:2], start=fast)),
        ("CAVIA", lambda one, x, y, q, fast: one.predict(q[:2], fast)),
        ("CAVIA", lambda one, x, y, q, fast: one.predict(q, cavia.Adapted({"context": fast.context[:, :2]}))),
        ("CAVIA", lambda one, x, y, q, fast: one.predict(q[0], fast)),
        ("ProtoNets", lambda one, x, y, q, fast: one.adapt(x, y + 2)),
        ("ProtoNets", lambda one, x, y, q, fast: one.adapt(x, y.float())),
    ],
)
def test_wrong_inputs_have_the_learners_own_errors(name, wrong):
    learner = make(name, torch.float32)
    compiled = cavia.compiled(learner)
    x, y, q = points(learner)
    fast = compiled.adapt(x, y)
    compiled.predict(q, fast)
    errors = []
    for one in (learner, compiled):
        with pytest.raises(Exception, match=r".+") as error:
            wrong(one, x, y, q, fast)
        errors.append((error.type, str(error.value)))
    assert errors[0] == errors[1]


def test_arrays_lists_and_other_types_are_the_same_points():
    learner = make("CAVIA", torch.float32)
    compiled = cavia.compiled(learner)
    x, y, q = points(learner)
    expected = compiled.adapt(x, y)
    predicted = compiled.predict(q, expected)
    for convert in (torch.Tensor.numpy, torch.Tensor.tolist, torch.Tensor.double, list):
        for one in (learner, compiled):
            adapted = one.adapt(convert(x), convert(y))
            torch.testing.assert_close(adapted.context, expected.context)
            torch.testing.assert_close(one.predict(convert(q), adapted), predicted)


@pytest.mark.parametrize("shift", [5, -1, -100])
def test_labels_that_are_no_class_are_refused_by_a_graph_too(shift):
    learner = make("CAVIA, later layers", torch.float32)
    compiled = cavia.compiled(learner)
    x, y, _ = points(learner)
    compiled.adapt(x, y)
    with pytest.raises(cavia.CaviaError, match=f"labels y must be from 0 to 1 for logits of 2 classes, got {shift}"):
        compiled.adapt(x, y % 1 + shift)


def test_what_no_graph_takes_is_done_by_the_learner(sine):
    learner, compiled = sine
    x, y, q = points(learner)
    assert_same(compiled, learner, query=0)
    mapped = torch.vmap(lambda x, y: compiled.adapt(x[None], y[None])["context"][0])(x, y)
    torch.testing.assert_close(mapped, learner.adapt(x, y)["context"])
    start = cavia.Adapted({"context": learner.adapt(x, y)["context"].requires_grad_()})
    compiled.respond(q, start).sum().backward()
    assert start["context"].grad is not None
    with torch.inference_mode():
        torch.testing.assert_close(compiled.adapt(x.clone(), y.clone()).context, learner.adapt(x, y).context)
    with torch.inference_mode():
        inferred = points(learner, 2, 7)[:2]
    torch.testing.assert_close(compiled.adapt(*inferred).context, learner.adapt(*inferred).context)


def test_the_rest_of_a_learner_is_there(sine, tmp_path):
    learner, compiled = sine
    x, y, _ = points(learner)
    assert compiled.version == learner.version
    assert compiled.arguments == learner.arguments
    compiled.eval()
    assert not learner.training
    compiled.train()
    compiled.save(tmp_path / "one.cavia")
    assert cavia.load(tmp_path / "one.cavia").version == learner.version
    with cavia.ContextStore(tmp_path / "contexts.store", compiled) as store:
        store.put([1, 2, 3], compiled.adapt(x, y))
        torch.testing.assert_close(store.get([2]).context, learner.adapt(x, y)["context"][1:2])
    assert cavia.compiled(compiled).learner is learner
    with pytest.raises(cavia.CaviaError, match="give fit the learner that it was made from"):
        cavia.fit(compiled, cavia.Sine(), 1, progress=False, run_dir=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_evaluation_takes_it():
    learner = make("CAVIA", torch.float32)
    family = cavia.Tasks([(torch.rand(6, 2), torch.rand(6)) for _ in range(40)], support=3, query=3)
    results = [cavia.evaluate(one, family, tasks=5, steps=2) for one in (learner, cavia.compiled(learner))]
    torch.testing.assert_close(results[0].scores, results[1].scores)
    assert learner.training


def test_networks_with_batch_norm_have_their_exact_points_and_keep_their_statistics():
    torch.manual_seed(0)
    layers = (torch.nn.Linear(2, 6), torch.nn.BatchNorm1d(6), torch.nn.ReLU(), torch.nn.Linear(6, 1))
    for norm in ("task", "frozen"):
        net = torch.nn.Sequential(*layers)
        learner = cavia.CAVIA(cavia.condition(net, at="0", context=3, example=torch.zeros(4, 2), norm=norm), "mse")
        before = {name: value.clone() for name, value in net.named_buffers()}
        compiled = cavia.compiled(learner)
        for support in (3, 4):
            assert_same(compiled, learner, support=support)
        assert len(compiled.graphs.graphs) == (3 if norm == "task" else 2)
        assert all(torch.equal(before[name], value) for name, value in net.named_buffers())
        x, y, _ = points(learner)
        if norm == "task":
            with pytest.raises(cavia.CaviaError, match="has batch norm"):
                compiled.adapt(x, y, torch.ones(3, 3).bool())


def test_dropout_follows_the_mode():
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(2, 20), torch.nn.ReLU(), torch.nn.Dropout(0.5), torch.nn.Linear(20, 1))
    learner = cavia.CAVIA(cavia.condition(net, at="0", context=3, example=torch.zeros(4, 2)), "mse")
    compiled = cavia.compiled(learner)
    x, y, _ = points(learner)
    compiled.adapt(x, y)
    assert not torch.equal(compiled.adapt(x, y)["context"], compiled.adapt(x, y)["context"])
    learner.eval()
    assert_same(compiled, learner)


@pytest.mark.parametrize("norm", ["support", "running"])
def test_convolutions_are_left_as_they_are_on_a_processor(norm):
    torch.manual_seed(0)
    learner = cavia.CAVIA(cavia.ConvNet(2, 4, image=16, channels=1, context=3, norm=norm), "cross_entropy").eval()
    with pytest.warns(UserWarning, match="runs uncompiled: on a CPU, compiled convolutions are slower"):
        compiled = cavia.compiled(learner)
    x, y = torch.rand(2, 4, 1, 16, 16), torch.arange(4).expand(2, 4) % 2
    state = {key: value.clone() for key, value in learner.state_dict().items()}
    fast, expected = compiled.adapt(x, y), learner.adapt(x, y)
    assert fast.keys() == expected.keys()
    assert torch.equal(compiled.predict(x, fast), learner.predict(x, expected))
    assert all(torch.equal(state[key], value) for key, value in learner.state_dict().items())


class Normed(NormedModel):
    """One layer with batch norm, whose statistics are those of the support points."""

    context, keeps_statistics = 3, True

    def __init__(self):
        super().__init__()
        self.first, self.shift, self.last = (torch.nn.Linear(*sizes) for sizes in ((2, 4), (3, 4), (4, 1)))

    def stem(self, x, statistics=None):
        h = self.first(x)
        mean, variance = (self.of(h) if statistics is None else statistics).unsqueeze(2).unbind(1)
        return (h - mean) / (variance + 1e-5).sqrt()

    def head(self, h, context, statistics=None):
        return self.last((h + self.shift(context).unsqueeze(1)).relu())

    def statistics(self, x, context):
        return self.of(self.first(x))

    def of(self, h):
        return torch.stack([h.mean(1), h.var(1, correction=0)], 1)


@pytest.mark.parametrize("method", [cavia.CAVIA, cavia.MAML])
def test_statistics_of_support_points_go_through_graphs(method, monkeypatch):
    monkeypatch.setattr(compiled_module, "obstacle", lambda *_: None)  # our own such network is one of convolutions
    torch.manual_seed(0)
    learner = method(Normed().double(), "mse")
    compiled = cavia.compiled(learner)
    adapted = assert_same(compiled, learner)
    assert adapted.statistics is not None
    assert_same(compiled, learner, start=adapted)
    assert len(compiled.graphs.graphs) == 3


class Own(cavia.MLP):
    """A class of one's own."""


@pytest.mark.parametrize(
    ("build", "why"),
    [
        (lambda: cavia.CAVIA(Own(2, 1, hidden=(6,), context=3), "mse"), "Own is your own code"),
        (lambda: cavia.CAVIA(mlp(), lambda p, t: (p - t).square().mean(-1)), "the loss is your own code"),
    ],
)
def test_what_is_not_compiled_runs_as_it_is_and_says_why(build, why):
    learner = build()
    with pytest.warns(UserWarning, match=rf"cavia\.compiled\(CAVIA\): it runs uncompiled: {why}"):
        compiled = cavia.compiled(learner)
    x, y, q = points(learner)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled.predict(q, compiled.adapt(x, y)), learner.predict(q, learner.adapt(x, y)))


def test_a_compiler_that_fails_is_named_once(monkeypatch):
    def failing(*_):
        raise RuntimeError("no C++ compiler was found\nand more")

    monkeypatch.setattr(graphs, "compile_graph", failing)
    learner = make("CAVIA", torch.float32)
    compiled = cavia.compiled(learner)
    x, y, q = points(learner)
    with pytest.warns(UserWarning, match="it runs uncompiled: no C\\+\\+ compiler was found$"):
        fast = compiled.adapt(x, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(compiled.predict(q, fast), learner.predict(q, learner.adapt(x, y)))


def test_the_number_of_graphs_is_bounded(monkeypatch):
    monkeypatch.setattr(graphs, "MOST_GRAPHS", 1)
    learner = make("CAVIA", torch.float32)
    compiled = cavia.compiled(learner)
    x, y, q = points(learner)
    fast = compiled.adapt(x, y)
    with pytest.warns(UserWarning, match="graphs already"):
        predicted = compiled.predict(q, fast)
    torch.testing.assert_close(predicted, learner.predict(q, fast).detach())
    compiled.adapt(x[:, :2], y[:, :2])
    assert len(compiled.graphs.graphs) == 1


def test_numbers_are_rounded_up():
    assert [rounded(n) for n in (1, 2, 3, 5, 9, 16, 17, 25, 33, 64, 65, 1000)] == [
        1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, 1024
    ]  # fmt: skip
    assert all(n <= rounded(n) < 2 * n for n in range(1, 3000))
    assert len({rounded(n) for n in range(1, 1025)}) == 18


def test_padding_goes_behind():
    value = torch.arange(6.0).view(1, 3, 2)
    padded = value
    for zeros, axis in fillers(value, 2, 4):
        padded = torch.cat([padded, zeros], axis)
    assert padded.shape == (2, 4, 2)
    assert torch.equal(padded[:1, :3], value)
    assert padded.sum() == value.sum()
    assert fillers(value, 1, 3) == []
    assert first_points(2, 4, 3, torch.device("cpu")).tolist() == 2 * [[True, True, True, False]]
