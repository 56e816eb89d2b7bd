"""Many steps in one compiled loop are the steps one by one, whatever the learner and the batches."""

import pytest
import torch
from torch import nn

import cavia
from cavia.compiler.vectors import vectors
from cavia.training.batches import TaskBlock
from cavia.training.several import Loop, Steps
from cavia.training.step import MetaStep

M, T = 5, 3
RATES = [0.01, 0.02, 0.005, 0.01, 0.01]


def sine_block(kind=torch.float32):
    batch = cavia.Sine().sample(M * T, 4, 6, torch.Generator().manual_seed(0))
    return cavia.TaskBatch(
        *(part.to(kind) for part in (batch.support_x, batch.support_y, batch.query_x, batch.query_y))
    )


def padded_block():
    block = sine_block()
    mask = torch.rand(M * T, 4, generator=torch.Generator().manual_seed(1)) < 0.7
    return cavia.TaskBatch(block.support_x, block.support_y, block.query_x, block.query_y, support_mask=mask)


def labelled_block():
    torch.manual_seed(0)
    x, y = torch.randn(M * T, 6, 1), torch.randint(3, (M * T, 6))
    return cavia.TaskBatch(x, y, x + 0.1, y.flip(1))


def frozen(learner):
    learner.model.layers[-1].bias.requires_grad_(False)
    return learner


def new(method="CAVIA", outputs=1, loss="mse", kind=torch.float32, **arguments):
    torch.manual_seed(0)
    return getattr(cavia, method)(cavia.MLP(1, outputs, hidden=(12, 9), context=2), loss, **arguments).to(kind)


def taken(learner, block, compiled, clip=1.0):
    """Losses and weights after all steps, in two calls."""
    step = MetaStep(learner, lr=1.0, clip=clip, compiled=compiled)
    take = Loop(step, M) if compiled else (lambda tasks, *rest: Steps(step)(TaskBlock(tasks, M), *rest))
    losses = torch.cat([take(block, 0, RATES[:2]), take(block, 2, RATES[2:])])
    assert step.count.item() == M
    assert step.lr.item() == pytest.approx(RATES[-1])
    return losses, nn.utils.parameters_to_vector(learner.parameters()), *step.state().values()


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("make", "block"),
    [
        (new, sine_block()),
        (lambda: new(learn_init=True, inner_steps=2), sine_block()),
        (lambda: frozen(new()), padded_block()),
        (lambda: new("MAML"), sine_block()),
        (lambda: new("MetaSGD", kind=torch.float64), sine_block(torch.float64)),
        (lambda: new(outputs=3, loss="cross_entropy"), labelled_block()),
    ],
    ids=["CAVIA", "a learned start", "padding and a frozen weight", "MAML", "Meta-SGD in float64", "labels"],
)
def test_the_loop_equals_the_steps_one_by_one(make, block):
    for looped, alone in zip(taken(make(), block, True), taken(make(), block, False), strict=True):
        torch.testing.assert_close(looped, alone, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
def test_dropout_stays_random_in_the_loop():
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(1, 20), nn.ReLU(), nn.Dropout(0.5), nn.Linear(20, 1))
    learner = cavia.CAVIA(cavia.condition(network, at="0", context=2, example=torch.zeros(1, 1)), "mse")
    batch = sine_block().part(0, T)
    same = cavia.TaskBatch(*(torch.cat([part] * M) for part in vars(batch).values() if isinstance(part, torch.Tensor)))
    losses = Loop(MetaStep(learner, lr=1e-9, compiled=True), M)(same, 0, [1e-9] * M)
    assert len({round(loss, 4) for loss in losses.tolist()}) == M


@pytest.mark.slow
@pytest.mark.usefixtures("compiler")
def test_what_cannot_loop_takes_its_steps_one_by_one(monkeypatch):
    steps = Steps(MetaStep(new(), lr=0.01, compiled=True))
    monkeypatch.setattr("cavia.compiler.looping.while_loop_op", None)
    assert steps.loops
    actual = steps(TaskBlock(sine_block(), M), 0, RATES)
    assert not steps.loops
    assert steps.step.compiled
    torch.testing.assert_close(actual, Steps(MetaStep(new(), lr=0.01))(TaskBlock(sine_block(), M), 0, RATES))


def test_only_whole_compiled_steps_loop():
    running = cavia.CAVIA(cavia.ConvNet(2, 4, 28, 1, context=2, norm="running"), "cross_entropy")
    assert not Steps(MetaStep(new(), lr=0.01)).loops
    assert not Steps(MetaStep(new(), lr=0.01, chunk=2, compiled=True)).loops
    assert not Steps(MetaStep(running, lr=0.01, compiled=True)).loops


@pytest.mark.parametrize(("width", "expected"), [(40, {"cpp.simdlen": 256}), (128, {}), (24, {"cpp.simdlen": 256})])
def test_vectors_are_as_wide_as_rows_are_cut_by(width, expected, monkeypatch):
    def graph(x):
        return x.relu() + 1

    traced = torch.fx.experimental.proxy_tensor.make_fx(graph, tracing_mode="fake")(torch.zeros(25, 10, width))
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX512")
    assert vectors(traced) == expected
    monkeypatch.setattr("torch.backends.cpu.get_cpu_capability", lambda: "AVX2")
    assert vectors(traced) == {}
