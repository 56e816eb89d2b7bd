"""`adapt` and `predict` from many threads: nobody gets another's numbers, and the learner stays as it was."""

import sys
import threading
from collections import OrderedDict

import pytest
import torch
from torch import nn

import cavia
from cavia.models.at_work import _at_work
from cavia.models.substitute import call_with, is_transparent
from tests.learners.compiling import common


def mlp(**arguments):
    return cavia.MLP(**{"inputs": 2, "outputs": 2, "hidden": (6,), "context": 3} | arguments)


class InAList(nn.Module):
    """Its layers are found by a list and a closure, which a copy of its attributes would miss."""

    def __init__(self, norm=nn.Identity):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(2, 6), norm(6), nn.Linear(6, 2)
        self.plain = [self.first, self.norm]
        self.then = lambda h: self.last(h)

    def forward(self, x):
        for layer in self.plain:
            x = layer(x).relu()
        return self.then(x)


def conditioned(module, **arguments):
    return cavia.condition(module, "first", context=3, example=torch.rand(4, 2), **arguments)


def recurrent():
    class Last(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.GRU(1, 4, batch_first=True), nn.Linear(4, 2)

        def forward(self, x):
            return self.last(self.first(x.unsqueeze(-1))[1][-1])

    return Last()


LEARNERS = common(mlp) | {
    "CNP": lambda: cavia.CNP(mlp(), "mse", inputs=2, outputs=2, encoder=(5,)),
    "conditioned": lambda: cavia.CAVIA(conditioned(InAList()), "mse"),
    "conditioned, task norm": lambda: cavia.CAVIA(conditioned(InAList(nn.BatchNorm1d), norm="task"), "mse"),
    "conditioned, recurrent": lambda: cavia.CAVIA(conditioned(recurrent()), "mse"),
    "MAML on own code": lambda: cavia.MAML(conditioned(InAList()), "mse"),
}


def make(name):
    torch.manual_seed(0)
    return LEARNERS[name]().double().eval()


def work(learner, number):
    """Support x and y and query x of two tasks, others for every thread."""
    generator = torch.Generator().manual_seed(number)
    x, y, q = (3 * torch.rand(2, n, 2, generator=generator, dtype=torch.float64) for n in (4, 4, 5))
    return x, (y[..., 0] > 1.5).long() if learner.loss == "cross_entropy" else y, q


def check(name, threads, calls):
    learner = make(name)
    before = {key: value.clone() for key, value in learner.state_dict().items()}
    points = [work(learner, number) for number in range(threads)]
    expected = [learner.predict(q, learner.adapt(x, y)) for x, y, q in points]
    wrong, barrier = [], threading.Barrier(threads)

    def serve(number):
        x, y, q = points[number]
        barrier.wait()
        try:
            for _ in range(calls):
                adapted = learner.predict(q, learner.adapt(x, y))
                if not torch.allclose(adapted, expected[number], rtol=1e-9, atol=1e-12):
                    wrong.append(number)
        except Exception as error:
            wrong.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        running = [threading.Thread(target=serve, args=(number,)) for number in range(threads)]
        for one in running:
            one.start()
        for one in running:
            one.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong
    assert all(torch.equal(before[key], value) for key, value in learner.state_dict().items())
    assert not _at_work.get()


@pytest.mark.parametrize("name", LEARNERS)
def test_threads_do_not_meet(name):
    check(name, threads=8, calls=15)


@pytest.mark.slow
@pytest.mark.check
@pytest.mark.parametrize("name", LEARNERS)
def test_threads_do_not_meet_in_many_calls(name):
    check(name, threads=16, calls=1000)


def test_the_state_is_never_a_tasks_own():
    learner = make("MAML on own code")
    x, y, q = work(learner, 0)
    before = {key: value.clone() for key, value in learner.state_dict().items()}
    running = threading.Thread(target=lambda: [learner.predict(q, learner.adapt(x, y)) for _ in range(60)])
    running.start()
    while running.is_alive():
        assert all(torch.equal(before[key], value) for key, value in learner.state_dict().items())


@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 2)),
        lambda: nn.Sequential(tied := nn.Linear(2, 2), nn.Tanh(), tied),
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(2, 2)),
        InAList,
        recurrent,
    ],
    ids=["layers", "the same layer twice", "parametrised", "own code", "recurrent"],
)
def test_other_weights_count_wherever_they_stand(build):
    torch.manual_seed(0)
    module, x = build(), torch.rand(3, 2)
    weights = {name: torch.rand_like(value) for name, value in module.named_parameters()}
    expected = torch.func.functional_call(module, weights, (x,))
    before = {name: value.clone() for name, value in module.state_dict().items()}
    assert torch.equal(call_with(module, weights, (x,)), expected)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


def test_transparent_are_modules_of_known_code_only():
    assert is_transparent(nn.Sequential(nn.Linear(1, 1), nn.GRU(1, 1)))
    assert is_transparent(mlp())
    assert is_transparent(conditioned(nn.Sequential(OrderedDict(first=nn.Linear(2, 2)))))
    assert not is_transparent(nn.Sequential(InAList()))
    hooked = nn.Sequential(nn.Linear(1, 1))
    hooked[0].register_forward_hook(lambda layer, inputs, output: hooked[0].weight * output)  # it holds the layer
    assert not is_transparent(hooked)
