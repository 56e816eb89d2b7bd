"""`learner.adapt` over an iterator of batches."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import cavia

ROOT = Path(__file__).parents[2]


@pytest.fixture
def learner():
    return cavia.CAVIA(cavia.MLP(1, 1, hidden=(4,), context=2), loss="mse")


def drawn(count, taken):
    for _ in range(count):
        taken.append(1)
        x = torch.rand(3, 5, 1)
        yield x, x.sin(), torch.ones(3, 5, dtype=torch.bool)


def test_batches_are_adapted_to_one_by_one_as_they_are_asked_for(learner):
    taken = []
    adapted = learner.adapt(drawn(4, taken), steps=2)
    assert isinstance(adapted, Iterator)
    assert not taken
    assert len(next(adapted)) == 3
    assert len(taken) == 1
    assert len(list(adapted)) == 3


def test_each_is_what_adapt_returns(learner):
    batches = [(torch.rand(2, 5, 1), torch.rand(2, 5, 1)) for _ in range(2)]
    for (x, y), adapted in zip(batches, learner.adapt(iter(batches)), strict=True):
        assert torch.equal(adapted.context, learner.adapt(x, y).context)


def test_a_compiled_learner_takes_an_iterator_too(learner, monkeypatch):
    compiled = cavia.compiled(learner)
    compiled.is_plain = True  # compiling takes seconds
    assert [len(one) for one in compiled.adapt(drawn(2, []))] == [3, 3]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda learner: learner.adapt(iter([]), torch.rand(1, 2, 1)), "y must be in the batches"),
        (lambda learner: list(learner.adapt(iter([5]))), r"batch 0 \(counting from 0\) must be \(x, y\) or \(x, y, m"),
        (lambda learner: learner.adapt(torch.rand(1, 2, 1)), "y"),
    ],
)
def test_what_is_no_iterator_of_batches_is_said(learner, call, message):
    with pytest.raises(cavia.CaviaError, match=message):
        call(learner)


@pytest.mark.slow
def test_the_example_of_the_page_on_scaling_runs():
    names: dict = {}
    for code in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "scaling.md").read_text(), flags=re.DOTALL):
        exec(code, names)
