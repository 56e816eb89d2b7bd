"""Every peer's meta-step is ours: the same weights after the same steps."""

from functools import partial
from importlib.util import find_spec

import pytest
import torch

import cavia
import peers
from peers.work import Work, sine_batch, sine_model

# The peers' own warnings are not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")
OTHERS = [pytest.mark.slow, pytest.mark.check]  # `make check` installs them


def pictures(seed):
    generator = torch.Generator().manual_seed(seed)
    x = [torch.rand(2, count, 3, 16, 16, generator=generator) for count in (5, 10)]
    y = [torch.arange(5).repeat(count // 5).expand(2, -1) for count in (5, 10)]
    return cavia.TaskBatch(x[0], y[0], x[1], y[1])


SMALL = {
    "sine, CAVIA": Work("CAVIA", partial(sine_model, 5, 8), partial(sine_batch, tasks=3), "mse", 1.0, 2),
    "sine, MAML": Work("MAML", partial(sine_model, 0, 8), partial(sine_batch, tasks=3), "mse", 0.01, 2),
    "conv, CAVIA": Work(
        "CAVIA", partial(cavia.ConvNet, 5, 4, 16), pictures, "cross_entropy", 0.1, 2, 1, False, torch.float64
    ),
    "conv, MAML": Work(
        "MAML", partial(cavia.ConvNet, 5, 4, 16, context=0), pictures, "cross_entropy", 0.01, 2, 1, False, torch.float64
    ),
}


@pytest.fixture
def precision():
    """Sets the default dtype for the time of a test."""
    yield torch.set_default_dtype
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("library", [None, *(pytest.param(one, marks=OTHERS) for one in ("higher", "torchopt", "jax"))])
@pytest.mark.parametrize("name", SMALL)
def test_same_weights_as_ours_after_two_steps(name, library, precision):
    work = SMALL[name]
    if library and not find_spec(library):
        pytest.skip(f"{library} is not installed: pip install 'cavia-torch[bench]'")
    if library == "jax" and work.loss != "mse":
        pytest.skip("the JAX peer knows the MLP only")
    precision(work.dtype)
    batches, makers = work.batches(2), peers.entrants(work)
    ours = moved(makers[peers.EAGER], batches)
    mine = [n for n in makers if n.lower().startswith(library or peers.RECIPE)]
    assert mine
    for entrant in mine:
        assert (moved(makers[entrant], batches) - ours).abs().max() < (1e-5 if work.dtype == torch.float32 else 1e-9)


@pytest.mark.parametrize("name", ["conv, CAVIA", "conv, MAML"])
def test_the_step_of_an_earlier_commit_is_still_ours(name, precision):
    precision(torch.float64)
    batches, makers = SMALL[name].batches(2), peers.entrants(SMALL[name])
    difference = moved(makers[peers.BEFORE], batches) - moved(makers[peers.EAGER], batches)
    assert difference.abs().max() < 1e-9


def moved(make, batches):
    entrant = make()
    before = entrant.parameters().clone()
    entrant.prepare(batches)()
    assert not torch.equal(entrant.parameters(), before)
    return entrant.parameters()
