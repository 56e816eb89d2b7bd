"""A compiled learner is the learner: its numbers, its errors, its weights, from any thread."""

import threading

import pytest
import torch

import cavia
from cavia.learners import graphs
from cavia.learners.padding import fillers, first_points, rounded
from tests.learners.compiling import LEARNERS, assert_same, make, points

pytestmark = pytest.mark.usefixtures("compiler")


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
