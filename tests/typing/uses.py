"""What users' type checkers see of the main calls: `mypy` of `make lint` reads this file, nothing runs it."""

from typing import assert_type

import torch
from torch import Tensor

import cavia


def sine() -> None:
    learner = cavia.CAVIA(cavia.MLP(inputs=1, outputs=1, context=5), loss="mse", inner_lr=1.0)
    cavia.fit(learner, cavia.Sine(), iterations=3, outer=cavia.Adam(lr=1e-3), validation=cavia.Validation(tasks=5))
    adapted = learner.adapt(torch.rand(3, 10, 1), torch.rand(3, 10, 1))
    assert_type(adapted, cavia.Adapted)
    assert_type(adapted.context, Tensor)
    assert_type(learner.predict(torch.rand(3, 4, 1), adapted), Tensor)
    assert_type(learner.version, str)
    learner.save("sine.cavia")
    assert_type(cavia.load("sine.cavia"), cavia.Learner)


def wrong() -> None:
    cavia.CAVIA(cavia.MLP(1, 1), loss="mse", inner_lr="fast")  # type: ignore[arg-type]
    cavia.fit(cavia.Sine(), cavia.Sine(), 3)  # type: ignore[arg-type]
    cavia.Sine().sample(1, 1, 1, generator=0)  # type: ignore[arg-type]


def store(learner: cavia.Learner) -> None:
    with cavia.ContextStore("users.store", learner) as contexts:
        contexts.put(["ann"], learner.adapt(torch.rand(1, 10, 1), torch.rand(1, 10, 1)))
        assert_type(contexts.get(["ann"]), cavia.Adapted)
        assert_type(len(contexts), int)


class Lines(cavia.TaskFamily):
    def sample(
        self, tasks: int, support: int, query: int, generator: torch.Generator, split: str = "train"
    ) -> cavia.TaskBatch:
        x = torch.randn(tasks, support + query, 1, generator=generator)
        return cavia.TaskBatch(x[:, :support], x[:, :support], x[:, support:], x[:, support:])


def families() -> None:
    batch = Lines().sample(2, 3, 4, torch.Generator())
    assert_type(batch.support_y, Tensor)
    model = cavia.condition(torch.nn.Linear(1, 1), at="", context=2, example=torch.zeros(2, 1))
    assert_type(cavia.MAML(cavia.MLP(1, 1, context=0), "mse").inner_steps, int)
    cavia.CAVIA(model, "mse")
