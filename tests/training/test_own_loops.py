"""Loops of users' own on several ranks: learners inside DistributedDataParallel and with Accelerate.

No loop destroys its process group, the end of its process does: with DistributedDataParallel alive, PyTorch 2.13 may
wait for ever. Its destructor joins Gloo's thread and holds the GIL, which that thread needs to let go of its last work.
"""

import pytest
import torch
from torch.nn.utils import parameters_to_vector

import cavia
from tests.training.runs import make
from tests.training.together import on_ranks

STEPS, TASKS = 5, 6


def batches():
    """The batches of all ranks together."""
    generator = torch.Generator().manual_seed(0)
    return [cavia.Sine().sample(TASKS, 5, 5, generator) for _ in range(STEPS)]


def ours(batch, rank, ranks):
    size = TASKS // ranks
    return batch.part(rank * size, (rank + 1) * size)


def after(learner):
    """What a loop ends with: the weights, and the contexts of new tasks."""
    adapted = learner.adapt(*(getattr(batches()[0], name) for name in ("support_x", "support_y")))
    return parameters_to_vector(learner.parameters()).tolist(), [value.sum().item() for value in adapted.values()]


def plain(method):
    learner = make(method)
    optimiser = torch.optim.Adam(learner.parameters(), lr=0.01)
    for batch in batches():
        optimiser.zero_grad()
        learner(batch).mean().backward()
        optimiser.step()
    return after(learner)


def data_parallel(method):
    from torch import distributed
    from torch.nn.parallel import DistributedDataParallel

    distributed.init_process_group("gloo")
    learner = make(method)
    wrapped = DistributedDataParallel(learner)
    optimiser = torch.optim.Adam(wrapped.parameters(), lr=0.01)
    for batch in batches():
        optimiser.zero_grad()
        wrapped(ours(batch, distributed.get_rank(), distributed.get_world_size())).mean().backward()
        optimiser.step()
    return after(learner)


def accelerated(method):
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    learner = make(method)
    wrapped, optimiser = accelerator.prepare(learner, torch.optim.Adam(learner.parameters(), lr=0.01))
    for batch in batches():
        optimiser.zero_grad()
        share = ours(batch, accelerator.process_index, accelerator.num_processes)
        accelerator.backward(wrapped(share).mean())
        optimiser.step()
    return after(accelerator.unwrap_model(wrapped))


@pytest.mark.slow
@pytest.mark.parametrize("loop", [data_parallel, accelerated])
@pytest.mark.parametrize("method", ["CAVIA", "MAML", "MetaSGD"])
def test_gradients_of_all_ranks_are_averaged(loop, method):
    one, other = on_ranks(2, loop, method)
    assert one == other
    for actual, alone in zip(one, plain(method), strict=True):
        assert actual == pytest.approx(alone, abs=1e-5)
